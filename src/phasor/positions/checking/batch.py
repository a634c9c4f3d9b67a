"""What a batch says of its rows (real tokens, documents, columns at hand), and the positions that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from ...support.checks import whole
from ..multimodal import from_kinds
from ..rules import Rule
from ..tensor_checks import integers
from .findings import PositionFinding, mistake


@dataclass(frozen=True)
class PositionBatch:
    """Rows of ``W`` tokens, of which ``S`` are at hand: the last ones beside a cache, or those of a shard.

    - ``real`` ``[B, W]``: False at padding. ``documents`` ``[B, W]``: numbers of documents, counted on over all rows.
    - ``stated``: whether something says where documents start; else their positions do.
    - ``columns`` ``[S]``: where the tokens at hand stand in their row.
    - ``cached`` ``[B]``: tokens that came before the first column. ``offset`` ``[B]``: what images among them add to
      the positions of text (``rope_deltas``), None if nothing says it.
    - ``sharded``: whether the columns are those of a shard.
    """

    real: Tensor
    documents: Tensor
    stated: bool
    columns: Tensor
    cached: Tensor
    sharded: bool
    offset: Tensor | None = None

    @property
    def decoding(self) -> bool:
        """Whether something came before the tokens at hand."""
        return not self.sharded and (len(self.columns) < self.real.shape[1] or bool(self.cached.any()))

    def at_hand(self, wide: Tensor) -> Tensor:
        """The columns at hand of ``[..., W]``."""
        return wide[..., self.columns]

    def starts(self) -> Tensor:
        """``[B, W]``: the first column of each document."""
        first = torch.ones_like(self.real)
        first[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        return first

    def since_start(self, values: Tensor) -> Tensor:
        """How far values ``[B, W]`` that never fall have risen since the first column of their document."""
        return values - torch.where(self.starts(), values, values.new_zeros(())).cummax(-1).values

    def opening(self) -> Tensor:
        """``[B, W]``: the tokens of the document in which a row begins, which goes on from a cache."""
        return self.documents == self.documents[:, :1]

    def text(self, first: int) -> Tensor:
        """Where text counts: ``[B, W]``, ``first`` at the first real token of every document."""
        counted = self.real.long().cumsum(-1) - self.real.long()
        return self.since_start(counted) + first + self.cached[:, None] * self.opening()


def batch_of(
    ids: Tensor,
    mask: Tensor | None,
    cu_seqlens: Tensor | None,
    places: Tensor | None,
    cached: Tensor | Sequence[int] | int | None,
    offset: Tensor | Sequence[int] | int | None,
) -> tuple[PositionBatch | None, list[PositionFinding]]:
    """The batch, or what contradicts itself in it. ``ids`` ``[B, S]``. Raises ``ValueError`` for other forms."""
    rows, length = ids.shape
    columns = torch.arange(length) if places is None else integers("places", places, 1, "[seq]").cpu()
    if len(columns) != length or columns.min() < 0:
        raise ValueError(f"places must hold the column in the whole row of each of {length} tokens, got {len(columns)}")
    whole = length if places is None else int(columns.max()) + 1
    if cu_seqlens is not None and places is not None and integers("cu_seqlens", cu_seqlens, 1, "[bounds]").numel():
        whole = max(whole, int(cu_seqlens.reshape(-1)[-1]) // rows)
    marks = torch.ones(rows, whole, dtype=torch.int64)
    if mask is not None:
        wide = _marks(mask, rows)
        if wide.shape[1] < length:
            why = f"the mask has {wide.shape[1]} columns for {length} tokens"
            out = "pad it in the same step as input_ids"
            return None, [mistake(0, wide.shape[1], "mask of another length", why, out)]
        if places is None:
            marks, columns = wide, columns + wide.shape[1] - length
        elif wide.shape[1] > columns.max():
            marks = wide
        else:
            marks[:, columns] = wide
    before = _of_rows("cached", 0 if cached is None else cached, rows, at_least=0)
    added = None if offset is None else _of_rows("offset", offset, rows)
    if cached is not None and marks.shape[1] != length:
        raise ValueError(
            f"cached needs a mask of the {length} new tokens only, and this one has {marks.shape[1]} columns, so it "
            "has the cached tokens already; leave out cached, or the mask's first columns"
        )
    real, segments = marks != 0, bool((marks > 1).any())
    if cu_seqlens is not None:
        documents, wrong = _from_bounds(integers("cu_seqlens", cu_seqlens, 1), real)
        if wrong:
            return None, [wrong]
        if segments and (moved := _first(_changes(marks, real) != _changes(documents, real))):
            why = "here a document starts by one of attention_mask and cu_seqlens, and not by the other"
            return None, [mistake(*moved, "mask and cu_seqlens differ", why, "make both from the same lengths")]
    else:
        documents = _filled(marks, real) + torch.arange(rows)[:, None] * (int(marks.max()) + 1)
    stated = cu_seqlens is not None or segments
    batch = PositionBatch(real, documents, stated, columns, before, places is not None, added)
    if added is not None and not batch.decoding:
        raise ValueError(
            "offset belongs to new tokens beside a cache: say cached=, or give the mask of both; kinds say where the "
            "images of a whole row are"
        )
    return batch, []


def _of_rows(name: str, value: Tensor | Sequence[int] | int, rows: int, at_least: int = -(2**31)) -> Tensor:
    """A number for each row, int64 ``[B]``."""
    if isinstance(value, Tensor):
        numbers = integers(
            name, value[:, 0] if value.ndim == 2 and value.shape[1] == 1 else value, 1, "[batch]"
        ).tolist()
    else:
        numbers = list(value) if isinstance(value, list | tuple) else [value] * rows
    for number in numbers:
        whole(name, number, at_least=at_least)
    if len(numbers) != rows:
        raise ValueError(f"{name} must hold one length for each of {rows} rows, or be one for all, got {len(numbers)}")
    return torch.tensor(numbers, dtype=torch.int64)


def _marks(mask: Tensor, rows: int) -> Tensor:
    """0 at padding, 1 or the number of a document elsewhere, int64 ``[B, W]``."""
    plain = isinstance(mask, Tensor) and (mask.dtype == torch.bool or mask.is_floating_point())
    numbers = mask.long() if plain else mask
    marks = integers(
        "attention_mask", numbers[None] if isinstance(numbers, Tensor) and numbers.ndim == 1 else numbers, 2
    )
    marks = marks.expand(rows, -1) if len(marks) == 1 else marks
    if len(marks) != rows or (marks < 0).any():
        raise ValueError(
            f"attention_mask must be [batch, seq] with the batch {rows} of input_ids, 0 at padding, and 1 or the "
            f"numbers of documents elsewhere, got shape {tuple(marks.shape)}, smallest value {int(marks.min())}"
        )
    return marks.cpu()


def _from_bounds(bounds: Tensor, real: Tensor) -> tuple[Tensor, PositionFinding | None]:
    """The document of each token, by lengths that count all tokens of the batch, or the real ones only."""
    bounds, out = bounds.cpu(), "cumulative lengths of all documents, [0, 3, 5] for 3 and 2 tokens"
    rows, width = real.shape
    if bounds.numel() < 2 or bounds[0] != 0 or (bounds.diff() < 0).any():
        why = f"they must start at 0 and never fall, and are {bounds.tolist()[:8]}"
        return real, mistake(None, None, "cu_seqlens", why, out)
    total, size, count = int(bounds[-1]), real.numel(), int(real.sum())
    if total not in (size, count):
        at = min(total, size - 1)
        why = f"they end at {total}, and the batch has {size} tokens" + (
            f", {count} of them real" if count < size else ""
        )
        return real, mistake(at // width, at % width, "cu_seqlens", why, out)
    documents = torch.zeros_like(real, dtype=torch.int64)
    counted = torch.searchsorted(bounds[1:], torch.arange(total), right=True)
    if total == count:
        documents[real] = counted
        documents = _filled(documents, real)
    else:
        documents = counted.view(rows, width)
    filled = real.any(-1).nonzero()[:, 0].tolist()  # rows of padding alone hold no document
    for before, row in pairwise(filled):
        if documents[row, 0] == documents[before, -1]:
            why = f"document {int(documents[row, 0])} goes over the end of row {before}"
            return real, mistake(row, 0, "cu_seqlens", why, "rows are sequences of their own: give each its documents")
    return documents, None


def _filled(documents: Tensor, real: Tensor) -> Tensor:
    """Padding belongs to the document before it, leading padding to the first one."""
    at = torch.where(real, torch.arange(real.shape[1]), -1).cummax(-1).values
    first = real.long().argmax(-1, keepdim=True)
    return documents.gather(1, torch.where(at < 0, first, at))


def _changes(documents: Tensor, real: Tensor) -> Tensor:
    """Where a document starts, among real tokens."""
    filled = _filled(documents, real)
    return torch.cat([torch.zeros_like(real[:, :1]), filled[:, 1:] != filled[:, :-1]], 1) & real


def _first(wrong: Tensor) -> tuple[int, int] | None:
    """Row and column of the first True."""
    return (int(wrong.nonzero()[0, 0]), int(wrong.nonzero()[0, 1])) if bool(wrong.any()) else None


def with_documents(batch: PositionBatch, planes: Tensor, first: int) -> PositionBatch:
    """Where nothing says it, a document starts at every real token that stands at ``first``, as libraries take it."""
    if batch.stated or batch.decoding or batch.sharded:
        return batch
    starts = (planes == first).all(0) & batch.real
    starts &= (starts != batch.real).any(-1, keepdim=True)  # a row of zeros is no row of documents
    starts[:, 0] = True
    before = batch.real.long().cumsum(-1) - batch.real.long()
    starts &= (before > 0) | (torch.arange(starts.shape[1]) == 0)  # leading padding belongs to the first document
    return replace(batch, documents=starts.flatten().long().cumsum(0).view(starts.shape))


def vision(
    batch: PositionBatch,
    kinds: Tensor,
    rule: Rule,
    image_grids: Tensor | None,
    video_grids: Tensor | None,
    seconds: object,
) -> Tensor:
    """``[axes, B, W]`` by `from_kinds`, which numbers every document as a row of its own."""
    token_kinds = integers("kinds", kinds[None] if kinds.ndim == 1 else kinds, 2, "[batch, seq]").cpu()
    if token_kinds.shape != batch.real.shape:
        raise ValueError(
            f"kinds must have one value for each token of the whole row, {list(batch.real.shape)} here, got "
            f"{list(token_kinds.shape)}"
        )
    documents = batch.documents[batch.real].unique_consecutive()
    rows = [((batch.documents == d) & batch.real).nonzero() for d in documents]
    width = max(map(len, rows), default=0)
    alone, there = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width, dtype=torch.int64)
    for i, at in enumerate(rows):
        alone[i, : len(at)], there[i, : len(at)] = token_kinds[at[:, 0], at[:, 1]], 1
    placed = from_kinds(
        alone, rule, image_grids=image_grids, video_grids=video_grids, seconds=seconds, mask=there  # type: ignore[arg-type]
    ).positions  # fmt: skip
    wide = torch.zeros(placed.shape[0], *batch.real.shape, dtype=placed.dtype)
    for i, at in enumerate(rows):
        wide[:, at[:, 0], at[:, 1]] = placed[:, i, : len(at)]
    return wide


def beside_images(batch: PositionBatch, planes: Tensor, text: Tensor) -> tuple[Tensor, list[PositionFinding]]:
    """Where the planes ``[axes, B, S]`` of new tokens stand beside a cache: by the offset of its images. Where that is
    not known, a document that stands lower than text alone would is not judged."""
    if not batch.decoding:
        return text, []
    if batch.offset is not None:
        return text + batch.offset[:, None] * batch.opening(), []
    opening, wanted, findings = batch.at_hand(batch.opening() & batch.real), text.clone(), []
    for row, here in enumerate(opening):
        lower = (planes[:, row, here] - batch.at_hand(text)[row, here]).flatten()
        by = int(lower[0]) if len(lower) else 0
        if by < 0 and bool((lower == by).all()) and int(planes[:, row, here].min()) > 0:
            why = f"{-by} lower than text alone would stand: right only if images in the cache take so many less"
            out = "say offset=, that of from_kinds (rope_deltas)"
            token = int(here.nonzero()[0, 0])
            findings.append(mistake(row, token, "offset of the cache", why, out, verdict="not shown"))
            wanted[row] += by * batch.opening()[row]
    return wanted, findings


def shifted_to_start(batch: PositionBatch, planes: Tensor, text: Tensor) -> Tensor:
    """Planes ``[axes, B, S]`` of a model whose images are not known: text where all planes agree in a document, and
    else the planes themselves, brought to where the document has to start."""
    wanted = batch.at_hand(text).expand_as(planes).clone().to(planes.dtype)
    documents, real = batch.at_hand(batch.documents), batch.at_hand(batch.real)
    for document in documents[real].unique_consecutive():
        here = (documents == document) & real
        own = planes[:, here]
        if not bool((own == own[:1]).all()):
            wanted[:, here] = own - own[:, 0].min() + wanted[0, here][0]
    return wanted
