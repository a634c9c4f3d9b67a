"""What a rank pays for its share of a sharded rotation, in units of the whole rotation on one rank.

    OMP_NUM_THREADS=1 python benchmarks/sharded.py [--rounds 41]

One process stands for rank 0 of N (torch's fake process group): a rotation of DTensors sends nothing, so that is all
that a rank does. Processor time, interleaved, medians. "by hand" is the rotation of the local tensor with its part of
the tables.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import phasor

HEADS, KEY_HEADS, CHANNELS = 32, 8, 128


def calls(tokens: int, dtype: torch.dtype, mesh: DeviceMesh) -> dict[str, Callable[[], object]]:
    q, k = (torch.randn(1, heads, tokens, CHANNELS, dtype=dtype) for heads in (HEADS, KEY_HEADS))
    rotation = phasor.Rotation.at(phasor.RotarySpec(head_dim=CHANNELS), torch.arange(tokens))
    ranks = mesh.size()

    def local(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.tensor_split(ranks, dim)[0].contiguous()

    def sharded(dim: int) -> Callable[[], object]:
        parts = [DTensor.from_local(local(x, dim), mesh, [Shard(dim)], run_check=False) for x in (q, k)]
        return lambda: phasor.apply_rotary_qk(*parts, rotation)

    own, part = [local(x, 2) for x in (q, k)], rotation.slice(0, tokens // ranks)
    return {
        "whole": lambda: phasor.apply_rotary_qk(q, k, rotation),
        "sequence": sharded(2),
        "heads": sharded(1),
        "by hand": lambda: phasor.apply_rotary_qk(*own, part),
    }


def shares(tokens: int, dtype: torch.dtype, mesh: DeviceMesh, rounds: int) -> dict[str, float]:
    variants = calls(tokens, dtype, mesh)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, call in variants.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {name: value / medians["whole"] for name, value in medians.items() if name != "whole"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| ranks | tokens | dtype | sequence | heads | by hand |\n|---|---|---|---|---|---|")
    for ranks in (2, 4, 8):
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        mesh = init_device_mesh("cpu", (ranks,))
        for tokens in (4096, 32768):
            for dtype in (torch.float32, torch.bfloat16):
                row = shares(tokens, dtype, mesh, rounds)
                cells = " | ".join(f"{value:.3f}" for value in row.values())
                print(f"| {ranks} | {tokens} | {str(dtype).removeprefix('torch.')} | {cells} |", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
