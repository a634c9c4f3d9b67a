"""What a model of pictures turns its queries and keys into, beside what phasor makes of them by the spec that was read.

Tables and turned heads are taken from the tape of a call. Where each token stands follows from its angles and the spec
alone: whole numbers leave nothing free. Where a grid is stretched, `phasor.positions` says it.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.eye.arithmetic import halved, in_half
from phasor.eye.call import CannotRun, call_of
from phasor.eye.linear import MOVES
from phasor.eye.matrices import axes_of
from phasor.eye.operator import Operator
from phasor.eye.sites import Side, sites_of
from phasor.eye.tape import Tape
from phasor.eye.tiny.picture_call import inputs_of
from phasor.eye.turning import Eye, Learned
from phasor.positions import pictures
from phasor.rotary.tables import Phases

Grid = tuple[int, int, int]
GRIDS: tuple[Grid, ...] = ((2, 3, 5), (3, 4, 6), (2, 2, 7))
OTHER = 0.1  # tables that are so far off are of another rotation
DTYPES = (torch.float32, torch.bfloat16)
# The grids that a model stretches over the crop of its own: rows and columns of that.
CROPPED = {
    "CogVideoXTransformer3DModel": (30, 45), "ConsisIDTransformer3DModel": (30, 45),
    "EasyAnimateTransformer3DModel": (30, 45), "HunyuanDiT2DModel": (32, 32),
}  # fmt: skip


# By which a model divides the frame, the row and the column.
STRETCHED = {"AllegroTransformer3DModel": (2.2, 2.0, 2.0), "Kandinsky6Transformer3DModel": (1.0, 2.0, 2.0)}


class Far(NamedTuple):
    """The largest differences of cos and sin, and of what was turned; 0: the same bits. ``polar``: by `torch.polar`.

    ``halved``: the model's code rounds what has turned to bfloat16 in every dtype, and so were ours.
    """

    tables: float
    turned: float
    polar: bool = False
    halved: bool = False

    @property
    def none(self) -> bool:
        return self.tables == self.turned == 0


@dataclass(frozen=True)
class Beside:
    """One side of an attention."""

    where: str
    dtype: torch.dtype
    grid: Grid
    far: Far


def others(found: Sequence[Beside]) -> bool:
    """Whether anything turns by a rotation that is none of those."""
    return any(one.far.tables > OTHER for one in found)


def in_words(found: Sequence[Beside]) -> str:
    """Whether all have the same bits, and where not, how far they are off.

    >>> in_words([Beside("attn: q", dtype, GRIDS[0], Far(0.0, 0.0)) for dtype in DTYPES])
    'equal'
    """
    said = []
    for dtype in DTYPES:
        mine = [one.far for one in found if one.dtype == dtype]
        largest = {name: max((getattr(far, name) for far in mine), default=0.0) for name in ("tables", "turned")}
        away = ", ".join(f"{name} by {size:.0e}" for name, size in largest.items() if size)
        said += [f"{str(dtype).removeprefix('torch.')}: {away}"] if away else []
    equal = "equal, by torch.polar" if any(one.far.polar for one in found) else "equal"
    equal = f"{equal}, in bfloat16" if any(one.far.halved for one in found) else equal
    if not any(one.dtype == torch.bfloat16 for one in found):
        equal = f"{equal}; no bfloat16 on a CPU"
    return "; ".join(said) or (equal if found else "nothing turned")


def beside(model: Any, name: str, specs: Sequence[RotarySpec]) -> Iterator[Beside]:
    """Every side that turns, on all grids and in all dtypes, beside the spec that is nearest."""
    learned, calls = Learned(), {grid: inputs_of(model, model.config, grid) for grid in GRIDS}
    for dtype in DTYPES:
        for grid, given in calls.items():
            half = dtype == torch.bfloat16
            try:
                with in_half(model) if half else contextlib.nullcontext():
                    tape = call_of(model, halved(given) if half else given).tape()
            except CannotRun:  # some widen what they embed by an autocast that a CPU does not have
                if not half:
                    raise
                continue
            known: Learned | None = learned
            if not any(site.turning for site in sites_of(tape, learned)):  # what is learned on one grid may mislead
                known = None
            eye = Eye(tape, known)
            for site in sites_of(tape, known):
                for side, number in ((site.q, site.attention.q), (site.k, site.attention.k)):
                    for part in _parts(eye, side, number):
                        found = [one for spec in specs for one in _compared(part, side, spec, name, grid, dtype)]
                        far = min(found, default=Far(math.inf, math.inf))
                        yield Beside(f"{site.where}: {side.name}", dtype, grid, far)


def _parts(eye: Eye, side: Side, number: int) -> Iterator[Operator]:
    """What turns of a side: as a whole, or words and picture, which turn before they are put together."""
    if not side.turns or side.operator is None:
        return
    tape, tokens = eye.tape, side.operator.cos.shape[-1]
    while (maker := tape.maker(number)) is not None and maker.name in MOVES and len(maker.inputs) == 1:
        number = maker.inputs[0]
    if maker is None or maker.name != "cat" or tape.values[side.operator.target].numel() >= tape.values[number].numel():
        yield side.operator
        return
    shape = tape.values[number].shape
    axis = next(a for a, size in enumerate(shape) if size == tokens)
    for part in maker.inputs:
        count = tape.values[part].shape[axis]
        seen = eye.seen(part, count) if count else None
        if seen is not None and seen.operator is not None and seen.turns:
            yield seen.operator


def _compared(seen: Operator, side: Side, spec: RotarySpec, name: str, grid: Grid, dtype: torch.dtype) -> Iterator[Far]:
    if seen.channels != spec.head_dim:
        return
    members = [seen] if seen.second is None else [seen, replace(seen, cos=seen.second[0], sin=seen.second[1])]
    several = [one.of_pairs(_pairs(spec), _pairs(spec, written=False)) for one in members]
    if any(one is None for one in several) or len(several) != 1 + (spec.second is not None):
        return
    turns = torch.cat([(one / seen.factor)[0].T for one in several if one is not None], 1)  # [tokens, pairs]
    live = turns.abs().amax(1) > 0  # padding is 0
    places = [positions(turns, spec)]
    if name in CROPPED and spec.coordinates == "real":
        places = [_cropped(places[0], name, grid, spec.axes.count)]
    elif name in STRETCHED and spec.coordinates == "real" and len(turns) == math.prod(grid):
        places = [pictures(grid) / torch.tensor(STRETCHED[name])[:, None]]
    elif spec.coordinates == "real" and not isinstance(side.frequencies, str):
        given = torch.stack(side.frequencies.coordinates).float()  # to all digits, where the tape has them
        places += [given] if given.shape == (spec.axes.count, len(turns)) else []
    x, y = _values(side.tape, seen)
    for at, polar in product(places, (False, True)):
        length = int(at.max()) + 1 if spec.length_dependent else None
        rotation = _rotation(spec, at if len(at) > 1 else at[0], length, dtype, polar)
        own = [torch.complex(rotation.cos.double(), rotation.sin.double())]
        own += [torch.complex(*(t.double() for t in rotation.second))] if rotation.second is not None else []
        tables = float(torch.view_as_real(torch.cat(own, 1) - turns)[live].abs().max())
        for kind in dict.fromkeys((y.dtype, x.dtype, dtype)):
            mine = apply_rotary(x.to(kind), rotation)
            for too in {False, y.dtype != torch.bfloat16 and _is_halved(seen, side.tape)}:
                given = (mine.to(torch.bfloat16) if too else mine).to(y.dtype)
                turned = float((given.double() * seen.factor - y.double())[:, live].abs().max())
                yield Far(tables, turned, polar, too)


def _is_halved(seen: Operator, tape: Tape) -> bool:
    """Whether what turns is rounded to bfloat16 on its way, though it comes in float32."""
    wide = all(tape.values[i].dtype == torch.float32 for i in seen.sources)
    outputs = (i for operation in seen.operations for i in operation.outputs if i is not None)
    return wide and any(tape.values[i].dtype == torch.bfloat16 for i in outputs)


def _rotation(spec: RotarySpec, at: Tensor, length: int | None, dtype: torch.dtype, polar: bool) -> Rotation:
    """That of the spec; ``polar``: cos and sin by `torch.polar`, which rounds some otherwise in the last bit."""
    rotation = Rotation.at(spec, at, length, dtype=dtype)
    if not polar or spec.angles == "exact" or rotation.second is not None:
        return rotation
    angles = Phases(spec, at, length, dtype=dtype).angles()
    table = torch.polar(torch.ones_like(angles), angles)
    wide = torch.float64 if spec.tables == "float64" else torch.float32
    return rotation.replace(cos=table.real.to(wide), sin=table.imag.to(wide))


def _values(tape: Tape, seen: Operator) -> tuple[Tensor, Tensor]:
    """``[heads, tokens, channels]``: before it turns, and after."""
    value, tokens = tape.values[seen.target], seen.cos.shape[-1]
    y = axes_of(value, tokens, transposed=tokens not in value.shape[:-1]).arranged(value)
    before = torch.cat([tape.values[i].flatten() for i in seen.sources])
    return before[(seen.origin[:, 0, :, None] + torch.arange(seen.width)).clamp(min=0)], y


def _pairs(spec: RotarySpec, written: bool = True) -> list[tuple[int, int]]:
    layout = spec.layout.written() if written else spec.layout
    channels = layout.channels()
    return [(channels[i], channels[spec.pairs + i]) for i in range(spec.pairs)]


def positions(turns: Tensor, spec: RotarySpec) -> Tensor:
    """``[axes, tokens]``: where tokens stand that turn so, by each axis alone; slow pairs say it first, fast ones
    exactly."""
    both = [spec] if spec.second is None else [spec, spec.replace(axes=spec.second, second=None)]
    angles, steps = torch.atan2(turns.imag, turns.real), torch.cat([one.inv_freq() for one in both])
    axis = torch.tensor([a for one in both for a in one.axes.axis_of_pair(spec.pairs)])
    at = torch.zeros(spec.axes.count, len(turns), dtype=torch.float64)
    for a in range(spec.axes.count):
        mine = (axis == a).nonzero().flatten()
        for pair in mine[steps[mine].abs().argsort()].tolist():
            rest = angles[:, pair] - at[a] * steps[pair]
            at[a] += torch.remainder(rest + math.pi, 2 * math.pi).sub(math.pi) / steps[pair]
    return at.float() if spec.coordinates == "real" else at.round().long()


def _cropped(at: Tensor, name: str, grid: Grid, axes: int) -> Tensor:
    """The exact positions of a picture behind words that stand."""
    own = pictures(grid[-axes:], grid="cropped", base=CROPPED[name])[-axes:].to(at.dtype)
    before = at.shape[1] - own.shape[1]
    return torch.cat((at[:, :before], own), 1)
