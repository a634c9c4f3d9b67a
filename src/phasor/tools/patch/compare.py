"""What a module of a model gives beside what phasor gives for the same inputs: tables that it forms or stores."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.spec import RotarySpec
from ...support.findings import Difference
from .tables import (
    Form,
    Numbering,
    SelfNumberedModule,
    StoredTable,
    Tables,
    log_scale_of,
    patch_of,
    stored_table,
)

INCOMPARABLE = Difference(size=float("inf"), steps=float("inf"))  # of another kind, shape or dtype, or no numbers


def difference_of(theirs: Any, ours: Any) -> Difference:
    """The largest difference of two results, tensors or tuples of them, as a number and in steps of their format.

    >>> difference_of(torch.ones(2), torch.ones(2)).size
    0.0
    >>> difference_of(torch.ones(2), torch.ones(2) + 2**-23).close, difference_of(torch.ones(2), torch.zeros(2)).close
    (True, False)
    """
    pairs = list(_tensors(theirs, ours))
    return largest(_of_tensors(a, b) for a, b in pairs) if pairs else INCOMPARABLE


def largest(differences: Iterable[Difference]) -> Difference:
    return max(differences, key=steps_of)


def steps_of(difference: Difference) -> float:
    return float("inf") if difference.steps is None else difference.steps


def _tensors(theirs: Any, ours: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(theirs, tuple | list) and isinstance(ours, tuple | list) and len(theirs) == len(ours):
        for a, b in zip(theirs, ours, strict=True):
            yield from _tensors(a, b)
    else:
        yield theirs, ours


def _of_tensors(a: Any, b: Any) -> Difference:
    if a is None and b is None:
        return Difference(size=0.0, steps=0.0)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return INCOMPARABLE
    size = (a.to(torch.complex128 if a.is_complex() else torch.float64) - b).abs().max().item()
    if size != size:  # not a number
        return INCOMPARABLE
    scale = max(a.abs().max().item(), torch.finfo(a.dtype).tiny)
    return Difference(size=size, steps=size / (scale * torch.finfo(a.dtype).eps))


NEAR_AND_FAR = (*range(8), 100, 1000, 4095, 32_767, 131_071)

Best = tuple[Any, Difference]  # what agrees best (None if nothing could be compared), and how far it is off


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
) -> Best:
    """The `Tables` out of ``specs`` that agree best with what the module itself returns."""
    return best_of(_tables_compared(module, layer_type, specs, dtypes))


def best_of(candidates: Iterable[Best]) -> Best:
    """The one that agrees best; after one that agrees bit for bit no other is looked at."""
    best: Best = (None, INCOMPARABLE)
    for candidate in candidates:
        if steps_of(candidate[1]) < steps_of(best[1]):
            best = candidate
        if candidate[1].exact:
            break
    return best


def _tables_compared(
    module: nn.Module, layer_type: str | None, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> Iterator[Best]:
    for spec in specs:
        device = next((b.device for b in module.buffers()), torch.device("cpu"))
        log_scale = log_scale_of(module, spec)
        batches = [shaped(spec, positions) for positions in positions_for(spec, device)]
        for takes in zip(*batches, strict=True):
            theirs = results_of(module, layer_type, [p for p, _ in takes], dtypes)
            for tables in forms_of(spec, theirs, takes[0][1]):
                yield tables, largest(difference_of(t, tables.at(x, p, log_scale)) for x, p, t in theirs)


def results_of(
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


def forms_of(spec: RotarySpec, theirs: list[tuple[Tensor, Tensor, Any]], last: bool) -> Iterator[Tables]:
    """Those in which what a module returned may lie."""
    if not theirs:
        return
    _, positions, result = theirs[0]
    if isinstance(result, Tensor) and result.is_complex():
        yield Tables(spec, "complex", False, last)
    elif isinstance(result, tuple) and len(result) == 2 and all(isinstance(t, Tensor) for t in result):
        rounded = all(r[0].dtype == x.dtype for x, _, r in theirs)
        forms: list[Form] = ["half"] if result[0].shape[-1] == spec.pairs else ["doubled", "repeated"]
        if spec.blocks > 1:
            forms.append("blocks")
        led = result[0].ndim - 1 > positions.ndim - last
        yield from (Tables(spec, form, rounded, last, led) for form in forms)


LENGTHS = (1, 7, 300)
SIDES = ((1, 1), (4, 6), (7, 3))  # patches


def compare_self_numbered(
    module: nn.Module, numbering: Numbering, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> tuple[Tables | None, Difference]:
    """The `Tables` out of ``specs`` that agree best with what the module itself returns."""
    module.eval()
    candidates = (Tables(spec, "doubled", rounded=True) for spec in specs)
    return best_of((t, largest(_differences(module, SelfNumberedModule(t, numbering), dtypes))) for t in candidates)


def _differences(module: Any, ours: SelfNumberedModule, dtypes: Sequence[torch.dtype]) -> Iterator[Difference]:
    rows, columns = patch = patch_of(module)
    shapes: list[tuple[int, ...]] = [(1, 3, h * rows, w * columns) for h, w in SIDES]
    if ours.numbering == "frames":
        shapes = [(1, n, 8) for n in LENGTHS]
    for dtype in dtypes:
        for shape in shapes:
            x = torch.zeros(shape, dtype=dtype)
            if hasattr(module, "cached_sequence_length"):  # it keeps a table in the dtype of an earlier call
                module.cached_sequence_length = None
            try:
                yield difference_of(module.forward(x), ours.at(x, patch))
            except (RuntimeError, ValueError):  # pairs or axes of another number
                yield INCOMPARABLE


def compare_stored(module: nn.Module, name: str, specs: Sequence[RotarySpec]) -> tuple[StoredTable | None, Difference]:
    """The table out of ``specs`` that agrees best with a module's own, rounded if it is stored so with the weights."""
    own = stored_table(module, name)
    dtype = torch.float32 if own.dtype.itemsize == 2 and name in module._buffers else own.dtype
    fitting = (spec for spec in specs if spec.axes.count == 1 and 2 * spec.pairs == own.shape[-1])
    candidates = (StoredTable(Tables(spec, "half", rounded=False), name, len(own)) for spec in fitting)
    return best_of((table, difference_of(own, table.table().to(dtype))) for table in candidates)
