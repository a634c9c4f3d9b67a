"""`check`: the positions of a batch, as a collator made them, against what the batch says of itself."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...support.checks import flag, whole
from ..rules import Rule
from ..tensor_checks import described, integers
from .batch import Batch, batch_of
from .causes import mistakes
from .expected import seen, shifted_to_start, vision, with_documents
from .findings import Finding, Findings
from .shapes import planes_of


def check(
    input_ids: Tensor,
    position_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    cu_seqlens: Tensor | None = None,
    axes: int = 1,
    text_plane: bool = False,
    cached: Tensor | Sequence[int] | int | None = None,
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
      - ``places`` ``[S]``: the columns of the whole row that a shard holds (context parallel; shard an ``arange`` by
        the same call). ``cu_seqlens`` and a wide ``attention_mask`` are then those of the whole row.
      - ``pad``: the id of padding, to find padding that no mask hides.
      - ``kinds``, ``image_grids``, ``video_grids``, ``seconds`` as in `from_kinds`, and the ``rule`` of the model:
        where images and videos have to stand. Without them, a document with images is judged by its start only.

    The result is a tuple of `Finding`; it prints as one line each, and ``raise_if_any()`` raises ``ValueError``. One
    document gives at most one finding for its text and one for its axes. Nothing is changed or kept; tensors of a GPU
    are copied. Raises ``ValueError`` for arguments that are no batch at all.

    Two documents of 3 and 2 tokens in a row, whose positions go on:

    >>> found = check(torch.zeros(1, 5).long(), torch.tensor([[0, 1, 2, 3, 4]]), cu_seqlens=torch.tensor([0, 3, 5]))
    >>> [(finding.kind, finding.row, finding.token) for finding in found]
    [('not restarted', 0, 3)]
    >>> check(torch.zeros(1, 5).long(), torch.tensor([[0, 1, 2, 0, 1]]), cu_seqlens=torch.tensor([0, 3, 5])).kinds
    ()
    """
    for name, value in {
        "input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask,
        "cu_seqlens": cu_seqlens, "cached": cached, "places": places, "kinds": kinds, "image_grids": image_grids,
        "video_grids": video_grids, "seconds": seconds,
    }.items():  # fmt: skip
        if isinstance(value, Tensor) and value.is_meta:
            raise ValueError(f"{name} must hold values to be checked, and is on the meta device; give the real batch")
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
    planes, found = planes_of(ids, position_ids.detach().cpu(), axes + text_plane, text_plane)
    batch, wrong = batch_of(ids, attention_mask, cu_seqlens, places, cached)
    found += wrong
    if pad is not None:
        found += _padding(ids, pad, attention_mask, batch)
    if planes is None or batch is None:
        return Findings(found)
    batch = with_documents(batch, planes[:1] if text_plane else planes, first)
    text = batch.text(first)
    parts = [(planes[:1], seen(batch, text)[None])] if axes == 1 or text_plane else []
    if kinds is not None and rule is not None:
        parts.append((planes[-axes:], seen(batch, vision(batch, kinds, rule, image_grids, video_grids, seconds))))
    elif axes > 1:
        parts.append((planes[-axes:], shifted_to_start(batch, planes[-axes:], text)))
    for got, wanted in parts:
        found += mistakes(batch, got, wanted, first)
    return Findings(sorted(dict.fromkeys(found), key=lambda finding: (finding.row or 0, finding.token or 0)))


def _rows(ids: Tensor) -> Tensor:
    rows = integers("input_ids", ids[None] if isinstance(ids, Tensor) and ids.ndim == 1 else ids, 2, "[batch, seq]")
    if not rows.numel():
        raise ValueError(f"input_ids must hold tokens, got shape {tuple(rows.shape)}")
    return rows.cpu()


def _padding(ids: Tensor, pad: int, mask: Tensor | None, batch: Batch | None) -> list[Finding]:
    """Two or more ids of padding at an end of a row, real by its mask. One may be the end of a text."""
    if batch is None:
        return []
    real, found = seen(batch, batch.real), []
    for row, same in enumerate(torch.eq(ids, pad).tolist()):
        left = same.index(False) if False in same else len(same)
        right = same[::-1].index(False) if False in same else 0
        ends = [(0, left)] + [(len(same) - right, right)] * (mask is not None)  # causal rows do not see what follows
        for start, count in ends:
            if count > 1 and bool(real[row, start : start + count].all()):
                why = f"{count} tokens {pad} from here are padding, and nothing hides them"
                found.append(Finding("padding is not masked", row, start, why, "attention_mask = 0 there"))
    return found
