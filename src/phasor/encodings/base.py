"""The shape that every encoding has: the places where a position can enter attention, each with a default of "nothing".

::

    x = encoding.embed(x, positions)                        # absolute: added to the token embeddings, once
    q, k = encoding.rotate(q, k, q_positions, k_positions)  # rotary: rotates q and k, in every layer
    gates = encoding.gates(hidden, positions)               # what a token's hidden state decides, cached with its key
    logits = scale * q k^T + encoding.bias(...)             # relative: a term of the logits
    logits = scale * q k^T + encoding.content_bias(...)     # the same where gates or visible keys decide
    weights = encoding.weights(logits, tokens)              # softmax, unless the encoding has something else
    out = weights v + encoding.values(...)                  # relative: a term of the output (Shaw)

`phasor.attention` calls all but the first. Positions are int64 ``[S]`` or ``[B, S]`` and always given: nothing
here counts tokens by itself. q is ``[B, H, Q, head_dim]``, k ``[B, H_kv, K, head_dim]``; m is a query's position and n
a key's.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature

import torch
from torch import Tensor, nn

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Tokens:
    """What one call of attention knows beside q, k and v. Positions are rows ``[B, S]``, or ``[1, S]`` for all.

    ``visible`` is True where a query may see a key, ``[B or 1, H or 1, Q, K]``, or None if it may everywhere; ``gates``
    are what `Encoding.gates` made of all keys' tokens, ``[B, heads, K, n]``.

    >>> at = torch.tensor([[0, 1]])
    >>> nothing = Tokens(at, at, visible=torch.zeros(1, 1, 2, 2, dtype=torch.bool))
    >>> Encoding().weights(torch.zeros(1, 1, 2, 2), nothing).tolist()
    [[[[0.0, 0.0], [0.0, 0.0]]]]
    """

    q_positions: Tensor
    k_positions: Tensor
    visible: Tensor | None = None
    gates: Tensor | None = None


class Encoding(nn.Module):
    """Base of all encodings: it does nothing, and each encoding overrides the methods where it acts.

    >>> encoding = Encoding()
    >>> encoding.embed(torch.ones(2), torch.arange(2)).tolist(), encoding.default_scale(64)
    ([1.0, 1.0], 0.125)
    """

    needs_weights = False  # True if `values` or `weights` acts: the weights must then exist as a tensor
    causal_only = False  # True if it places no keys behind the query
    in_order = False  # True if sums run along the keys: they must lie in memory in the order of their positions
    whole_only = False  # True if a key behind the query changes its row: no cache, padding or packing leaves it alone
    axes = 1  # how many coordinates of a token it goes by
    window: int | None = None  # how far back a query sees, its own key among them; None for everything
    reach = 0  # how many tokens before its own a gate depends on

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings ``[B, S, dim]`` with their positions written in."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with their positions written in. Rotated keys may be cached."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor | None:
        """The term added to ``scale * q k^T``, broadcastable to ``[B, H, Q, K]``, float32 or float64; None if none."""
        return None

    def by_distance(self, r: Tensor, latest: int, dtype: torch.dtype) -> Tensor | None:
        """`bias` of ``r = n - m`` alone, ``[H, L]`` of int64 ``[L]``, for queries up to position ``latest``; else None.

        Where tokens are numbered one by one, attention reads all pairs from that row.
        """
        return None

    @property
    def gated(self) -> bool:
        """Whether it has gates, so that attention needs the hidden states."""
        return type(self).gates is not Encoding.gates

    def gates(self, hidden: Tensor, positions: Tensor) -> Tensor | None:
        """What the hidden states ``[B, S, dim]`` decide token by token, ``[B, heads, S, n]``; None if nothing.

        A `KVCache` keeps it beside the keys. ``positions`` ``[B or 1, S]`` tell where `reach` crosses a document: to
        those with a `reach`, attention gives numbers that rise by one inside a document and by more between two.
        """
        return None

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor | None:
        """`bias`, for encodings that also need the gates, or which keys a query may see."""
        return self.bias(q, k, tokens.q_positions, tokens.k_positions, scale)

    def weights(self, logits: Tensor, tokens: Tokens) -> Tensor:
        """What the values are summed with, ``[B, H, Q, K]``: the softmax over visible keys; zeros where none is."""
        if tokens.visible is None:
            return logits.softmax(dim=-1)
        hidden = logits.masked_fill(~tokens.visible, torch.finfo(logits.dtype).min)
        return hidden.softmax(dim=-1) * tokens.visible  # only a row without a visible key has weight elsewhere

    def values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """The term added to ``weights @ v``, ``[B, H, Q, head_dim]``, from weights ``[B, H, Q, K]``; None if none."""
        return None

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod | None:
        """`bias` as a FlexAttention ``score_mod``; None leaves the scores alone. Positions are ``[B, Q]``, ``[B, K]``.

        Raises ``ValueError`` where the encoding cannot be one.
        """
        if type(self).bias is Encoding.bias and type(self).content_bias is Encoding.content_bias:
            return None
        raise ValueError(
            f"kernel='flex' cannot compute {type(self).__name__}: its logits need more than one score; "
            f"use kernel={'reference' if self.needs_weights else 'sdpa'!r}"
        )

    def content_score_mod(self, tokens: Tokens) -> ScoreMod | None:
        """`score_mod`, for encodings that also need the gates. ``tokens.visible`` is not formed here."""
        return self.score_mod(tokens.q_positions, tokens.k_positions)

    def default_scale(self, head_dim: int) -> float:
        """What ``scale=None`` means, ``1 / sqrt(head_dim)``; raises ``ValueError`` where that would be a guess."""
        return head_dim**-0.5

    def extra_repr(self) -> str:
        """The spec, and the arguments that it was made with and keeps under their names."""
        kept = {name: vars(self).get(name) for name in ("spec", *signature(type(self)).parameters)}
        return ", ".join(
            f"{name}={value}" for name, value in kept.items() if value is not None and not isinstance(value, Tensor)
        )


def distances(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """``m - n`` for every query and key, int64 ``[Q, K]``, or ``[B, Q, K]`` if either comes in rows.

    >>> distances(torch.tensor([5]), torch.tensor([4, 5, 6])).tolist()
    [[1, 0, -1]]
    """
    return q_positions.unsqueeze(-1) - k_positions.unsqueeze(-2)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that logits are formed in: float64 stays, everything below becomes float32.

    >>> wide(torch.bfloat16), wide(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.promote_types(dtype, torch.float32)


def exactly(x: Tensor) -> AbstractContextManager[object]:
    """Where autocast rounds nothing: sums of waves or of gates would have three digits.

    >>> one = torch.ones(1, 1)
    >>> with torch.autocast("cpu"), exactly(one):
    ...     (one @ one).dtype
    torch.float32
    """
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def for_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or gates ``[B, H_kv, ...]`` repeated for all query heads.

    >>> for_heads(torch.tensor([[1, 2]]), 4).tolist()
    [[1, 1, 2, 2]]
    """
    if heads % x.shape[1]:
        raise ValueError(f"the heads of gates and keys must divide those of q, {heads}, got {x.shape[1]}")
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def check_heads(encoding: Encoding, num_heads: int, q: Tensor, way_out: str = "", k: Tensor | None = None) -> None:
    """Raise ``ValueError`` unless q, and k if given, have the heads that the encoding was made for."""
    own = ", each with a rotation of its own, got {}; repeat_interleave the shared heads of k and v"
    for of, x, says in (("q", q, ", got {}" + way_out), ("k", k, own)):
        if x is not None and x.shape[1] != num_heads:
            name = type(encoding).__name__
            raise ValueError(f"{of} must have the {num_heads} heads that {name} was made for{says.format(x.shape[1])}")
