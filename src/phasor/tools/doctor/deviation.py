"""What differs between an operator that was seen and the one that must be, and what that is called.

Both are complex numbers: by which each pair of channels of each token is multiplied. So their quotient is 1 where all
is right, and its length, its angle, and where it differs from 1 say what is wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .ways import LONGEST

SAME = 2e-4  # relative: float32 tables at the positions that are tried
HALF = 1.2e-2  # tables in half precision
MOST_SOUGHT = 64  # tokens of which the position is sought
BEFORE, BEYOND = 128, LONGEST + 64  # positions around those that are known, at which a token may be found: int8 wraps
NOWHERE = -BEFORE - 1
FEW, ASIDE = 3, 0.1  # of more tokens than so many, some are rounded up and some down, by a tenth of the most or more


@dataclass(frozen=True)
class Deviation:
    """``cause``: a few stable words; ``token`` and ``pair``: the first that it shows in; ``tokens``, ``rows``: all."""

    cause: str
    says: str
    token: int = 0
    pair: int | None = None
    tokens: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Values:
    """``seen`` and ``must``, ``[rows, heads, pairs, tokens]``, and which of them are ``wrong``.

    ``parts``: of rows, heads, pairs and tokens those that are wrong, where not all are. ``others``: as `around`.
    """

    all_seen: Tensor
    all_must: Tensor
    wrong: Tensor
    within: float
    others: Tensor
    parts: dict[str, list[int]]

    @property
    def seen(self) -> Tensor:
        return self.all_seen[self.wrong]

    @property
    def must(self) -> Tensor:
        return self.all_must[self.wrong]

    @property
    def ratio(self) -> Tensor:
        return self.seen / self.must

    @property
    def of_one_pair(self) -> bool:
        return len(self.parts.get("pairs", ())) == 1

    def same(self, turned: Tensor) -> bool:
        """Whether the values turn as ``turned`` do, whatever their lengths."""
        return bool((_unit(self.seen) - _unit(turned)).abs().max() <= 2 * self.within)


def _unit(values: Tensor) -> Tensor:
    return values / values.abs().clamp(min=1e-12)


def _lost(v: Values) -> str | None:
    return "they are zero" if bool((v.seen.abs() <= 1e-9).all()) else None


def _factor(v: Values) -> str | None:
    if not v.same(v.must):
        return None
    scale = v.ratio.abs()
    even = float(scale.max() / scale.min()) - 1 <= 2 * v.within
    by = f"{float(scale.median()):.6g}" if even else f"{float(scale.min()):.3g} to {float(scale.max()):.3g}"
    return f"they are {by} times as long as they must be"


def _one_of_both(v: Values) -> str | None:
    """Cosines alone longer, or sines alone."""
    some = (v.must.real.abs() > 0.1) & (v.must.imag.abs() > 0.1)
    if not bool(some.any()):
        return None
    scales = []
    for mine, theirs in ((v.seen.real, v.must.real), (v.seen.imag, v.must.imag)):
        scale = (mine[some] / theirs[some]).median()
        if float((mine - scale * theirs).abs().max()) > 2 * v.within * float(v.must.abs().max()):
            return None
        scales.append(float(scale))
    if min(scales) < 0:
        return None
    return f"their cosines are {scales[0]:.6g} times, their sines {scales[1]:.6g} times what they must be"


def _still(v: Values) -> str | None:
    return "they are not rotated" if v.same(torch.ones_like(v.seen)) else None


def _moved(v: Values) -> str | None:
    """What positions the wrong tokens are turned by, where each is turned by one."""
    there = v.wrong.any(2).any(1)
    rows, tokens = there.nonzero()[:MOST_SOUGHT].unbind(1)
    head = places(v.wrong, 1)[0]
    at = effective(v.all_seen, v.others, v.within, head)[rows, tokens]
    rests = bool((at == 0).all()) and len(tokens.unique()) > 1
    if bool((at == NOWHERE).any()) or v.all_seen.shape[2] == 1 or rests:
        return None
    return f"token {int(tokens[0])} is turned by position {int(at[0])}"


def _exchanged(v: Values) -> str | None:
    pairs = v.parts.get("pairs", ())
    if len(pairs) != 2:
        return None
    one, other = pairs
    apart = _unit(v.all_seen[:, :, [one, other]]) - _unit(v.all_must[:, :, [other, one]])
    live = v.wrong.any(2, keepdim=True).expand_as(apart)
    if float(apart[live].abs().max()) > 2 * v.within:
        return None
    return f"pairs {one} and {other} turn by each other's angles"


def _of_one_pair(v: Values) -> str | None:
    if not v.of_one_pair:
        return None
    return f"its angles are off by up to {float(v.ratio.angle().abs().max()):.2g}"


def _twice(v: Values) -> str | None:
    """In all rows: in one of several it is by twice the position."""
    twice = "rows" not in v.parts and not v.of_one_pair and v.same(v.must * v.must)
    return "they are turned twice, or by twice their positions" if twice else None


def _backwards(v: Values) -> str | None:
    return "they turn in the other direction" if v.same(v.must.conj()) else None


def _swapped(v: Values) -> str | None:
    return "their cosines stand where their sines must" if v.same(1j * v.must.conj()) else None


def _by_an_angle(v: Values) -> str | None:
    angles = v.ratio.angle()
    if float((_unit(v.ratio) - _unit(v.ratio.mean())).abs().max()) > 2 * v.within:
        return None
    return f"they are turned by {float(angles.median()):.4g} radians more than they must be"


def _coarse(v: Values) -> str | None:
    """Up and down by little: not by one factor, and not to one side."""
    apart, angles = v.ratio - 1, v.ratio.angle()
    off, least = float(angles.abs().max()), min(float(angles.max()), float(-angles.min()))
    even = float((apart - apart.mean()).abs().max()) <= float(apart.mean().abs())
    even = even or (len(places(v.wrong, 3)) > FEW and least < ASIDE * off)
    if even or off > 0.25 or float((v.ratio.abs() - 1).abs().max()) > 0.02:
        return None
    return f"their angles are off by up to {off:.2g}, up and down"


# One row a fault: its cause, and what the values say where it is that one.
NAMES: tuple[tuple[str, Callable[[Values], str | None]], ...] = (
    ("lost", _lost),
    ("pairs exchanged", _exchanged),  # of slow pairs that is little, as rounding is, and so is the next
    ("not rotated", _still),
    ("half precision", _coarse),
    ("attention factor", _factor),
    ("attention factor of one table", _one_of_both),
    ("rotated twice", _twice),
    ("sign", _backwards),  # before positions: each token would be found at minus its own
    ("cos and sin exchanged", _swapped),
    ("positions", _moved),
    ("an angle too much", _by_an_angle),
    ("frequency of one pair", _of_one_pair),
)
# What a factor is called where it is not on all of them.
LOUDER = {
    "heads": "one head louder",
    "pairs": "one pair louder",
    "rows": "factor in one row",
    "tokens": "some tokens louder",
}


def deviation(seen: Tensor, must: Tensor, others: Tensor, live: Tensor, within: float) -> Deviation | None:
    """Of ``seen`` and ``must``, ``[rows, heads, pairs, tokens]``; None where they are the same.

    ``others``: what would be at other positions, as `around` gives it; ``live [rows, tokens]``.
    """
    wrong = ((seen - must).abs() > within * must.abs().clamp(min=1e-6)) & live[:, None, None]
    if not bool(wrong.any()):
        return None
    rows, _, pairs, tokens = (places(wrong, axis) for axis in range(4))
    parts = _parts(wrong, live)
    values = Values(seen, must, wrong, within, others, parts)
    cause, says = next(
        ((name, found) for name, test in NAMES if (found := test(values)) is not None),
        ("frequencies", f"their angles are off by up to {float(values.ratio.angle().abs().max()):.2g}"),
    )
    if cause == "an angle too much" and values.of_one_pair:
        cause = "angle of one pair"
    if cause == "attention factor":
        cause = next((LOUDER[part] for part in LOUDER if part in parts), cause)
    place = "; ".join(f"{name} {', '.join(map(str, at[:4]))}{', ...' * (len(at) > 4)}" for name, at in parts.items())
    return Deviation(cause, f"{says} ({place})" if place else says, tokens[0], pairs[0], tokens, rows)


def along(wrong: Tensor, axis: int) -> Tensor:
    """Which places along one axis are wrong anywhere."""
    return wrong.transpose(0, axis).flatten(1).any(1)


def places(wrong: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(along(wrong, axis).nonzero().flatten().tolist())


def _parts(wrong: Tensor, live: Tensor) -> dict[str, list[int]]:
    """The rows, heads, pairs and tokens that are wrong, where some are and others not."""
    found = {}
    for axis, name in ((1, "heads"), (2, "pairs"), (0, "rows"), (3, "tokens")):
        at = along(wrong, axis)
        meant = live.any(0) if name == "tokens" else torch.ones_like(at)
        if name == "tokens":
            meant[0] = at[0]  # position 0 is not turned
        if len(at) > 1 and not torch.equal(at, meant):
            found[name] = at.nonzero().flatten().tolist()
    return found


def around(known: Tensor) -> Tensor:
    """``[heads, pairs, positions]`` from position 0 on, and those before and behind, if pairs keep their speeds."""
    step = (known[..., 1:2] * known[..., :1].conj()).angle()
    behind, before = torch.arange(1, BEYOND + 1) * step, torch.arange(-BEFORE, 0) * step
    parts = ((known[..., :1], before), (known[..., -1:], behind))
    first, last = (start * torch.polar(torch.ones_like(angles), angles) for start, angles in parts)
    return torch.cat((first, known, last), -1)


def effective(seen: Tensor, others: Tensor, within: float, head: int = 0) -> Tensor:
    """``[rows, tokens]``: the position by which each token of a head is turned in all pairs, or `NOWHERE`.

    ``others``: as `around`.
    """
    heads, own = seen.shape[1], others.shape[0]
    table = others[head * own // heads]
    found = torch.full((seen.shape[0], seen.shape[-1]), NOWHERE)
    for row in range(seen.shape[0]):
        mine = _unit(seen[row, head]).unsqueeze(-1) - _unit(table).unsqueeze(-2)  # [pairs, tokens, positions]
        apart = mine.abs().amax(0)
        found[row] = torch.where(apart.amin(1) <= 2 * within, apart.argmin(1) - BEFORE, NOWHERE)
    return found
