"""The mistake behind positions that are wrong: each is tried as a recipe, and the one that gives them is named."""

import math
from collections.abc import Iterator
from itertools import permutations

import torch
from torch import Tensor

from .batch import PositionBatch
from .findings import PositionFinding, mistake

Mistake = tuple[str, str, str]  # cause, reason, way out
WRAPS = tuple(2**n for n in range(7, 21))  # the rows of tables, and where small integers end
SAME_LENGTHS = "make positions and boundaries from the same lengths"
NEAR = 8  # tokens between a document's start and where its positions start, to be called moved


def mistakes(batch: PositionBatch, got: Tensor, wanted: Tensor, first: int) -> Iterator[PositionFinding]:
    """The findings of planes ``[P, B, S]`` that should be ``wanted``: one for each document that is wrong."""
    real, documents = batch.at_hand(batch.real), batch.at_hand(batch.documents)
    wrong = (got != wanted).any(0) & real
    for row in wrong.any(-1).nonzero()[:, 0].tolist():
        token = int(wrong[row].nonzero()[0, 0])
        if (whole := _of_row(batch, got, wanted, row, token)) is not None:
            yield mistake(row, token, *whole)
            continue
        for document in documents[row][wrong[row]].unique_consecutive():
            here = ((documents[row] == document) & real[row]).nonzero()[:, 0]
            apart = (got[:, row, here] != wanted[:, row, here]).any(0).nonzero()
            cause, why, out = _of_document(batch, got[:, row], wanted[:, row], row, here, first)
            at = here[int(apart[0, 0])]
            reason = f"position {_plain(got[:, row, at])} where {_plain(wanted[:, row, at])} is needed"
            yield mistake(row, int(at), cause, f"{reason}: {why}" if why else reason, out)


def _of_row(batch: PositionBatch, got: Tensor, wanted: Tensor, row: int, token: int) -> Mistake | None:
    """A recipe that gives the whole row."""
    here = batch.at_hand(batch.real)[row].nonzero()[:, 0]
    numbers, columns, length = got[:, row, here], batch.columns[here], got.shape[-1]
    several = len(batch.at_hand(batch.documents)[row, here].unique()) > 1
    if batch.sharded and (bool((numbers == here).all()) or _each_run_from_zero(numbers, columns)):
        why = f"position {_plain(numbers[:, here == token])} for column {int(batch.columns[token])} of the whole row"
        return "shard numbered locally", why, "shard position_ids together with input_ids, by the same call"
    if row and bool((numbers - row * length == columns).all()):
        return "counted on through the batch", f"the row starts at {_plain(numbers[:, :1])}", "count in each row"
    if not batch.real[row].all() and not several and bool((numbers == columns).all()):
        start = f"{_plain(numbers[:, :1])}, not {_plain(wanted[:, row, here[:1]])}"
        why = f"arange over the columns: the first real token stands at {start}"
        return "padding is counted", why, "positions.from_mask(attention_mask)"
    goes_on = bool((numbers == columns - columns[0] + numbers[:, :1]).all())
    if several and goes_on and bool((numbers[:, 0] == wanted[:, row, here[0]]).all()):
        return None  # not restarted: said at each document
    for other in range(got.shape[1]):
        if other == row or not bool(batch.real[other].any()):  # padding alone stands nowhere
            continue
        alike = batch.decoding and bool((got == got[:, :1]).all())  # by the longest row, say
        if (len(here) > 2 or alike) and bool((numbers == wanted[:, other, here]).all()):
            out = "move position_ids together with input_ids when rows are sorted, repeated or sampled"
            return "positions of another row", f"they are those of row {other}", out
    return None


def _each_run_from_zero(numbers: Tensor, columns: Tensor) -> bool:
    """Whether every run of neighbouring columns is numbered from 0."""
    breaks = torch.cat([columns.new_ones(1, dtype=torch.bool), columns.diff() != 1])
    at = torch.arange(len(columns))
    return bool((numbers == at - torch.where(breaks, at, 0).cummax(0).values).all())


def _of_document(batch: PositionBatch, got: Tensor, wanted: Tensor, row: int, here: Tensor, first: int) -> Mistake:
    """A recipe that gives one document; ``here`` are its tokens."""
    o, e = got[:, here].double(), wanted[:, here].double()
    apart = o - e
    i = int(apart.any(0).nonzero()[0, 0])
    if i == 0 and bool((apart == apart[0, 0]).all()):
        return _shifted(batch, got, row, here, float(apart[0, 0]), first, _wrapped(o, e))
    if bool((o == o[:, :1]).all()) and o.shape[1] > 2:
        return "constant", f"all {o.shape[1]} tokens stand at the same", "number every token"
    if (wrapped := _wrapped(o, e)) is not None:
        return wrapped
    if o.shape[0] > 1:
        if bool((o == o[:1]).all()):
            why = "all planes are equal, in a document with images"
            return "images numbered as text", why, "positions.from_kinds"
        for order in permutations(range(o.shape[0])):
            if bool((o[list(order)] == e).all()):
                return "planes in another order", "", f"position_ids[{list(order)}]: time, height, width"
        if (plane := _still(o, e)) is not None:
            why = f"plane {plane} is the same at all patches of an image"
            return "a plane stands still", why, "positions.from_kinds"
        if sorted(o.T.tolist()) == sorted(e.T.tolist()):
            why = "they are those of the same tokens in another order (patches column by column?)"
            return "patches in another order", why, "positions.from_kinds"
    if bool((o == e.clamp(max=float(o.max()))).all()):
        return "clamped", f"they stop at {_plain(o.max())}", "do not clamp positions; a rotation has no last one"
    for dtype in (torch.bfloat16, torch.float16):
        if bool((o == e.to(dtype).double()).all()):
            return "rounded", f"they went through {dtype}", "keep positions as int64"
    if o.shape[1] > 2 and bool((o == o[0, 1] * e).all()):
        return "stretched", f"they go up by {_plain(o[0, 1])}", "count tokens once"
    return _from_token(batch, o, apart, row, here, i, first)


def _still(o: Tensor, e: Tensor) -> int | None:
    """The one plane that is wrong, if it does not count where it is."""
    wrong = o != e
    planes = wrong.any(1).nonzero()[:, 0].tolist()
    if len(planes) != 1:
        return None
    at = wrong[planes[0]].nonzero()[:, 0]
    steps = o[planes[0], at].diff()[at.diff() == 1]
    return planes[0] if len(steps) and not bool(steps.any()) else None


def _wrapped(o: Tensor, e: Tensor) -> Mistake | None:
    """Positions that went through a dtype that is too small, or index a table from its start again."""
    for dtype in (torch.uint8, torch.int8, torch.int16):
        if bool((o == e.long().to(dtype).double()).all()):
            why = f"they went through {dtype}, which ends at {torch.iinfo(dtype).max:,}"
            return "overflow", why, "keep positions as int64 until they become angles"
    rows = math.gcd(*(int(apart) for apart in (e - o).flatten().tolist() if apart > 0))
    for length in dict.fromkeys((rows, *WRAPS)):
        if length > NEAR and bool((o == e.remainder(length)).all()):
            return "wrapped", f"they start again from 0 every {length:,}", "no modulo: a rotation has no last position"
    return None


def unless_equal_lengths(batch: PositionBatch) -> Iterator[PositionFinding]:
    """Not shown: documents that nothing states, each as long as a table or a dtype, where positions start again."""
    if batch.stated or batch.decoding or batch.sharded:
        return
    for row, (starts, real) in enumerate(zip(batch.starts(), batch.real, strict=True)):
        lengths = torch.diff(torch.cat([(starts & real)[real].nonzero()[:, 0], real.sum()[None]])).tolist()
        if len(lengths) > 1 and lengths[0] in WRAPS and set(lengths[:-1]) == {lengths[0]} and lengths[-1] <= lengths[0]:
            token = int((starts & real).nonzero()[1, 0])
            why = f"documents of {lengths[0]:,} tokens each, or positions that start again every {lengths[0]:,}"
            out = "say cu_seqlens, or number the documents in the mask"
            yield mistake(row, token, "wrapped or packed", why, out, verdict="not shown")


def _shifted(
    batch: PositionBatch, got: Tensor, row: int, here: Tensor, by: float, first: int, wrapped: Mistake | None
) -> Mistake:
    """A document that is right but for a constant."""
    start = int(here[0])
    if batch.decoding and bool((got[:, here[0]] == first).all()):
        return "starts again beside the cache", "the cache holds tokens before these", "positions.decode(cached)"
    if wrapped is not None:
        return wrapped
    if batch.decoding and abs(by) == 1:
        why = "the first new token follows the last cached one"
        return "off by one after the prompt", why, "positions.decode(cached)"
    opens = bool((batch.at_hand(batch.documents)[row, :start] != batch.documents[row, batch.columns[start]]).any())
    if opens and start and bool((got[:, start] == got[:, :start].max() + 1).all()):
        why = "its document starts here, and goes on from the one before"
        return "not restarted", why, "positions.packed(cu_seqlens)"
    early = int(by) if opens and 0 < by <= min(NEAR, start) else 0
    if early and bool((got[:, start - early : start] == torch.arange(early) + first).all()):
        why = f"positions restart {early} early"
        return "boundary moved", why, SAME_LENGTHS
    padding = int((~batch.real[row, : batch.columns[start]]).sum())
    if padding and by == padding:
        return "padding is counted", f"{padding} columns of padding before it", "positions.from_mask(attention_mask)"
    if abs(by) == 1:
        return "off by one", f"the document starts at {_plain(got[:, start])}", "start at 0, or say first="
    return "shifted", f"the whole document by {by:+g}", "start each document at 0, or say cached="


def _from_token(batch: PositionBatch, o: Tensor, apart: Tensor, row: int, here: Tensor, i: int, first: int) -> Mistake:
    """A document that is right up to token ``i``, or wrong in a way of its own."""
    again = (o == first).all(0).nonzero()[:, 0]
    late = int(again[0]) if len(again) else 0
    counted = torch.arange(o.shape[1] - late) + first
    if i == 0 < late <= NEAR and late < o.shape[1] - 1 and bool((o[:, late:] == counted).all()):
        return "boundary moved", f"positions restart {late} late", SAME_LENGTHS
    if i and bool((o[:, i] == first).all()):
        left = o.shape[1] - i
        follows = int(here[-1]) + 1 < batch.at_hand(batch.real).shape[1]
        if batch.stated and follows and left <= NEAR:
            return "boundary moved", f"positions restart {left} early", SAME_LENGTHS
        return "restarted inside a document", "no document starts here", "count to the end of the document"
    if i and bool((apart[:, i:] == apart[0, i]).all()):
        by = float(apart[0, i])
        out = "continue with the number of tokens so far"
        if abs(by) == 1:
            return "off by one", "and so on to the end of the document", out
        return "jump", f"from here on by {by:+g}, to the end of the document", out
    return "wrong", "by no recipe that is known here", "the builders of phasor.positions give the right ones"


def _plain(values: Tensor) -> str:
    """One number where all planes agree, else each.

    >>> _plain(torch.tensor([3, 3])), _plain(torch.tensor([3.0, 4.0]))
    ('3', '(3, 4)')
    """
    each = [f"{value:g}" for value in values.double().flatten().tolist()]
    return each[0] if len(set(each)) == 1 else f"({', '.join(each)})"
