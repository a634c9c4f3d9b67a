"""Single races, each the number of one page: medians of interleaved rounds on one thread, printed as ratios.

    python benchmarks/races.py hooked|sharded|moves|decode|encodings [--rounds 31]

hooked: docs/doors.md. sharded: docs/parallel.md. moves, decode: docs/caches.md. encodings: results/encodings_cpu.txt.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from timing import race, ratio
from torch import nn

import phasor

DTYPES = (torch.float32, torch.bfloat16)


def show(what: str, calls: dict[str, Any], unit: str, rounds: int, warm_up: int = 5) -> None:
    """Each call in units of one of them."""
    times = race(calls, rounds=rounds, warm_up=warm_up)
    ratios = ", ".join(f"{name} {ratio(times, name, unit):.3f}" for name in calls if name != unit)
    print(f"{what}, in units of {unit}: {ratios}", flush=True)


def hooked(rounds: int) -> None:
    """`HookedRotary` beside the function that it stands in for: Llama's, heads [1, 32 and 8, 1024, 128]."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as definition

    class Function(nn.Module):
        """As the hub's kernels make it of a function."""

        def forward(self, *args, **kwargs):
            return definition(*args, **kwargs)

    ours = Function()
    ours.forward = MethodType(phasor.patching.HookedRotary.forward, ours)
    rotation = phasor.Rotation.at(phasor.RotarySpec(head_dim=128), torch.arange(1024))
    for dtype in DTYPES:
        cos, sin = (torch.cat((t, t), -1)[None].to(dtype) for t in (rotation.cos, rotation.sin))
        for learns in (True, False):
            heads = [torch.randn(1, n, 1024, 128).to(dtype).requires_grad_(learns) for n in (32, 8)]
            gradients = [torch.randn_like(x) for x in heads]

            def run(function, heads=heads, gradients=gradients, tables=(cos, sin), learns=learns):
                results = function(*heads, *tables)
                return torch.autograd.grad(results, heads, gradients) if learns else results

            what = f"{dtype}, {'training' if learns else 'inference'}"
            show(what, {"the model's own": partial(run, definition), "phasor": partial(run, ours)}, "phasor", rounds)


def sharded(rounds: int) -> None:
    """What rank 0 of N pays (torch's fake group: a rotation of DTensors sends nothing), and the same by hand."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for ranks in (2, 4, 8):
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        mesh = init_device_mesh("cpu", (ranks,))
        for tokens, dtype in ((tokens, dtype) for tokens in (4096, 32768) for dtype in DTYPES):
            pair = [torch.randn(1, heads, tokens, 128, dtype=dtype) for heads in (32, 8)]
            rotation = phasor.Rotation.at(phasor.RotarySpec(head_dim=128), torch.arange(tokens))
            own = {dim: [x.tensor_split(ranks, dim)[0].contiguous() for x in pair] for dim in (1, 2)}
            parts = {
                dim: [DTensor.from_local(x, mesh, [Shard(dim)], run_check=False) for x in local]
                for dim, local in own.items()
            }
            calls = {
                "whole": partial(phasor.apply_rotary_qk, *pair, rotation),
                "sequence": partial(phasor.apply_rotary_qk, *parts[2], rotation),
                "heads": partial(phasor.apply_rotary_qk, *parts[1], rotation),
                "by hand": partial(phasor.apply_rotary_qk, *own[2], rotation.slice(0, tokens // ranks)),
            }
            show(f"{ranks} ranks, {tokens} tokens, {dtype}", calls, "whole", rounds)
        dist.destroy_process_group()


def moves(rounds: int) -> None:
    """32,768 keys of 8 heads of 128 channels, and the one rotary head of 64 of latent attention, in place."""
    tokens = 32_768
    old = torch.arange(tokens)
    blocks, anywhere = torch.cat((old[20_000:], old[:20_000])), torch.randperm(tokens)
    plain, latent = phasor.RotarySpec(head_dim=128, base=5e5), phasor.RotarySpec(head_dim=64, interleaved=True)
    for dtype in DTYPES:
        for heads, spec in ((8, plain), (1, latent)):
            k = torch.randn(1, heads, tokens, spec.head_dim).to(dtype)
            calls: dict[str, Any] = {
                "copy_": partial(torch.empty_like(k).copy_, k),
                "uniform": partial(phasor.shift, k, -1000, spec, out=k),
                "two blocks": partial(phasor.reposition, k, old, blocks, spec, out=k),
                "anywhere": partial(phasor.reposition, k, old, anywhere, spec, out=k),
                "another spec": partial(phasor.caches.change_spec, k, old, spec, spec.replace(base=1e6), out=k),
            }
            show(f"{dtype}, heads {heads} x {spec.head_dim}", calls, "copy_", rounds)


@torch.no_grad()
def decode(rounds: int) -> None:
    """A token of a patched Llama of 8 layers, hidden 512, 8 heads of 64, behind 512 and 2,048 others."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from timing.llama import llama
    from transformers import DynamicCache

    from cache_argument import given

    model = llama(quick=False)
    phasor.patch(model)
    for tokens in (512, 2048):
        ids = torch.randint(2, 1024, (1, tokens))
        caches = {
            "DynamicCache": DynamicCache(config=model.config),
            "growing": phasor.caches.LedgerCache(model),
            "sinks, one at a time": phasor.caches.LedgerCache(model, sinks=4, window=tokens - 3),
            "sinks, 16 at a time": phasor.caches.LedgerCache(model, sinks=4, window=tokens - 3, block=16),
        }
        for cache in caches.values():
            model(ids, **given(cache))
        calls = {name: partial(model, ids[:, :1], **given(cache)) for name, cache in caches.items()}
        show(f"a token behind {tokens}", calls, "DynamicCache", 5 * rounds)


@torch.no_grad()
def encodings(rounds: int) -> None:
    """Attention of 8 heads of 64 over 4,096 tokens with each encoding of the lab, beside SDPA without any (float32)."""
    from phasor_lab.lab import ENCODINGS, ModelConfig

    config, at = ModelConfig(layers=4, dim=512, heads=8, length=4096), torch.arange(4096)
    q, k, v = (torch.randn(1, 8, 4096, 64) for _ in range(3))
    hidden = torch.randn(1, 4096, 512)
    calls: dict[str, Any] = {"SDPA": partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)}
    bias = phasor.encodings.ALiBi(8).bias(q, k, at, at, 1.0).masked_fill(at > at[:, None], -torch.inf)[None]
    calls["a bias that is there"] = partial(calls["SDPA"].func, q, k, v, bias)
    for name, make in ENCODINGS.items():
        made = make(config)
        encoding = made if isinstance(made, phasor.encodings.Encoding) else made[0]
        scale = 0.125 if name == "t5" else None
        calls[name] = partial(phasor.attention, q, k, v, encoding, q_positions=at, hidden=hidden, scale=scale)
    for name, call in calls.items():  # in pairs, as some take many times as long as others
        show(name, {"SDPA": calls["SDPA"], name: call}, "SDPA", rounds, warm_up=1)


RACES = {one.__name__: one for one in (hooked, sharded, moves, decode, encodings)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("race", choices=RACES)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    RACES[options.race](options.rounds)
