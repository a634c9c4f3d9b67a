"""One tensor of another implementation against the golden one: where it is off, and by how much."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...rotary.kernels import reference
from ...rotary.rotation import Rotation
from .case import RotationCase, radians, right, spread
from .layer_kinds import Kind
from .tensors import PER_RADIAN, WIDEST, channels
from .vectors import Tolerance, Vectors

HALF_STEP = 2.0**-8  # of bfloat16 values up to 1: half of it is a rounding
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
    - ``unexplained``: where a value inside the tolerance is wrong all the same, for whoever judges to fill in.
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


def ulps(expected: float, got: float, dtype: torch.dtype) -> float:
    """The difference in units in the last place of ``expected`` in its dtype.

    >>> ulps(1.0, 1.0 + 2**-22, torch.float32)
    2.0
    """
    if expected == 0 or not dtype.is_floating_point:
        return abs(got - expected) / (torch.finfo(dtype).tiny if dtype.is_floating_point else 1)
    step: Any = torch.finfo(dtype).eps * 2.0 ** torch.tensor(expected, dtype=torch.float64).abs().log2().floor().item()
    return abs(got - expected) / step
