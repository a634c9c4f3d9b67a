"""Blocks of real width of FLUX and Wan, patched over unpatched; and their rotations alone, with one of complex tables.

    python benchmarks/pictures.py [--rounds 5]

Both sides take turns on one thread. What is counted is time of the processor, in which no other program runs.
"""

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import diffusers
import torch
from timing import medians, race

import phasor
from phasor.eye import observe
from phasor.eye.arithmetic import halved
from phasor.eye.call import call_of
from phasor.eye.tiny.picture_call import inputs_of
from phasor.tools.patch.functions import Holder, holders
from phasor.tools.patch.observed import Judge, codes_of

GRID, FEW = (4, 16, 16), (2, 3, 5)  # frames, rows and columns: 1024 tokens; and those on which a block is observed
BLOCKS = {
    "FLUX": ("FluxTransformer2DModel", {"num_layers": 0, "num_single_layers": 1}),
    "Wan 1.3B": ("WanTransformer3DModel", {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 1}),
}
COMPLEX = {
    "AnyFlow 1.3B": ("AnyFlowTransformer3DModel", {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 1}),
    "Z-Image": ("ZImageTransformer2DModel", {"n_layers": 1, "n_refiner_layers": 1}),
}  # complex128 and complex64
Way = Callable[[], Any]


def in_turns(ways: list[Way], rounds: int) -> list[float]:
    """Milliseconds of the processor that each way takes."""
    times = race({str(i): way for i, way in enumerate(ways)}, rounds=rounds, warm_up=1, clock=time.process_time)
    return [1e3 * spent for spent in medians(times).values()]


def replaced(model: Any, few: dict[str, Any]) -> tuple[Judge, list[Holder]]:
    """The functions that rotate and are replaced, and by what."""
    seen = observe(model, few)
    sides = [(site.where, side) for site in seen.turning for side in site.sides if side.turns]
    judge = Judge(seen, holders(call_of(model, few), {code for _, side in sides for code in codes_of(side)}), "auto")
    return judge, [key for where, side in sides for key, row in judge.rows(where, side) if row.replaced]


def rotations(judge: Judge, found: list[Holder], model: Any, many: dict[str, Any]) -> list[list[Way]]:
    """What each call of them does to the arguments that it is given: the model's own function, and phasor's."""
    pairs = []
    for holder in holders(call_of(model, many), {holder.code for holder in found}):
        given, function = next(way for old, way in judge.ways.items() if old.like(holder))
        ours = given.stand_in(function, holder.function, False)
        pairs += [[partial(f, **call.arguments) for f in (holder.function, ours)] for call in holder.calls]
    return pairs


def of_many(name: str, model: Any, few: dict[str, Any]) -> dict[str, Any]:
    """Arguments of 1024 tokens. AnyFlow's are written down: to find them takes more memory than most machines have."""
    if name != "AnyFlow 1.3B":
        return inputs_of(model, model.config, GRID)
    frames, rows, columns = GRID
    times = {which: few[which][:, :1].expand(-1, frames) for which in ("timestep", "r_timestep")}
    return few | times | {"hidden_states": torch.randn(1, frames, 16, 2 * rows, 2 * columns)}


def measured(name: str, rounds: int) -> None:
    what, sizes = (BLOCKS | COMPLEX)[name]
    torch.manual_seed(0)
    model = getattr(diffusers, what)(**sizes).eval()
    few = inputs_of(model, model.config, FEW)
    many = of_many(name, model, few)
    judge, found = replaced(model, few)
    both = [model]
    if name in BLOCKS:
        both.append(copy.deepcopy(model))
        phasor.patch(both[1], inputs=few)
    for dtype in (torch.float32, torch.bfloat16):
        if dtype == torch.bfloat16:
            many = halved(many)
            for part in (part for one in both for part in one.parameters()):
                part.data = part.data.to(dtype)
        pairs = rotations(judge, found, model, many)
        own, ours = (sum(each) for each in zip(*(in_turns(pair, 10 * rounds) for pair in pairs), strict=True))
        line = f"{own:.1f} | {ours:.1f} | {100 * (1 - ours / own):.0f} %"
        whole = in_turns([partial(one, **many) for one in both], rounds) if name in BLOCKS else []
        ratio = f"{whole[0]:.0f} | {whole[1] / whole[0]:.3f}" if whole else "– | –"
        print(f"| {name} | {str(dtype).removeprefix('torch.')} | {ratio} | {line} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| 1024 tokens | dtype | block, ms | patched over unpatched | its rotation, ms | phasor's, ms | removed |")
    print(f"|{7 * '---|'}", flush=True)
    with torch.no_grad():
        for name in BLOCKS | COMPLEX:
            measured(name, arguments.rounds)


if __name__ == "__main__":
    main()
