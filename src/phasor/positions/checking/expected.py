"""Where the tokens of a batch stand, by its own words: text counts, images and videos by the rule of the model."""

from dataclasses import replace

import torch
from torch import Tensor

from ..kinds import from_kinds
from ..rules import Rule
from ..tensor_checks import integers
from .batch import Batch


def with_documents(batch: Batch, planes: Tensor, first: int) -> Batch:
    """Where nothing says it, a document starts at every real token that stands at ``first``, as libraries take it."""
    if batch.stated or batch.decoding or batch.sharded:
        return batch
    starts = (planes == first).all(0) & batch.real
    starts &= (starts != batch.real).any(-1, keepdim=True)  # a row of zeros is no row of documents
    starts[:, 0] = True
    before = batch.real.long().cumsum(-1) - batch.real.long()
    starts &= (before > 0) | (torch.arange(starts.shape[1]) == 0)  # leading padding belongs to the first document
    return replace(batch, documents=starts.flatten().long().cumsum(0).view(starts.shape))


def seen(batch: Batch, wide: Tensor) -> Tensor:
    """The columns at hand of ``[..., W]``."""
    return wide[..., batch.columns]


def vision(
    batch: Batch, kinds: Tensor, rule: Rule, image_grids: Tensor | None, video_grids: Tensor | None, seconds: object
) -> Tensor:
    """``[axes, B, W]`` by `from_kinds`, which numbers every document as a row of its own."""
    given = integers("kinds", kinds[None] if kinds.ndim == 1 else kinds, 2, "[batch, seq]").cpu()
    if given.shape != batch.real.shape:
        raise ValueError(
            f"kinds must have one value for each token of the whole row, {list(batch.real.shape)} here, got "
            f"{list(given.shape)}"
        )
    documents = batch.documents[batch.real].unique_consecutive()
    rows = [((batch.documents == d) & batch.real).nonzero() for d in documents]
    width = max(map(len, rows), default=0)
    alone, there = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width, dtype=torch.int64)
    for i, at in enumerate(rows):
        alone[i, : len(at)], there[i, : len(at)] = given[at[:, 0], at[:, 1]], 1
    placed = from_kinds(
        alone, rule, image_grids=image_grids, video_grids=video_grids, seconds=seconds, mask=there  # type: ignore[arg-type]
    ).positions  # fmt: skip
    wide = torch.zeros(placed.shape[0], *batch.real.shape, dtype=placed.dtype)
    for i, at in enumerate(rows):
        wide[:, at[:, 0], at[:, 1]] = placed[:, i, : len(at)]
    return wide


def shifted_to_start(batch: Batch, planes: Tensor, text: Tensor) -> Tensor:
    """Planes ``[axes, B, S]`` of a model whose images are not known: text where all planes agree in a document, and
    else the planes themselves, brought to where the document has to start."""
    wanted = seen(batch, text).expand_as(planes).clone().to(planes.dtype)
    documents, real = seen(batch, batch.documents), seen(batch, batch.real)
    for document in documents[real].unique_consecutive():
        here = (documents == document) & real
        own = planes[:, here]
        if not bool((own == own[:1]).all()):
            wanted[:, here] = own - own[:, 0].min() + wanted[0, here][0]
    return wanted
