"""One tensor of another implementation against the golden one: where it is off, and by how much.

A tensor is right where it is within its tolerance, which follows from its number format: roundings of half precision,
and float32 angles, which are off by more the farther out.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...support.findings import Difference
from .case import inputs_of, right, spread
from .layer_kinds import Kind
from .tensors import GRADIENT, PER_RADIAN, WIDEST
from .vectors import Tolerance, Vectors

HALF_STEP = 2.0**-8  # of bfloat16 values up to 1: half of it is a rounding
SINGLE = 4  # values at most; more of them are another arithmetic, where that gives them all
TELLING = 40_000.0  # radians: beyond, float32 angles are so far off that a value says nothing about its cause


@dataclass(frozen=True)
class Comparison:
    """The golden tensor (``expected``) and the other one (``got``), in float64 and one shape.

    - ``swapped``: the other had heads and tokens in the other order. ``dtype`` is that of the golden tensor,
      ``other_dtype`` that of the other.
    - ``rotates``: whether it has angles; ``angles``: radians of each element (0 where nothing rotates).
    """

    name: str
    short: str
    expected: Tensor
    got: Tensor
    swapped: bool
    rotates: bool
    angles: Tensor
    tolerance: Tolerance
    dtype: torch.dtype
    other_dtype: torch.dtype

    @cached_property
    def wrong(self) -> Tensor:
        """Where it is farther off than the tolerance allows."""
        t = self.tolerance
        allowed = t.absolute + t.relative * self.expected.abs() + t.per_radian * self.angles
        return ~((self.got - self.expected).abs() <= allowed)  # not >, which is false for nan

    @cached_property
    def worse(self) -> Tensor:
        """Where it is farther off than other angles make it, too."""
        return self.wrong & ~((self.got - self.expected).abs() <= self.allowed(self.expected, self.angles))

    @property
    def backward(self) -> bool:
        """Whether it is a gradient."""
        return self.short.endswith(GRADIENT)

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
    what = short.rpartition(".")[2]
    rotates = kind.spec is not None and (what.endswith("_out") or what.split("_")[0] in ("cos", "sin"))
    return Comparison(
        name=name,
        short=short,
        expected=expected.double(),
        got=got,
        swapped=swapped,
        rotates=rotates,
        angles=spread(right(vectors, kind), short, inputs_of(vectors, kind)) if rotates else torch.zeros(()).double(),
        tolerance=vectors.tolerance(golden),
        dtype=expected.dtype,
        other_dtype=other[name].dtype,
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
    if x.ndim == 4 and x.transpose(1, 2).shape == wanted:
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


def in_other_angles(vectors: Vectors, kind: Kind, c: Comparison, other: dict[str, Tensor]) -> Comparison | None:
    """The comparison with the other arithmetic (exact angles, or the model's own), if that is what the tensor holds."""
    short = _counterpart(c.short)
    if c.swapped or short is None or f"{kind.name}.{short}" not in vectors.tensors:
        return None
    counterpart = compare(vectors, kind, c.name, short, other)
    of_model = c.short.startswith("model.")  # whose tolerance allows for exact angles, too
    exact, own = (counterpart, c) if of_model else (c, counterpart)
    telling = bool(replace(exact, got=own.expected).wrong.any())
    fits = counterpart.right and telling and (of_model or int(c.wrong.sum()) > SINGLE)
    return replace(counterpart, short=c.short) if fits else None


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
    step = torch.finfo(dtype).eps * 2.0 ** torch.tensor(expected, dtype=torch.float64).abs().log2().floor().item()
    return abs(got - expected) / step
