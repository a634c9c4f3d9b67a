"""What is added to the logits of an attention and tells tokens apart by where they stand: read off the tape."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .attention import ENDS
from .linear import MOVES, replay
from .tape import Attention, Operation, Ref, Tape, upstream

MASKED = -1e4  # what is added to the logits of tokens that are not seen
DEEPEST = 24  # operations between a product and its softmax
ADDS = ("add", "add_", "sub", "baddbmm")
SCALES = ("mul", "mul_", "div", "div_")
LOOKS_UP = ("gather", "embedding", "index", "index_select")
KEEPS = {*MOVES, "bmm", "add", "add_", "repeat", "masked_fill", "where", "index_select"}  # numbers as they are
SHIFTS = MOVES | {"index_select"}  # by which columns of a product come to other places
LINEAR = 1e-2  # of a slope: by how much it may differ from distance to distance


@dataclass(frozen=True, eq=False)
class LogitBias:
    """What is added to the logits of one attention, whatever the tokens are.

    - ``values [N, queries, keys]``, float64, N rows of a batch with their heads; ``seen``: the keys that no mask hides.
    - ``table``: the learned table that it is looked up in, ``[rows, heads]``; None where nothing is learned.
    - ``formed_in``: the coarsest number format that it has passed through.
    - ``looked_up``: what is added depends on the contents too, and ``values`` are the rows of a table of positions
      that each query takes for each key (Shaw, DeBERTa). ``factors``: by what plain numbers multiply their product with
      the contents, and that of the contents alone; None where that is not seen.

    A softmax sees of a bias only how it differs from key to key.
    """

    values: Tensor
    seen: Tensor
    table: Tensor | None = None
    formed_in: torch.dtype = torch.float32
    looked_up: bool = False
    factors: tuple[float | None, float | None] = (None, None)

    @cached_property
    def relative(self) -> Tensor | None:
        """``values`` less that of the query's own key, the last keys being the queries'; None where it has none."""
        queries, keys = self.values.shape[-2:]
        if self.looked_up:
            return self.values
        if keys < queries:
            return None
        own = self.values.diagonal(keys - queries, -2, -1)
        return self.values - own.unsqueeze(-1)

    @cached_property
    def past(self) -> Tensor:
        """The keys that are seen and stand before the query; all that are seen where there are none."""
        queries, keys = self.values.shape[-2:]
        before = self.seen & torch.ones_like(self.seen).tril(keys - queries)
        return before if bool(before.any()) else self.seen

    @property
    def causal(self) -> bool:
        """Whether no query sees a key behind it."""
        queries, keys = self.values.shape[-2:]
        return not bool((self.seen & torch.ones_like(self.seen).triu(keys - queries + 1)).any())

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """By what the logits of each of N heads fall for a position of distance; empty where they fall otherwise."""
        steps, both = self.values.diff(dim=-1), self.past[..., 1:] & self.past[..., :-1]
        if self.looked_up or not bool(both.flatten(1).any(1).all()):
            return ()
        found = [float(s[b].median()) for s, b in zip(steps, both, strict=True)]
        apart = max(float((s[b] - m).abs().max()) for s, b, m in zip(steps, both, found, strict=True))
        return tuple(found) if apart <= LINEAR * max(map(abs, found)) else ()

    @cached_property
    def by_distance(self) -> Tensor | None:
        """``[N, 2 keys - 1]``: its ``relative`` values at distances ``1 - keys ... keys - 1``, query minus key.

        NaN where none is seen; None where it is no function of the distance.
        """
        if self.relative is None:
            return None
        queries, keys = self.values.shape[-2:]
        apart = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys) + keys - 1
        index = apart.flatten().expand(len(self.values), -1)
        shown = self.relative.masked_fill(~self.seen, torch.nan).flatten(1)
        known = shown.isfinite()
        ends = [
            torch.full((len(shown), 2 * keys - 1), fill, dtype=shown.dtype).scatter_reduce(
                1, index, shown.where(known, fill), how
            )
            for fill, how in ((torch.inf, "amin"), (-torch.inf, "amax"))
        ]
        size = self.values[self.seen].abs().max()
        if bool(((ends[1] - ends[0])[ends[0].isfinite()] > 1e-5 * size).any()):
            return None
        return ends[0].masked_fill(~ends[0].isfinite(), torch.nan)

    def describe(self) -> str:
        if self.looked_up:
            return "relative positions in the logits, times the contents of q or k (as Shaw's, or DeBERTa's)"
        if self.table is not None:
            return f"a learned bias on the logits by distance (as T5's), from a table {list(self.table.shape)}"
        if self.slopes:
            few = ", ".join(f"{slope:.4g}" for slope in list(dict.fromkeys(self.slopes))[:4])
            return f"ALiBi: the logits of each head fall by a slope for each position of distance ({few}, …)"
        return "a fixed bias on the logits, which is no multiple of the distance"


def biases_of(tape: Tape, attention: Attention) -> Iterator[LogitBias]:
    """What is added to the logits of an attention: all that is the same for all tokens as one, then what is looked up.

    Nothing where that is a mask alone, or the same for all keys.
    """
    terms = list(_terms(tape, attention))
    free = [(number, by) for number, by in terms if number not in tape.data]
    logits = attention.softmax
    shape = _of_fused(tape, attention) if logits is None else tape.values[logits].shape
    if len(shape) < 2 or shape[-1] < 2:
        return
    values, seen = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.bool)
    for number, by in free:
        value = _over(tape.values[number].detach().double(), shape)
        if value is None:
            return
        values, seen = values + by * value.clamp(min=2 * MASKED), seen & (value > MASKED)
    if logits is not None:
        seen = seen & (tape.values[logits] > MASKED)
    values, seen = (x.reshape(-1, *shape[-2:]) for x in (values.masked_fill(~seen, 0.0), seen))
    if _differs(values, seen):
        above = [tape.values[i] for i in upstream(tape, [n for n, _ in free]) if tape.is_float(i)]
        tables = [tape.values[i] for i in upstream(tape, [n for n, _ in free]) if i in tape.weights]
        table = max((t for t in tables if t.ndim > 1), key=lambda t: t.numel(), default=None)
        yield LogitBias(values, seen, table, max((v.dtype for v in above), key=lambda kind: torch.finfo(kind).eps))
    for number, by in terms:
        if number not in tape.data:
            continue
        for rows, factor in [*_rows(tape, number, shape[-2:], by)] or ((rows, None) for rows in _columns(tape, number)):
            looked_up = _over(rows.double(), shape)
            if looked_up is not None and _differs(looked_up := looked_up.reshape(seen.shape), seen):
                yield LogitBias(looked_up, seen, looked_up=True, factors=(factor, _of_contents(tape, attention)))


def _differs(values: Tensor, seen: Tensor) -> bool:
    """Whether a bias differs from key to key, which a mask does not."""
    steps, both = values.diff(dim=-1), seen[..., 1:] & seen[..., :-1]
    size = values[seen].abs().max().item() if seen.any() else 0.0
    return bool(both.any()) and bool(steps[both].abs().max() > 1e-6 * max(size, 1.0))


def _over(value: Tensor, shape: torch.Size) -> Tensor | None:
    """A term over all logits; batch and heads may be one axis or two."""
    if value.ndim == 3 and len(shape) == 4 and len(value) == shape[0] * shape[1]:
        value = torch.unflatten(value, 0, shape[:2])
    try:
        return value.expand(shape)
    except RuntimeError:
        return None


def _of_fused(tape: Tape, attention: Attention) -> torch.Size:
    q, k = tape.values[attention.q].shape, tape.values[attention.k].shape
    return torch.Size((*q[:-1], k[-2]))


def _terms(tape: Tape, attention: Attention) -> Iterator[tuple[int, float]]:
    """What is added to the product of q and k on the way to the softmax, and by what that is multiplied there."""
    number, by = attention.softmax, 1.0
    begin = next((b for b, e in tape.inside_attention if b <= attention.at < e), None)
    if number is None and begin is not None:  # a fused call, taken apart as far as torch does that
        for operation in tape.operations[begin : attention.at + 1]:
            if "scaled_dot_product" in operation.name:
                yield from ((i, by) for i in operation.inputs[3:] if tape.is_float(i))
                return
            if "softmax" in operation.name:
                number = operation.inputs[0]
                break
    for _ in range(DEEPEST):
        maker = None if number is None else tape.maker(number)
        if maker is None or maker.name in ("bmm", "mm"):
            return
        if maker.name in SCALES:
            if (factor := _factor(tape, maker)) is None:
                return
            by *= factor
        above = _towards(tape, maker, attention)
        if maker.name in ADDS:
            sign = -1.0 if maker.name == "sub" else 1.0
            yield from ((i, by * sign) for i in maker.inputs[:2] if i != above and _is_term(tape, maker, i))
        if maker.name == "baddbmm":
            return
        number = above


def _is_term(tape: Tape, maker: Operation, number: int) -> bool:
    return tape.is_float(number) and (maker.name != "baddbmm" or number == maker.inputs[0])


def _factor(tape: Tape, operation: Operation) -> float | None:
    """The number that logits are multiplied or divided by; None where that is no single number."""
    other = operation.args[1]
    value = tape.values[other.number] if isinstance(other, Ref) else other
    if isinstance(value, Tensor):
        if value.numel() != 1:
            return None
        value = value.item()
    return 1.0 / float(value) if operation.name.startswith("div") else float(value)


def _towards(tape: Tape, operation: Operation, attention: Attention) -> int | None:
    """The operand that holds the product of q and k."""
    data = [i for i in operation.inputs if i in tape.data]
    if len(data) < 2:
        return next(iter(data), None)
    return next((i for i in data if _holds(tape, i, attention)), data[0])


def _holds(tape: Tape, number: int, attention: Attention, depth: int = 0) -> bool:
    maker = tape.maker(number)
    if maker is None or depth > DEEPEST or number not in tape.data:
        return False
    if maker.name in ("bmm", "baddbmm"):
        return maker.inputs[-2:] == (attention.q, attention.k)
    return any(_holds(tape, i, attention, depth + 1) for i in maker.inputs)


def _rows(
    tape: Tape, number: int, shape: torch.Size, by: float | None, depth: int = 0
) -> Iterator[tuple[Tensor, float | None]]:
    """Indices ``[..., queries, keys]`` of look-ups above a value, moved as what was looked up is moved.

    With each the factor of what is looked up; ``by``: that of the value.
    """
    maker = tape.maker(number)
    if maker is None or depth > DEEPEST:
        return
    if maker.name in LOOKS_UP:
        found = [tape.values[i] for i in maker.inputs[1:] if i not in tape.data and not tape.is_float(i)]
        by = _times(tape, maker.inputs[0], by)
        yield from ((index, by) for index in found if index.ndim > 1 and index.shape[-2:] == shape)
        return
    by = _times_of(tape, maker, by)
    for i in maker.inputs[:2]:
        for rows, factor in _rows(tape, i, shape if maker.name != "transpose" else shape[::-1], by, depth + 1):
            moved = maker.name == "transpose" and tape.values[i].ndim == rows.ndim
            yield (rows.mT if moved else rows), factor


def _of_contents(tape: Tape, attention: Attention) -> float | None:
    """By what plain numbers multiply the product of q and k on its way to the softmax; None where it is not seen."""
    number = attention.softmax
    by: float | None = 1.0
    while number is not None and by is not None and (maker := tape.maker(number)) is not None and maker.name != "bmm":
        by, number = _times_of(tape, maker, by), _towards(tape, maker, attention)
    return None if number is None else _times(tape, number, by)


def _times(tape: Tape, number: int, by: float | None) -> float | None:
    """``by`` times what plain numbers multiply a product and its factors since these were projected."""
    maker = tape.maker(number)
    if maker is None or by is None or (maker.name in ENDS and maker.name != "bmm"):
        return by
    found = _times_of(tape, maker, by)
    for i in maker.inputs if maker.name == "bmm" else maker.inputs[:1]:
        found = _times(tape, i, found)
    return found


def _times_of(tape: Tape, operation: Operation, by: float | None) -> float | None:
    """``by`` times the number of one operation; None where it is none that multiplies or moves."""
    if by is None or operation.name in KEEPS:
        return by
    factor = _factor(tape, operation) if operation.name in SCALES else None
    return None if factor is None else by * factor


def _columns(tape: Tape, number: int) -> Iterator[Tensor]:
    """Which column of a product of queries with all relative positions each query takes for each key, by a shift.

    As in Transformer-XL and XLNet. Each column's number goes the way of the product. Columns are counted from that of
    the query's own key: how many there are, and where that one stands, follow from the length of the call.
    """
    shifts = list[Operation]()
    while (maker := tape.maker(number)) is not None and maker.name in SHIFTS:
        shifts.append(maker)
        number = maker.inputs[0]
    if maker is None or maker.name != "bmm" or tape.data.issuperset(maker.inputs) or not shifts:
        return
    product = tape.values[number]
    columns = torch.arange(product.shape[-1], dtype=torch.float64).expand(product.shape)
    rows = replay(tape, shifts, {number: columns}, shifts[0].outputs[0] or 0)
    if bool((rows != rows[..., :1, :]).any()):  # else it is said of the keys alone
        queries, keys = rows.shape[-2:]
        yield rows - rows.diagonal(keys - queries, -2, -1).unsqueeze(-1) if keys >= queries else rows
