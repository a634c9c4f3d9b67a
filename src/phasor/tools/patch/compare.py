"""A model's rotary modules and phasor, side by side at the same positions: which tables agree."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.spec import RotarySpec
from .agreement import NONE, Agreement, worst
from .tables import Form, Tables, trained

NEAR_AND_FAR = (*range(8), 100, 1000, 4095, 32_767, 131_071)

Found = tuple[Any, Agreement]  # what agrees best (None if nothing could be compared), and how well


def positions_for(spec: RotarySpec, device: torch.device) -> Iterator[Tensor]:
    """``[axes, 1, S]``: all of ``NEAR_AND_FAR``; those inside its length first for a spec that depends on length.

    Beyond it, what a module with dynamic NTK does depends on its earlier calls: that is not compared.
    """
    near_far = torch.tensor(NEAR_AND_FAR, device=device)
    if spec.length_dependent:
        assert spec.scaling is not None and spec.scaling.trained_length is not None
        yield near_far[near_far < spec.scaling.trained_length].expand(spec.axes.count, 1, -1)
        if not spec.scaling.two_regimes:
            return
    if spec.coordinates == "real":
        near_far = near_far / near_far.numel() / 7
    yield torch.stack([near_far.roll(axis) for axis in range(spec.axes.count)]).unsqueeze(1)


def shaped(spec: RotarySpec, positions: Tensor) -> list[tuple[Tensor, bool]]:
    """The shapes in which modules take positions, and whether the coordinates come last."""
    if spec.axes.count == 1:
        return [(positions[0], False), (positions[0, 0], False)]
    last = positions.movedim(0, -1)
    return [(positions, False), (last, True), (last[0], True)]


def compare_tables(
    module: nn.Module, layer_type: str | None, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> Found:
    """The `Tables` out of ``specs`` that agree best with what the module itself returns."""
    return best_of(_tables_compared(module, layer_type, specs, dtypes))


def best_of(candidates: Iterable[Found]) -> Found:
    """The one that agrees best; after one that agrees bit for bit no other is looked at."""
    best: Found = (None, NONE)
    for found in candidates:
        if found[1].steps < best[1].steps:
            best = found
        if found[1].equal:
            break
    return best


def _tables_compared(
    module: nn.Module, layer_type: str | None, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> Iterator[Found]:
    for spec in specs:
        device = next((b.device for b in module.buffers()), torch.device("cpu"))
        log_scale = trained(module, spec)
        batches = [shaped(spec, positions) for positions in positions_for(spec, device)]
        for takes in zip(*batches, strict=True):
            theirs = _theirs(module, layer_type, [p for p, _ in takes], dtypes)
            for tables in _forms(spec, theirs, takes[0][1]):
                yield tables, worst(Agreement.of(t, tables.at(x, p, log_scale)) for x, p, t in theirs)


def _theirs(
    module: nn.Module, layer_type: str | None, positions: Sequence[Tensor], dtypes: Sequence[torch.dtype]
) -> list[tuple[Tensor, Tensor, Any]]:
    """``(x, positions, result)`` of the module, as far as it takes positions of this shape."""
    more = {} if layer_type is None else {"layer_type": layer_type}
    done = []
    for dtype in dtypes:
        for p in positions:
            x = torch.zeros(1, p.shape[-1], 1, dtype=dtype, device=p.device)
            try:
                done.append((x, p, module.forward(x, p, **more)))
            except Exception:
                return []
    return done


def _forms(spec: RotarySpec, theirs: list[tuple[Tensor, Tensor, Any]], last: bool) -> Iterator[Tables]:
    if not theirs:
        return
    _, positions, result = theirs[0]
    if isinstance(result, Tensor) and result.is_complex():
        yield Tables(spec, "complex", False, last)
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor):
        rounded = all(r[0].dtype == x.dtype for x, _, r in theirs)
        forms: list[Form] = ["half"] if result[0].shape[-1] == spec.pairs else ["doubled", "repeated"]
        if spec.blocks > 1:
            forms.append("blocks")
        led = result[0].ndim - 1 > positions.ndim - last
        yield from (Tables(spec, form, rounded, last, led) for form in forms)
