"""Which key a query may see, as a rule about positions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...support.tracing import readable


@dataclass(frozen=True)
class Mask:
    """Which key each query may see. Token fields are rows, ``[B, S]`` or ``[1, S]`` if all sequences share them.

    >>> at = torch.tensor([[0, 1]])
    >>> Mask(causal=True, q_positions=at, k_positions=at).dense()[0, 0].tolist()
    [[True, False], [True, True]]
    """

    causal: bool
    q_positions: Tensor
    k_positions: Tensor
    key_padding: Tensor | None = None
    q_documents: Tensor | None = None
    k_documents: Tensor | None = None
    attn_mask: Tensor | None = None  # [B or 1, H or 1, Q, K]; of floats it is added to the scores
    window: int | None = None  # how many positions back a key is seen, the query's own among them
    in_order: str | None = None  # the encoding whose sums run along the keys

    def dense(self) -> Tensor | None:
        """True where visible, ``[B or 1, H or 1, Q, K]``; None if everything is."""
        rules = []
        if self.causal:
            rules.append(self.k_positions[:, None, None, :] <= self.q_positions[:, None, :, None])
        if self.window is not None:
            rules.append(self.q_positions[:, None, :, None] - self.k_positions[:, None, None, :] < self.window)
        if self.key_padding is not None:
            rules.append(~self.key_padding[:, None, None, :])
        if self.q_documents is not None and self.k_documents is not None:
            rules.append(self.q_documents[:, None, :, None] == self.k_documents[:, None, None, :])
        if self.attn_mask is not None:
            rules.append(self.attn_mask if self.added is None else self.attn_mask > -torch.inf)
        visible = None
        for rule in rules:
            visible = rule if visible is None else visible & rule
        return visible

    @property
    def added(self) -> Tensor | None:
        """What is added to the scores of what is visible."""
        if self.attn_mask is None or self.attn_mask.dtype == torch.bool:
            return None
        return self.attn_mask.masked_fill(self.attn_mask == -torch.inf, 0.0)

    def check_order(self) -> None:
        """``ValueError`` where causal visibility would have to be told by positions that two keys share.

        Padding, and keys of other documents, may have any. Values are looked at on a CPU only.
        """
        if self.in_order is not None:
            self._check_in_order(self.in_order)
        if not self.causal or self.attn_mask is not None or not readable(self.k_positions):
            return
        at = self.k_positions
        if not at.is_cpu or bool((at.diff() > 0).all()):
            return
        rows = self.expand(max(len(x) for x in (at, self.key_padding, self.k_documents) if x is not None))
        fields = [x for x in (rows.k_positions, rows.k_documents, rows.key_padding) if x is not None]
        order = fields[0].argsort(stable=True)
        for field in fields[1:]:  # the last one decides first
            order = order.gather(-1, field.gather(-1, order).argsort(stable=True))
        fields = [field.gather(-1, order) for field in fields]
        same = torch.stack([field[:, 1:] == field[:, :-1] for field in fields]).all(0)
        if rows.key_padding is not None:
            same &= ~fields[-1][:, 1:]
        if bool(same.any()):
            raise ValueError(
                f"k_positions must not repeat within a row where causal=True, got {int(fields[0][:, 1:][same][0])} "
                "twice: both keys would see each other. Give attn_mask for a tree of tokens, document_ids for packed "
                "documents, key_padding_mask for padding, or causal=False"
            )

    def part(self, queries: slice, keys: slice) -> "Mask":
        """The same mask for some of the queries and some of the keys."""
        cuts = dict.fromkeys(("q_positions", "q_documents"), queries)
        cuts |= dict.fromkeys(("k_positions", "k_documents", "key_padding"), keys)
        some = {name: getattr(self, name)[:, cut] for name, cut in cuts.items() if getattr(self, name) is not None}
        attn_mask = None if self.attn_mask is None else self.attn_mask[:, :, queries, keys]
        return replace(self, **some, attn_mask=attn_mask)

    def rises(self) -> bool:
        """True if each query sees the keys up to its own, all or the last ones. Reads values, so on a CPU only."""
        if torch.compiler.is_compiling() or not self.causal or self.q_positions.device.type != "cpu":
            return False
        plain = self.key_padding is None and self.q_documents is None and self.attn_mask is None
        rising = bool((self.q_positions.diff() > 0).all())
        return plain and rising and torch.equal(self.q_positions, self.k_positions)

    def counts(self) -> bool:
        """True if queries and keys are numbered one by one and every query's own key is there; no other rule hides any.

        Reads values, so on a CPU only.
        """
        m, n = self.q_positions, self.k_positions
        if not (m.is_cpu and readable(m) and readable(n) and m.numel() and n.numel()):
            return False
        plain = self.key_padding is None and self.q_documents is None and self.attn_mask is None
        alike = len(m) == len(n) == 1 or bool((m == m[:1]).all() and (n == n[:1]).all())
        by_one = bool((m.diff() == 1).all() and (n.diff() == 1).all())
        return plain and alike and by_one and bool(n[0, 0] <= m[0, 0] and m[0, -1] <= n[0, -1])

    def seen_by(self, start: int, stop: int) -> slice:
        """The keys that some of the queries may see, where it `rises`."""
        return slice(0 if self.window is None else max(0, start + 1 - self.window), stop)

    def is_lower_triangle(self) -> bool:
        """True if `dense` is SDPA's ``is_causal``, which is faster."""
        return self.window is None and self.rises()

    def mask_mod(self, batch: int) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`dense` as FlexAttention asks for it."""
        rows = self.expand(batch)
        only = replace(rows, causal=False, key_padding=None, q_documents=None, window=None)
        allowed = only.dense()  # that of attn_mask alone

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = rows.k_positions[b, j] <= rows.q_positions[b, i] if rows.causal else j >= 0
            if rows.window is not None:
                seen = seen & (rows.q_positions[b, i] - rows.k_positions[b, j] < rows.window)
            if rows.key_padding is not None:
                seen = seen & ~rows.key_padding[b, j]
            if rows.q_documents is not None and rows.k_documents is not None:
                seen = seen & (rows.q_documents[b, i] == rows.k_documents[b, j])
            if allowed is not None:
                seen = seen & allowed[b, h if len(allowed[0]) > 1 else 0, i, j]
            return seen

        return visible

    def expand(self, batch: int) -> "Mask":
        """The same mask with one row for every sequence of the batch."""
        names = ("q_positions", "k_positions", "key_padding", "q_documents", "k_documents")
        rows = {name: getattr(self, name) for name in names}
        rows = {name: row.expand(batch, -1) for name, row in rows.items() if row is not None}
        attn_mask = None if self.attn_mask is None else self.attn_mask.expand(batch, -1, -1, -1)
        return replace(self, **rows, attn_mask=attn_mask)

    def _check_in_order(self, name: str) -> None:
        """``ValueError`` unless keys rise in their documents and queries are the last of them: sums run along them."""
        if self.attn_mask is not None:
            raise ValueError(f"attn_mask must be None for {name}, which counts along all earlier keys; leave it out")
        at, last = self.k_positions, self.k_positions.shape[-1] - self.q_positions.shape[-1]
        if not readable(at) or not at.is_cpu:
            return
        if last < 0 or not bool((at[:, last:] == self.q_positions).all()):
            raise ValueError(
                f"q_positions must be the last of k_positions for {name}, which counts along the keys, got others; "
                "give the keys of the queries' own tokens, in the same order"
            )
        rows = self.expand(max(len(x) for x in (at, self.key_padding, self.k_documents) if x is not None))
        rises = rows.k_positions.diff() > 0
        if rows.k_documents is not None:
            next_one = rows.k_documents.diff()
            rises = (next_one > 0) | rises & (next_one == 0)
        if rows.key_padding is not None:
            pad = rows.key_padding
            begun = (~pad).cumsum(-1) > 0  # padding in front of a row, or behind it, is in nobody's way
            rises = rises & ~pad[:, :-1] | pad[:, 1:] | ~begun[:, :-1]
        if not bool(rises.all()):
            raise ValueError(
                f"k_positions, and before them document_ids, must rise along the row for {name}, which counts along "
                f"the keys, got {rows.k_positions[(~rises).any(-1)][0].tolist()[:16]}; sort tokens, padding in front"
            )
