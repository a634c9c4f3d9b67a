"""What happened to q and k: heads before and after a rotation, compared with every known way to rotate wrongly."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ....rotary.kernels import reference
from ....rotary.layout import Layout

STEPS = 8  # of the number format, of the largest value: products and sums in any order
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
UNKNOWN = "unknown"
SIGN, ONLY, TWICE = "sign", "not rotated", "rotated twice"


@dataclass(frozen=True)
class Heads:
    """``before`` and ``after``, ``[H, S, D]``; ``cos`` and ``sin`` ``[S, P]`` by which they must be rotated."""

    before: Tensor
    after: Tensor
    cos: Tensor
    sin: Tensor
    layout: Layout

    def rotated_by(self, cos: Tensor, sin: Tensor, layout: Layout | None = None) -> Tensor:
        return reference.rotated(self.before.double(), cos.double(), sin.double(), layout or self.layout)

    @property
    def right(self) -> Tensor:
        return self.rotated_by(self.cos, self.sin)

    @property
    def allowed(self) -> float:
        eps = max(torch.finfo(t.dtype).eps for t in (self.before, self.after))
        return STEPS * eps * max(1e-30, self.right.abs().max().item())

    def close(self, candidate: Tensor, after: Tensor | None = None) -> bool:
        after = self.after if after is None else after
        return bool((candidate - after.double()).abs().max() <= self.allowed)


@dataclass(frozen=True)
class Outcome:
    """``cause`` is empty for heads that are rotated rightly, ``scaled`` if up to a factor of each token.

    ``factor`` is that of all tokens and heads, None where they have different ones.
    """

    cause: str = ""
    says: str = ""
    scaled: bool = False
    factor: float | None = 1.0
    size: float = 0.0
    token: int | None = None
    pair: int | None = None


RIGHT = Outcome()


def outcome(heads: Heads) -> Outcome:
    """What was done to the heads of q, or of k."""
    right = heads.right
    if heads.close(right):
        return Outcome(size=(heads.after.double() - right).abs().max().item())
    place = _place(heads, right)
    named = next((word for word in _mistakes(heads) if heads.close(word[2])), None)
    if named is None and heads.close(right, _rescaled(heads.after.double(), right)):
        return dataclasses.replace(place, scaled=True, factor=_one_factor(heads, right))
    if named is None and (rounded := _rounded(heads, right)):  # at every token, though chance may hide some
        return dataclasses.replace(place, cause=rounded[0], says=rounded[1], token=0, pair=0)
    cause, says, *_ = named or (UNKNOWN, "no known mistake gives these values")
    return dataclasses.replace(place, cause=cause, says=says)


def _place(heads: Heads, right: Tensor) -> Outcome:
    apart = (heads.after.double() - right).abs().nan_to_num(torch.inf)
    wrong = apart > heads.allowed
    token = int(wrong.any(-1).any(0).nonzero()[0])
    a, b = heads.layout.written().split(wrong[:, token].any(0))
    pairs = (a | b).nonzero()
    return Outcome(size=apart.max().item(), token=token, pair=int(pairs[0]) if len(pairs) else None)


def _mistakes(heads: Heads) -> Iterator[tuple[str, str, Tensor]]:
    """Every known way to rotate wrongly by the right tables."""
    cos, sin, layout = heads.cos.double(), heads.sin.double(), heads.layout
    yield ONLY, "nothing rotated it", heads.before.double()
    yield SIGN, "it rotates the other way round: the sign of sin is reversed", heads.rotated_by(cos, -sin)
    yield TWICE, "it is rotated twice", reference.rotated(heads.right, cos, sin, layout.written())
    for other in _layouts(layout):
        yield (
            "layout",
            f"its pairs are {other.describe()}, and must be {layout.describe()}",
            heads.rotated_by(cos, sin, other),
        )
    if layout.rotary_dim < layout.head_dim:
        side, must = ("first", "last") if layout.trailing else ("last", "first")
        other = dataclasses.replace(layout, trailing=not layout.trailing)
        says = f"the {side} {layout.rotary_dim} channels are rotated, and must be the {must}"
        yield "side of the head", says, heads.rotated_by(cos, sin, other)
    yield from _widths(heads)
    for by in (1, -1):
        says = f"it is rotated by the position {'after' if by > 0 else 'before'} its own"
        yield "positions", says, heads.rotated_by(cos.roll(-by, 0), sin.roll(-by, 0))


def _layouts(layout: Layout) -> Iterator[Layout]:
    for interleaved in (True, False):
        for permuted in (False, True):
            other = dataclasses.replace(layout, interleaved=interleaved, permuted=permuted, blocks=1)
            if other != layout:
                yield other


def _widths(heads: Heads) -> Iterator[tuple[str, str, Tensor]]:
    """Fewer channels, the first of those that should rotate, by the first pairs of the tables."""
    layout = heads.layout
    inside = dataclasses.replace(layout, head_dim=layout.rotary_dim, trailing=False, blocks=1)
    part = layout.turned(heads.before.double())
    for width in dict.fromkeys((layout.rotary_dim // 2, layout.head_dim // 4, 3 * layout.rotary_dim // 4)):
        if width % 2 == 0 and 2 <= width < layout.rotary_dim:
            narrow = dataclasses.replace(inside, rotary_dim=width)
            cos, sin = (t[:, : width // 2].double() for t in (heads.cos, heads.sin))
            says = f"{width} channels are rotated, and {layout.rotary_dim} must be"
            part_rotated = reference.rotated(part, cos, sin, narrow)
            yield "rotary width", says, layout.within(heads.before.double(), part_rotated)


def _rescaled(after: Tensor, right: Tensor) -> Tensor:
    """``after`` with the length of ``right`` in each token of each head."""
    share = (after * right).sum(-1, keepdim=True) / (after * after).sum(-1, keepdim=True).clamp(min=1e-30)
    return after * share


def _one_factor(heads: Heads, right: Tensor) -> float | None:
    """The number by which all heads are longer than they should be; None where there is not one for all."""
    after = heads.after.double()
    factor = ((after * right).sum() / (right * right).sum().clamp(min=1e-30)).item()
    return factor if heads.close(right * factor) else None


def _rounded(heads: Heads, right: Tensor) -> tuple[str, str] | None:
    """Values that are right to half precision, and not to their own."""
    if heads.after.dtype not in (torch.float32, torch.float64):
        return None
    largest = right.abs().max().item()
    apart = (heads.after.double() - right).abs().max().item()
    for name, half in reversed(HALVES.items()):
        if apart <= 4 * torch.finfo(half).eps * largest:
            says = f"it is rotated in half precision ({name} would give such values), and must be in float32"
            return "half precision", says
    return None


def together(q: Outcome, k: Outcome) -> tuple[str, str]:
    """Cause and sentence for q and k of one attention; empty where both are right."""
    if q.cause == k.cause:
        return q.cause, q.says.replace("it is", "they are").replace("it ", "they ").replace("its", "their")
    for name, one, other in (("k", k, q), ("q", q, k)):
        if one.cause == ONLY and not other.cause:
            return f"{'q' if name == 'k' else 'k'} only", f"{name} is not rotated, and must be as the other is"
        if one.cause and not other.cause:
            return f"{one.cause} of {name}", f"of {name}: {one.says}"
    return " + ".join((f"{q.cause} of q", f"{k.cause} of k")), f"of q: {q.says}; of k: {k.says}"
