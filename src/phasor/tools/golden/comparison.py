"""One tensor of another implementation against the golden one: where it is off, and by how much.

A tolerance allows for float32 angles, which are off by more the farther out, and for other roundings in half precision.
Legitimate rounding differences affect a whole channel pair at every position and head: frequencies are a few float32
steps apart, or tables or products are rounded. So each way of forming tables and of rounding is tried on whole pairs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...rotary.kernels import reference
from ...rotary.rotation import Rotation
from ...support.findings import Difference
from .case import RotationCase, radians, right, spread, tables_at
from .layer_kinds import Kind
from .tensors import PER_RADIAN, WIDEST, channels
from .vectors import Tolerance, Vectors

HALF_STEP = 2.0**-8  # of bfloat16 values up to 1: half of it is a rounding
STEPS = 8  # of float32 by which a frequency may be off: scalings take some operations
CLOSE = 1e-6  # float32 values that were formed by the same arithmetic, on whichever machine
HALVES = (torch.bfloat16, torch.float16)
FEW = 0.01  # of all values
SINGLE = 4  # values at most; more of them are an arithmetic that is not known here
MOST = 0.97  # of all values must be right for a tensor to be taken for one of the other arithmetic
TELLING = 40_000.0  # radians: beyond, float32 angles are so far off that a value says nothing about its cause


@dataclass(frozen=True)
class Comparison:
    """The golden tensor (``expected``) and the other one (``got``), in float64 and one shape.

    - ``swapped``: the other had heads and tokens in the other order. ``dtype`` is that of the golden tensor,
      ``other_dtype`` that of the other.
    - ``angles``: radians of each element (0 where nothing rotates). ``columns [2, P]``: the channels that hold the
      results of each pair. ``sibling``: the other's sin tensor if this is cos, and vice versa.
    - ``unrounded``: what the expected values in half precision were rounded from, where that is known. ``doubtful``:
      where they come from a cos or sin so near the middle of two values of half precision that it may round either way.
    - ``case``: the right way to rotate the ``inputs``, None for what does not rotate.
    - ``unexplained``: where a value inside the tolerance is wrong all the same.
    """

    name: str
    short: str
    expected: Tensor
    got: Tensor
    swapped: bool
    angles: Tensor
    columns: Tensor | None
    tolerance: Tolerance
    dtype: torch.dtype
    other_dtype: torch.dtype
    unrounded: Tensor | None = None
    doubtful: Tensor | None = None
    sibling: Tensor | None = None
    case: RotationCase | None = None
    inputs: Tensor | None = None
    unexplained: Tensor = field(default_factory=lambda: torch.tensor(False))

    @cached_property
    def beyond(self) -> Tensor:
        """Where it is farther off than the tolerance allows."""
        t = self.tolerance
        allowed = t.absolute + t.relative * self.expected.abs() + t.per_radian * self.angles
        return ~((self.got - self.expected).abs() <= allowed)  # not >, which is false for nan

    @cached_property
    def wrong(self) -> Tensor:
        return self.beyond | self.unexplained

    @property
    def right(self) -> bool:
        return not self.swapped and not bool(self.wrong.any())

    @property
    def telling(self) -> Tensor:
        return (self.angles < TELLING).expand(self.expected.shape)

    def allowed(self, candidate: Tensor, angles: Tensor) -> Tensor:
        """How far ``got`` may be from this candidate, whichever way these angles of its were formed, and with cos, sin
        and products rounded to half precision in tensors of half precision."""
        t, out = self.tolerance, self.short.endswith("_out")
        inside = WIDEST * HALF_STEP if out and self.dtype == torch.bfloat16 else 0.0
        per_radian = PER_RADIAN * 2 * (WIDEST if out else 1.0)
        return max(t.absolute, inside) + t.relative * candidate.abs() + per_radian * angles

    def first(self) -> tuple[int, ...] | None:
        """The index of the first wrong element, tokens before heads; None if there is none."""
        wrong = self.wrong
        if not wrong.any():
            return None
        if wrong.ndim == 4:
            batch, token, head, channel = wrong.transpose(1, 2).nonzero()[0].tolist()
            return batch, head, token, channel
        return tuple(wrong.nonzero()[0].tolist())


def compare(vectors: Vectors, kind: Kind, name: str, short: str, other: dict[str, Tensor]) -> Comparison:
    """What ``other`` has under ``name``, compared with the golden tensor ``short`` of that kind."""
    comparison = _by_tolerance(vectors, kind, name, short, other)
    return replace(comparison, unexplained=_unexplained(comparison))


def _by_tolerance(vectors: Vectors, kind: Kind, name: str, short: str, other: dict[str, Tensor]) -> Comparison:
    golden = f"{kind.name}.{short}"
    expected = vectors.tensors[golden]
    got, swapped = fitted(name, other[name], expected)
    plain: dict[str, Any] = {
        "name": name, "short": short, "expected": expected.double(), "got": got, "swapped": swapped,
        "dtype": expected.dtype, "other_dtype": other[name].dtype, "tolerance": vectors.tolerance(golden),
    }  # fmt: skip
    what = short.rpartition(".")[2]
    if kind.spec is None or not (what.endswith("_out") or what.split("_")[0] in ("cos", "sin")):
        return Comparison(angles=torch.zeros((), dtype=torch.float64), columns=None, **plain)
    case, half = right(vectors, kind), expected.dtype == torch.bfloat16
    where = channels(case.spec) if what.endswith("_out") else {}
    columns = None if not where or case.spec.second else torch.tensor([where["first_written"], where["second_written"]])
    if not where:
        plain["sibling"] = _sibling(vectors, name, other, expected)
    return Comparison(
        angles=spread(case, what),
        columns=columns,
        case=case if not where or columns is not None else None,
        inputs=vectors.tensors.get(f"{kind.name}.{what.removesuffix('_out')}_in"),
        unrounded=_unrounded(vectors, golden) if half else None,
        doubtful=_doubtful(vectors, golden, columns, radians(case).abs()) if half and columns is not None else None,
        **plain,
    )


def fitted(name: str, got: Tensor, expected: Tensor) -> tuple[Tensor, bool]:
    """``got`` as float64 in the shape of ``expected``, and whether its heads and tokens had to be swapped.

    A missing batch axis is added, and cos and sin given for every channel are cut to one per pair.
    """
    wanted = tuple(expected.shape)
    x = got.double()
    if x.shape != wanted and math.prod(x.shape[: x.ndim - len(wanted)]) == 1 and x.ndim > len(wanted):
        x = x.reshape(x.shape[x.ndim - len(wanted) :])
    if x.ndim == len(wanted) - 1 and wanted[0] == 1:
        x = x.unsqueeze(0)
    pairwise = ".cos" in name or ".sin" in name
    if pairwise and x.ndim:
        x = _per_pair(name, x, wanted)
    if x.shape == wanted:
        return x, False
    if len(wanted) == 4 and x.ndim == 4 and x.transpose(1, 2).shape == wanted:
        return x.transpose(1, 2), True
    hint = ""
    if (pairwise or name.endswith("inv_freq")) and x.ndim == len(wanted) and x.shape[:-1] == wanted[:-1]:
        hint = f"; as if {2 * x.shape[-1]} channels rotated, and {2 * wanted[-1]} must"
    raise ValueError(f"other: {name} must have the shape {list(wanted)}, got {list(got.shape)}{hint}")


def _per_pair(name: str, x: Tensor, wanted: tuple[int, ...]) -> Tensor:
    pairs = wanted[-1]
    if x.shape[-1] != 2 * pairs:
        return x
    for a, b in ((x[..., :pairs], x[..., pairs:]), (x[..., 0::2], x[..., 1::2])):
        if torch.equal(a.nan_to_num(), b.nan_to_num()):
            return a
    raise ValueError(f"other: {name} must have one value per pair, {pairs}, or each of them twice, got {2 * pairs}")


def _sibling(vectors: Vectors, name: str, other: dict[str, Tensor], expected: Tensor) -> Tensor | None:
    head, _, what = name.rpartition(".")
    sibling = f"{head}.{what.replace('cos', 'sin') if 'cos' in what else what.replace('sin', 'cos')}"
    return fitted(sibling, other[sibling], expected)[0] if sibling in other and sibling in vectors.tensors else None


def _unrounded(vectors: Vectors, golden: str) -> Tensor | None:
    """The tensor before it was rounded once; None where a model's code rounds every product."""
    spec = vectors.kind_of(golden).spec
    assert spec is not None
    kind, mode, _, what = golden.rsplit(".", 3)
    if mode == "exact" or not what.endswith("_out"):
        return vectors.tensors[f"{kind}.{mode}.float32.{what}"].double()
    if spec.tables == "activation" or spec.second is not None:
        return None
    cos, sin = (vectors.tensors[f"{kind}.model.bfloat16.{name}"].double() for name in ("cos", "sin"))
    target = what.removesuffix("_out")
    rotation = Rotation(cos=cos, sin=sin, layout=spec.layout)
    rotation = rotation.transpose() if target == "output" else rotation
    x = vectors.tensors[f"{kind}.{target}_in"].double()
    return reference.rotated(x, rotation.cos, rotation.sin, rotation.layout)


def _doubtful(vectors: Vectors, golden: str, columns: Tensor, angles: Tensor) -> Tensor | None:
    """The channels of results whose cos or sin another machine may round to the next value of half precision."""
    kind, mode, _, _ = golden.rsplit(".", 3)
    if mode == "exact":
        return None
    of_tables = (f"{kind}.model.float32.cos", f"{kind}.model.float32.sin")
    tables = [table for name, table in vectors.tensors.items() if name.startswith(of_tables)]
    step = 2.0**-22 * angles.clamp(max=1.0).float()
    between = torch.stack([(t - step).bfloat16() != (t + step).bfloat16() for t in tables]).any(0)
    return _of_channels(between, columns, vectors.tensors[golden].shape)


def _of_channels(pairs: Tensor, columns: Tensor, shape: torch.Size) -> Tensor:
    """What is true of pairs ``[S, P]``, for both channels of each, in a tensor of this shape."""
    result = torch.zeros(shape, dtype=torch.bool)
    for side in columns:
        result[..., side] = pairs
    return result


def _unexplained(c: Comparison) -> Tensor:
    """Where a value is inside the tolerance, and does not agree among values that do."""
    if c.dtype != torch.bfloat16 and c.tolerance.relative > CLOSE:  # somebody allows for half precision
        return torch.zeros_like(c.beyond)
    loose = ~agrees(c) & ~c.beyond
    if not loose.any():
        return loose
    if c.case is None:
        return loose & (int((loose | c.beyond).sum()) <= max(1, FEW * loose.numel()))
    if int((c.got.to(c.dtype).double() != c.expected).sum()) == 1:  # all others to the bit
        return loose
    if float(loose.double().mean()) > 1 / 2:
        return torch.zeros_like(loose)
    models_own = c.short.startswith("model.")
    odd = loose & _unlike_any_rounding(c, inside=models_own)
    if int((odd | c.beyond).sum()) <= SINGLE:
        return odd
    rounds_inside = not models_own and not (loose & _unlike_any_rounding(c, inside=True)).any()
    return odd & rounds_inside


def agrees(c: Comparison) -> Tensor:
    """Where a value is the golden one, but for the last bits."""
    apart, size = (c.got - c.expected).abs(), c.expected.abs()
    if not c.dtype.is_floating_point or c.angles.ndim == 0:
        return apart <= CLOSE * size
    reach = c.angles.clamp(max=1.0)  # a small angle is known as well as its frequency
    close = (WIDEST if c.short.endswith("_out") else 1.0) * CLOSE * (size + reach) + 1e-9
    near = apart <= close
    if c.unrounded is not None:
        near = near | (
            (c.got - c.unrounded).abs() <= step(torch.maximum(size, c.got.abs()), torch.bfloat16) / 2 + close
        )
    return near if c.doubtful is None else near | c.doubtful


def _unlike_any_rounding(c: Comparison, *, inside: bool) -> Tensor:
    """Where a value is none that sound code gives, by the way that explains most of its pair.

    ``inside``: code may round cos and sin to half precision, and every product.
    """
    assert c.case is not None
    fewest: Tensor | None = None
    odd: tuple[Tensor, ...] = ()
    for off in _ways(c, c.case, inside):
        count = torch.stack([o.flatten(0, -2).sum(0) for o in off]).sum(0)  # [P]: a pair has one frequency everywhere
        if fewest is None:
            fewest, odd = count, off
            continue
        better = count < fewest
        fewest = torch.minimum(count, fewest)
        odd = tuple(torch.where(better, new, old) for new, old in zip(off, odd, strict=True))
    if c.columns is None:
        return odd[0]
    unlike = torch.zeros(c.got.shape, dtype=torch.bool)
    for side, columns in zip(odd, c.columns, strict=True):
        unlike[..., columns] = side
    return unlike


def _ways(c: Comparison, case: RotationCase, inside: bool) -> Iterator[tuple[Tensor, ...]]:
    """Where the values of each pair are not what one way gives: both channels, or cos and sin where both were given."""
    halves = {c.other_dtype} & set(HALVES) or ({c.dtype} & set(HALVES))
    kept = [None] if c.other_dtype not in HALVES else []
    what = c.short.rpartition(".")[2]
    for angles in _ways_to_form(case, what.endswith("second")):
        reach = angles.abs().clamp(max=1.0)
        cos, sin = tables_at(case, angles)
        if not what.endswith("_out"):
            this, other = (cos, sin) if what.startswith("cos") else (sin, cos)
            for half in (*kept, *halves):
                pairs = ((c.got, this),) if c.sibling is None else ((c.got, this), (c.sibling, other))
                yield tuple(_off(got, value, reach, half) for got, value in pairs)
            continue
        assert c.columns is not None and c.inputs is not None
        got = [c.got[..., side] for side in c.columns]
        x = case.spec.layout.split(c.inputs.double())
        sin = -sin if what.startswith("output") else sin
        for half in (*kept, *halves):
            for value in _rotated(x, cos, sin, half if inside else None):
                yield tuple(_off(g, y, WIDEST * reach, half, WIDEST) for g, y in zip(got, value, strict=True))


def _ways_to_form(case: RotationCase, second: bool) -> Iterator[Tensor]:
    """The angles ``[S, P]``: exact ones; those of float32 frequencies, positions and products rounded or not."""
    yield radians(case, second=second)
    own = case.spec.inv_freq(case.seq_len).float()
    coarse = case.replace(positions=case.positions.float().double())
    whole = not torch.equal(coarse.positions, case.positions.double())
    for steps in sorted(range(-STEPS, STEPS + 1), key=abs):
        moved = torch.where(own > 0, (own.view(torch.int32) + steps).view(torch.float32), own).double()
        yield radians(coarse.replace(frequencies=moved), second=second).float().double()
        finer = radians(case.replace(frequencies=moved), second=second)
        yield finer
        if whole:
            yield finer.float().double()


def _rotated(
    x: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor, inside: torch.dtype | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Both members before the last rounding: by these tables; where code may round ``inside``, as models' own does, by
    rounded ones; with every product rounded too.
    """
    a, b = x
    yield a * cos - b * sin, b * cos + a * sin
    if inside is not None:
        cos, sin = cos.to(inside).double(), sin.to(inside).double()
        yield a * cos - b * sin, b * cos + a * sin
        p, q, r, s = ((u * t).to(inside).double() for u, t in ((a, cos), (b, sin), (b, cos), (a, sin)))
        yield p - q, r + s


def _off(got: Tensor, value: Tensor, reach: Tensor, half: torch.dtype | None, scale: float = 1.0) -> Tensor:
    """Where ``got`` is not ``value``, rounded."""
    allowed = CLOSE * (scale * value.abs() + reach) + 1e-9
    return (got - value).abs() > (
        allowed if half is None else allowed + step(torch.maximum(value.abs(), got.abs()), half) / 2
    )


def step(size: Tensor, half: torch.dtype) -> Tensor:
    """The distance between two values of half precision around this size."""
    least = torch.finfo(half).smallest_normal
    return 2.0 ** size.clamp(min=least).log2().floor() * torch.finfo(half).eps


def in_other_angles(vectors: Vectors, kind: Kind, c: Comparison, other: dict[str, Tensor]) -> Comparison | None:
    """The comparison with the other arithmetic (exact angles, or the model's own), if that is what the tensor holds."""
    short = _counterpart(c.short)
    if c.swapped or short is None or f"{kind.name}.{short}" not in vectors.tensors:
        return None
    counterpart = compare(vectors, kind, c.name, short, other)
    telling = replace(c, got=counterpart.expected).beyond | replace(counterpart, got=c.expected).beyond
    if not telling.any():
        return None
    closer = int(agrees(counterpart).sum()) > int(agrees(c).sum())
    closer = closer and float(counterpart.wrong.double().mean()) <= 1 - MOST
    # of what tells the two apart, what is wrong as named
    share = float(c.wrong[telling].double().mean())
    if (closer and (c.wrong.any() or (c.short.startswith("model.") and counterpart.right))) or (
        counterpart.right and (share >= 0.5 or int(c.wrong.sum()) > SINGLE)
    ):
        return replace(counterpart, short=c.short)
    return None


def _counterpart(short: str) -> str | None:
    """The name of the same tensor in the other arithmetic."""
    mode, _, rest = short.partition(".")
    if mode not in ("exact", "model") or rest == "inv_freq":
        return None
    if mode == "model":
        return f"exact.{rest if rest.endswith('_out') else rest.partition('.')[2]}"
    return f"model.{rest}" if rest.endswith("_out") else f"model.float32.{rest}"


def first_difference(vectors: Vectors, kind: Kind, c: Comparison) -> Difference | None:
    """Where the first wrong value is, and how far it is off."""
    index = c.first()
    if index is None:
        return None
    expected, got = float(c.expected[index]), float(c.got[index])
    place: dict[str, int | tuple[float, ...]] = {}
    what = c.short.rpartition(".")[2]
    if what in ("inv_freq", "log_scale"):
        place["pair"] = index[0]
    elif what == "positions":
        place["token"] = index[-1]
    elif index:
        positions = vectors.tensors[f"{kind.name}.positions"]
        token = index[-2] if len(index) > 1 and what != "temperature" else index[-1]
        place["position"] = tuple(positions.reshape(-1, positions.shape[-1])[:, token].tolist())
    if len(index) == 4:
        place |= {"head": index[1], "channel": index[3]}
    elif what.split("_")[0] in ("cos", "sin"):
        place["pair"] = index[-1]
    steps = ulps(expected, got, c.dtype)
    return Difference(size=abs(got - expected), steps=steps, expected=expected, got=got, **place)  # type: ignore[arg-type]


def ulps(expected: float, got: float, dtype: torch.dtype) -> float:
    """The difference in units in the last place of ``expected`` in its dtype.

    >>> ulps(1.0, 1.0 + 2**-22, torch.float32)
    2.0
    """
    if expected == 0 or not dtype.is_floating_point:
        return abs(got - expected) / (torch.finfo(dtype).tiny if dtype.is_floating_point else 1)
    step: Any = torch.finfo(dtype).eps * 2.0 ** torch.tensor(expected, dtype=torch.float64).abs().log2().floor().item()
    return abs(got - expected) / step
