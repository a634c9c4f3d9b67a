"""`check`: the positions of a batch, as a collator made them, against what the batch says of itself."""

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor

from ...support.checks import flag, whole
from ..rules import Rule
from ..tensor_checks import described, integers, with_values
from .batch import PositionBatch, batch_of, beside_images, shifted_to_start, vision, with_documents
from .causes import mistakes, unless_equal_lengths
from .findings import Findings, PositionFinding, mistake

HALF = {torch.bfloat16: 256, torch.float16: 2048}  # the integers up to here are exact


def check(
    input_ids: Tensor,
    position_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    cu_seqlens: Tensor | None = None,
    axes: int = 1,
    text_plane: bool = False,
    cached: Tensor | Sequence[int] | int | None = None,
    offset: Tensor | Sequence[int] | int | None = None,
    places: Tensor | None = None,
    first: int = 0,
    pad: int | None = None,
    kinds: Tensor | None = None,
    rule: Rule | None = None,
    image_grids: Tensor | None = None,
    video_grids: Tensor | None = None,
    seconds: Tensor | Sequence[float] | None = None,
) -> Findings:
    """What is wrong with the positions of a batch, each mistake with its row and token; empty where nothing is.

    The batch
      - ``input_ids`` ``[B, S]`` or ``[S]``; ``position_ids`` the same, or with planes in front, ``[axes, B, S]``.
      - ``attention_mask`` ``[B, S]``: 0 at padding, 1 or the number of a document elsewhere. A wider one,
        ``[B, P + S]``, also holds the tokens of a cache. Positions of padding may be anything,
        so a row of padding alone is never wrong.
      - ``cu_seqlens`` ``[documents + 1]``: where documents start among all tokens of the batch, or among the real ones.
        Without it and without numbers in the mask, a document starts wherever a position is ``first``.

    The model
      - ``axes``: how many its rotation has (``spec.axes.count``); ``text_plane``: it takes one plane more, in front,
        that numbers the text and from which it sees documents (``[4, B, S]`` of Qwen-VL in transformers).
      - ``first``: where a document starts, 0 but for some learned encodings (2 in RoBERTa).

    More that a batch may have
      - ``cached``: how many tokens came before, in a cache or in an earlier part of the first document: one number for
        each row, a tensor ``[B]`` or a list, or one integer for all rows.
      - ``offset``: what the images among these tokens add to the positions of the text after them, in the same forms or
        ``[B, 1]`` as `from_kinds` gives it (``rope_deltas``); 0 where there are none. The plane of the text has no
        share in it. Without it, new tokens of a model with axes that stand lower than text would are "not shown".
      - ``places`` ``[S]``: the columns of the whole row that a shard holds (context parallel; shard an ``arange`` by
        the same call). ``cu_seqlens`` and a wide ``attention_mask`` are then those of the whole row.
      - ``pad``: the id of padding, to find padding that no mask hides.
      - ``kinds``, ``image_grids``, ``video_grids``, ``seconds`` as in `from_kinds`, and the ``rule`` of the model:
        where images and videos have to stand. Without them, a document with images is judged by its start only.

    The result is a tuple of `Finding`; it prints as one line each, and ``raise_if_any()`` raises ``ValueError``. A
    finding is wrong or not shown: documents of 512 tokens each, say, that nothing states, may be a modulo. One
    document gives at most one finding for its text and one for its axes. Nothing is changed or kept; tensors of a GPU
    are copied. Raises ``ValueError`` for arguments that are no batch at all.

    Two documents of 3 and 2 tokens in a row, whose positions go on:

    >>> report = check(torch.zeros(1, 5).long(), torch.tensor([[0, 1, 2, 3, 4]]), cu_seqlens=torch.tensor([0, 3, 5]))
    >>> [(finding.cause, finding.row, finding.token) for finding in report]
    [('not restarted', 0, 3)]
    >>> check(torch.zeros(1, 5).long(), torch.tensor([[0, 1, 2, 0, 1]]), cu_seqlens=torch.tensor([0, 3, 5])).causes
    ()
    """
    with_values(
        input_ids=input_ids, position_ids=position_ids, attention_mask=attention_mask, cu_seqlens=cu_seqlens,
        cached=cached, offset=offset, places=places, kinds=kinds, image_grids=image_grids, video_grids=video_grids,
        seconds=seconds,
    )  # fmt: skip
    ids = _rows(input_ids)
    if not isinstance(position_ids, Tensor) or not position_ids.ndim or position_ids.is_complex():
        raise ValueError(f"position_ids must be a tensor of numbers, got {described(position_ids)}")
    whole("axes", axes)
    whole("first", first, at_least=0)
    flag("text_plane", text_plane)
    if text_plane and axes == 1:
        raise ValueError("text_plane needs axes of at least 2: with one axis there is nothing beside the text")
    if pad is not None:
        whole("pad", pad, at_least=-1)
    if kinds is not None and not isinstance(kinds, Tensor):
        raise ValueError(f"kinds must be a tensor with 2 dimensions [batch, seq], got {described(kinds)}")
    if (kinds is None) != (rule is None) or (rule is not None and rule.axes != axes):
        raise ValueError(f"kinds and rule must be given together, and the rule must have {axes} axes, got {rule}")
    planes, findings = planes_of(ids, position_ids.detach().cpu(), axes + text_plane, text_plane)
    batch, wrong = batch_of(ids, attention_mask, cu_seqlens, places, cached, offset)
    findings += wrong
    if pad is not None:
        findings += _padding(ids, pad, attention_mask, batch)
    if planes is None or batch is None:
        return Findings(findings)
    batch = with_documents(batch, planes[:1] if text_plane else planes, first)
    text = batch.text(first)
    parts = [(planes[:1], batch.at_hand(text)[None])] if axes == 1 or text_plane else []
    if kinds is not None and rule is not None:
        parts.append((planes[-axes:], batch.at_hand(vision(batch, kinds, rule, image_grids, video_grids, seconds))))
    elif axes > 1:
        beside, open_ = beside_images(batch, planes[-axes:], text)
        findings += open_
        parts.append((planes[-axes:], shifted_to_start(batch, planes[-axes:], beside)))
    findings += unless_equal_lengths(batch)
    for got, wanted in parts:
        findings += mistakes(batch, got, wanted, first)
    return Findings(sorted(dict.fromkeys(findings), key=lambda finding: (finding.row or 0, finding.token or 0)))


def _rows(ids: Tensor) -> Tensor:
    rows = integers("input_ids", ids[None] if isinstance(ids, Tensor) and ids.ndim == 1 else ids, 2, "[batch, seq]")
    if not rows.numel():
        raise ValueError(f"input_ids must hold tokens, got shape {tuple(rows.shape)}")
    return rows.cpu()


def _padding(ids: Tensor, pad: int, mask: Tensor | None, batch: PositionBatch | None) -> list[PositionFinding]:
    """Two or more ids of padding at an end of a row, real by its mask. One may be the end of a text."""
    if batch is None:
        return []
    real, findings = batch.at_hand(batch.real), []
    for row, same in enumerate(torch.eq(ids, pad).tolist()):
        left = same.index(False) if False in same else len(same)
        right = same[::-1].index(False) if False in same else 0
        ends = [(0, left)] + [(len(same) - right, right)] * (mask is not None)  # causal rows do not see what follows
        for start, count in ends:
            if count > 1 and bool(real[row, start : start + count].all()):
                why = f"{count} tokens {pad} from here are padding, and nothing hides them"
                findings.append(mistake(row, start, "padding is not masked", why, "attention_mask = 0 there"))
    return findings


def planes_of(
    ids: Tensor, positions: Tensor, count: int, text_plane: bool
) -> tuple[Tensor | None, list[PositionFinding]]:
    """``[count, B, S]``, a view, and what is wrong with the shape or the dtype; None where nothing can be compared."""
    rows, length = ids.shape
    if positions.dtype in HALF:
        why = f"{positions.dtype} holds integers up to {HALF[positions.dtype]} only, so later positions fall together"
    elif positions.dtype in (torch.bool, torch.uint8, torch.int8):
        why = f"{positions.dtype} ends at {1 if positions.dtype == torch.bool else torch.iinfo(positions.dtype).max}"
    else:
        why = ""
    findings = [mistake(None, None, "dtype", why, "keep positions as int64 until they become angles")] if why else []
    if positions.dtype == torch.bool:
        return None, findings
    if positions.shape in _right(count, rows, length):
        planes = positions.reshape(count, -1, length)
        return planes.expand(count, rows, length), findings
    shape = tuple(positions.shape)
    planes_mistake = _planes_mistake(shape, count, rows, length, text_plane)
    if planes_mistake is None and shape and shape[-1] != length:
        why = f"{shape[-1]} positions for {length} tokens in a row"
        out = "pad or cut position_ids in the same step as input_ids"
        return None, [*findings, mistake(0, min(shape[-1], length), "not padded with their ids", why, out)]
    cause, more, out = planes_mistake or ("shape", "", "give one position for each token")
    wanted = [rows, length] if count == 1 else [count, rows, length]
    return None, [*findings, mistake(None, None, cause, f"{list(shape)} where {wanted} is needed{more}", out)]


def _right(count: int, rows: int, length: int) -> list[tuple[int, ...]]:
    """The shapes that are right: one row may stand for all of them."""
    bare = [(rows, length), (1, length), (length,)]
    return (
        [*bare, (1, rows, length)] if count == 1 else [(count, *shape) for shape in (bare if rows == 1 else bare[:2])]
    )


def _planes_mistake(
    shape: tuple[int, ...], count: int, rows: int, length: int, text_plane: bool
) -> tuple[str, str, str] | None:
    """What is wrong with the planes of this shape, more about it, and the way out."""
    if text_plane and shape in _right(count - 1, rows, length):
        more = ": without the first plane, which numbers the text of each document, the mask between packed documents "
        out = "put the plain positions before the others, torch.cat([positions.packed(...).view(1, 1, -1), ids])"
        return "plane of the text missing", more + "is off without a word", out
    if count > 1 and shape in _right(1, rows, length):
        out = f"for text positions.text(position_ids, {count}), with images positions.from_kinds"
        return "planes missing", f": the model takes {count} planes of positions", out
    if count == 1 and len(shape) == 3 and shape[1:] in ((rows, length), (1, length)):
        more = f": the model takes one plane, and reads {shape[0]} of them as more rows"
        return "too many planes", more, "give the first plane, or say axes= if the model has several"
    for order in permutations(range(3)) if len(shape) == 3 else ():
        if tuple(shape[i] for i in order) == (count, rows, length):
            stack = ", or stack the samples along dim=1" if order == (1, 0, 2) else ""
            return "planes in another place", ": planes come first", f"position_ids.permute{order}{stack}"
    return None
