"""A FLUX and a Wan block of real width, patched over unpatched: the whole block, and its rotation alone.

Run as ``python benchmarks/pictures.py`` where diffusers is installed. Both sides take turns, and what is counted is
time of the processor, in which no other program runs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import diffusers
import torch

import phasor
from phasor.eye import observe
from phasor.eye.arithmetic import halved
from phasor.eye.call import call_of
from phasor.tools.patch.functions import holders
from phasor.tools.patch.observed import _codes, _Judge

TOKENS = 1024
SEEN = (2, 4, 4)  # frames, rows and columns on which a block is observed: what turns is the same


def flux() -> tuple[Any, Callable[[int, int, int], dict[str, Any]]]:
    """Its single block; half of the tokens are words."""
    model = diffusers.FluxTransformer2DModel(num_layers=0, num_single_layers=1)

    def inputs(frames: int, rows: int, columns: int) -> dict[str, Any]:
        at = torch.cartesian_prod(torch.arange(frames * rows), torch.arange(columns)).float()
        return {
            "hidden_states": torch.randn(1, len(at), 64), "encoder_hidden_states": torch.randn(1, len(at), 4096),
            "pooled_projections": torch.randn(1, 768), "timestep": torch.ones(1),
            "img_ids": torch.nn.functional.pad(at, (1, 0)), "txt_ids": torch.zeros(len(at), 3),
        }  # fmt: skip

    return model, inputs


def wan() -> tuple[Any, Callable[[int, int, int], dict[str, Any]]]:
    """That of the model with 1.3 billion weights."""
    model = diffusers.WanTransformer3DModel(num_attention_heads=12, ffn_dim=8960, num_layers=1)

    def inputs(frames: int, rows: int, columns: int) -> dict[str, Any]:
        return {
            "hidden_states": torch.randn(1, 16, frames, 2 * rows, 2 * columns), "timestep": torch.ones(1),
            "encoder_hidden_states": torch.randn(1, 64, 4096),
        }  # fmt: skip

    return model, inputs


BLOCKS = {"FLUX": (flux, (2, 16, 16)), "Wan": (wan, (4, 16, 16))}


def taking_turns(ways: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Milliseconds of the processor that each way takes, in the middle of all rounds."""
    times: list[list[float]] = [[] for _ in ways]
    for i in range(rounds + 1):
        for way, own in zip(ways, times, strict=True):
            start = time.process_time()
            way()
            own += [1e3 * (time.process_time() - start)] if i else []  # the first round is no measure
    return [statistics.median(own) for own in times]


def rotations(model: Any, inputs: dict[str, Any], few: dict[str, Any]) -> list[tuple[Callable, Callable]]:
    """What rotates, on the arguments that it is given: the model's own function, and what `patch` puts there."""
    seen = observe(model, few)
    sides = [(site.where, side) for site in seen.turning for side in site.sides if side.turns]
    judge = _Judge(seen, holders(call_of(model, few), {code for _, side in sides for code in _codes(side)}), "auto")
    replaced = [key for where, side in sides for key, row in judge.rows(where, side) if row.replaced]
    found = []
    for holder in holders(call_of(model, inputs), {holder.code for holder in replaced}):
        given, function = next(way for old, way in judge.ways.items() if old.like(holder))
        ours = given.stand_in(function, holder.function, holder.kind == "method")
        found += [(lambda f=f, c=call: f(**c.arguments)) for call in holder.calls for f in (holder.function, ours)]
    return list(zip(found[::2], found[1::2], strict=True))


def measured(name: str, dtype: torch.dtype, rounds: int) -> str:
    make, grid = BLOCKS[name]
    torch.manual_seed(0)
    model, inputs = make()
    model, few, many = model.eval(), inputs(*SEEN), inputs(*grid)
    turning = rotations(model, many, few)
    if dtype == torch.bfloat16:
        for part in model.parameters():
            part.data = part.data.to(dtype)
        few, many = (halved(given) for given in (few, many))
        turning = rotations(model, many, few)

    def patched() -> None:
        model(**many)

    with torch.no_grad():
        own, ours = (sum(taking_turns([a, b], 10 * rounds)[i] for a, b in turning) for i in (0, 1))
        block, after = [], []
        for _ in range(rounds):
            block += taking_turns([patched], 1)
            phasor.patch(model, inputs=few)
            after += taking_turns([patched], 1)
            phasor.unpatch(model)
    ratio = statistics.median(b / a for a, b in zip(block, after, strict=True))
    return (
        f"| {name} | {str(dtype).removeprefix('torch.')} | {statistics.median(block):.0f} | {ratio:.3f} | {own:.1f} | "
        f"{ours:.1f} | {100 * (1 - ours / own):.0f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"| block, {TOKENS} tokens | dtype | ms | patched over unpatched | its rotation, ms | phasor's, ms | removed |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in BLOCKS:
        for dtype in (torch.float32, torch.bfloat16):
            print(measured(name, dtype, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
