"""The span heads GlobalPointer and EfficientGlobalPointer: rotary queries and keys score every span of every type."""

from typing import Any

import torch
from torch import Tensor, nn

from ... import positions as builders
from ...rotary.apply import rotate
from ...rotary.spec import RotarySpec
from ...support.checks import flag, whole
from .cells import Factors, check_spans, score_block, score_spans, sentences, valid_cells
from .losses import log_one_plus_sums, negative_term


class SpanHead(nn.Module):
    """Base of `GlobalPointer` and `EfficientGlobalPointer`, which say how `project` forms the factors of the scores.

    ``rotary``: True is the published rotation (interleaved pairs, base 10000, exact angles); or any `RotarySpec` of
    width ``head_dim``; or None. ``seq_len`` is for scalings that depend on the length of the sequence (dynamic NTK,
    LongRoPE) and is fixed here, so that a score does not depend on the padding of its batch. ``tril`` allows spans
    with ``start <= end`` only; without it every pair of tokens is a cell, as for relations. ``kernel``: see
    `phasor.apply_rotary`.

    >>> from phasor.span_heads import GlobalPointer
    >>> isinstance(GlobalPointer(hidden_size=8, num_types=2, head_dim=4), SpanHead)
    True
    """

    def __init__(
        self,
        hidden_size: int,
        num_types: int,
        *,
        head_dim: int = 64,
        rotary: bool | RotarySpec | None = True,
        tril: bool = True,
        seq_len: int | None = None,
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        for name, value in (("hidden_size", hidden_size), ("num_types", num_types), ("head_dim", head_dim)):
            whole(name, value)
        flag("tril", tril)
        self.hidden_size, self.num_types, self.head_dim, self.tril = hidden_size, num_types, head_dim, tril
        self.rotary = _spec(rotary, head_dim, seq_len)
        self.seq_len, self.kernel = seq_len, kernel
        self.make_layers()

    def make_layers(self) -> None:
        """The linear layers, called once the sizes are set."""
        raise NotImplementedError

    def project(self, hidden: Tensor, positions: Tensor | None) -> Factors:
        """The factors of the scores, q and k rotated: ``[B, S, hidden_size] -> [B, S, …]`` (`Factors`)."""
        raise NotImplementedError

    def forward(self, hidden: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Scores of all spans: ``[B, S, hidden_size] -> [B, num_types, S, S]``, cell (start, end), both inside.

        - ``mask`` ``[B, S]``, booleans or integers: 0 where there is no token (padding, and special tokens that no
          span may begin or end at). Sentences packed into one row are numbered 1, 2, 3 …: no span joins two of them.
        - ``positions``: int64 ``[S]`` or ``[B, S]`` (with a leading axis for a spec with several axes); by default
          0, 1, 2 …, which is right for padding on either side and for packed sentences, because a score depends on
          ``end - start`` only.

        Scores are float32 whatever the dtype of ``hidden`` and under autocast (float64 for float64), and -inf in the
        cells that do not exist. Raises ``ValueError`` for shapes and dtypes that do not fit.
        """
        self._check(hidden)
        scores = score_block(self.project(hidden, positions))
        return scores.masked_fill_(~valid_cells(sentences(mask, hidden), self.tril), float("-inf"))

    def loss(
        self, hidden: Tensor, spans: Tensor, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """`multilabel_cross_entropy` of the entities ``spans``, the mean over batch and types: a float32 scalar.

        ``spans`` is int64 ``[N, 4]`` with rows (batch, type, start, end), start and end both inside; a row given twice
        counts once. ``hidden``, ``mask`` and ``positions`` are as in `forward`. Equal to the dense loss of its scores,
        but computed in blocks of rows, from the diagonal on if ``tril``, forwards and backwards: memory grows with S
        and not with its square.

        Raises ``ValueError`` for a span that is no cell: outside the tokens, across sentences, or ending before it
        starts.
        """
        self._check(hidden)
        sentence = sentences(mask, hidden)
        spans = check_spans(spans, sentence, self.num_types, self.tril)
        factors = self.project(hidden, positions)
        negative = negative_term(factors, sentence, spans, self.num_types, self.tril)
        rows = spans[:, 0] * self.num_types + spans[:, 1]
        positive = log_one_plus_sums(-score_spans(factors, spans), rows, negative.numel())
        return (negative.sum() + positive.sum()) / max(1, negative.numel())

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """q, scaled, and k, both widened and rotated: ``[B, S, heads, head_dim] -> [B, heads, S, head_dim]``."""
        wide = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(wide) * self.head_dim**-0.5, k.to(wide)
        if self.rotary is not None:
            if positions is None:
                positions = torch.arange(q.shape[1], device=q.device)
                if self.rotary.axes.count > 1:
                    positions = builders.text(positions, self.rotary.axes.count)
            options: Any = {"seq_len": self.seq_len, "tensor_format": "bshd", "kernel": self.kernel}
            q, k = rotate(q, k, positions, self.rotary, **options)
        return q.transpose(1, 2), k.transpose(1, 2)

    def _check(self, hidden: Tensor) -> None:
        if hidden.ndim != 3 or hidden.shape[-1] != self.hidden_size:
            raise ValueError(f"hidden must be [batch, seq, hidden_size={self.hidden_size}], got {list(hidden.shape)}")

    def extra_repr(self) -> str:
        rotary = None if self.rotary is None else f"({self.rotary.describe()})"
        return f"num_types={self.num_types}, head_dim={self.head_dim}, rotary={rotary}, tril={self.tril}"


class GlobalPointer(SpanHead):
    """A query and a key of each type for every token: ``s(i, j) = (R_i q_i) . (R_j k_j) / sqrt(head_dim)``.

    ``dense`` maps ``hidden_size`` to ``num_types`` blocks of ``[q | k]``, ``2 head_dim`` wide each, the order of all
    published implementations (`load_published`). A cell (start i, end j) above 0 is an entity of that type, so nested
    and overlapping entities come out in one pass (`decode`). R rotates q and k by their positions, so a score knows
    ``j - i``, the length of the span; without it the head can only say "a start here" and "an end there".

    Arguments: see `SpanHead`. Source: Su et al. 2022, "Global Pointer", arXiv:2208.03054; the factor
    ``1 / sqrt(head_dim)`` is that of the published code.

    >>> head = GlobalPointer(hidden_size=8, num_types=2, head_dim=4)
    >>> scores = head(torch.zeros(1, 3, 8), mask=torch.tensor([[1, 1, 0]]))
    >>> scores.shape, scores.isfinite()[0, 0].int().tolist()
    (torch.Size([1, 2, 3, 3]), [[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    >>> head.loss(torch.zeros(1, 3, 8), torch.tensor([[0, 1, 0, 2]])).ndim  # one entity of type 1, tokens 0 to 2
    0
    """

    def make_layers(self) -> None:
        self.dense = nn.Linear(self.hidden_size, 2 * self.num_types * self.head_dim)

    def project(self, hidden: Tensor, positions: Tensor | None) -> Factors:
        q, k = torch.unflatten(self.dense(hidden), -1, (self.num_types, 2, self.head_dim)).unbind(-2)
        return Factors(*self.rotate(q, k, positions))


class EfficientGlobalPointer(SpanHead):
    """One query and key for all types, and for each type a score of every start and of every end.

    ``[q | k] = dense(h)``, ``[start_a, end_a] = ends([q | k]) / 2`` for each type a, from q and k before rotation, and

        s_a(i, j) = (R_i q_i) . (R_j k_j) / sqrt(head_dim) + start_a(i) + end_a(j).

    A further type costs ``4 head_dim + 2`` weights instead of ``2 head_dim (hidden_size + 1)``. Units of ``ends`` are
    (start, end) for type 0, then for type 1 …; `load_published` knows the published orders.

    Arguments: see `SpanHead`. Source: Su et al. 2022, arXiv:2208.03054, and kexue.fm/archives/8877; the
    biases and the factors 1/2 and ``1 / sqrt(head_dim)`` are those of the published code.

    >>> head = EfficientGlobalPointer(hidden_size=8, num_types=2, head_dim=4)
    >>> head(torch.zeros(1, 3, 8)).shape, sum(p.numel() for p in head.parameters())
    (torch.Size([1, 2, 3, 3]), 108)
    """

    def make_layers(self) -> None:
        self.dense = nn.Linear(self.hidden_size, 2 * self.head_dim)
        self.ends = nn.Linear(2 * self.head_dim, 2 * self.num_types)

    def project(self, hidden: Tensor, positions: Tensor | None) -> Factors:
        qk = self.dense(hidden)
        q, k = (x.unsqueeze(2) for x in qk.chunk(2, dim=-1))
        ends = self.ends(qk)
        halved = 0.5 * ends.to(torch.promote_types(ends.dtype, torch.float32))
        start, end = torch.unflatten(halved.transpose(1, 2), 1, (self.num_types, 2)).unbind(2)
        return Factors(*self.rotate(q, k, positions), start, end)


def _spec(rotary: bool | RotarySpec | None, head_dim: int, seq_len: int | None) -> RotarySpec | None:
    if rotary is None or rotary is False:
        return None
    if rotary is True:
        if head_dim % 2:
            raise ValueError(f"head_dim must be even to be rotated (channels rotate in pairs), got {head_dim}")
        return RotarySpec(head_dim=head_dim, interleaved=True)
    if not isinstance(rotary, RotarySpec):
        raise ValueError(f"rotary must be True, False, None or a RotarySpec, got {rotary!r}")
    if rotary.head_dim != head_dim:
        raise ValueError(f"rotary must be a spec with head_dim={head_dim}, the width of q and k, got {rotary.head_dim}")
    if rotary.length_dependent and seq_len is None:
        raise ValueError("seq_len is missing: the frequencies of rotary depend on the length of the sequence")
    return rotary
