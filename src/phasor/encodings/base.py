"""The shape that every encoding has: the places where a position can enter attention, each with a default of "nothing".

::

    x = encoding.embed(x, positions)                        # absolute: added to the token embeddings, once
    q, k = encoding.rotate(q, k, q_positions, k_positions)  # rotary: rotates q and k, in every layer
    scores = scale * q k^T + encoding.bias(...)             # relative: a term of the logits
    out = softmax(scores) v + encoding.values(...)          # relative: a term of the output (Shaw)

`phasor.attention` calls the last three. Positions are int64 ``[S]`` or ``[B, S]`` and always given: nothing
here counts tokens by itself. q is ``[B, H, Q, head_dim]``, k ``[B, H_kv, K, head_dim]``; m is a query's position and n
a key's.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class Encoding(nn.Module):
    """Base of all encodings: it does nothing, and each encoding overrides the methods where it acts.

    >>> encoding = Encoding()
    >>> encoding.embed(torch.ones(2), torch.arange(2)).tolist(), encoding.default_scale(64)
    ([1.0, 1.0], 0.125)
    """

    needs_weights = False  # True if `values` acts: the softmax weights must then exist as a tensor
    causal_only = False  # True if it places no keys behind the query

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Token embeddings ``[B, S, dim]`` with their positions written in."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with their positions written in. Rotated keys may be cached."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, scale: float) -> Tensor | None:
        """The term added to ``scale * q k^T``, broadcastable to ``[B, H, Q, K]``, float32 or float64; None if none."""
        return None

    def values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """The term added to ``weights @ v``, ``[B, H, Q, head_dim]``, from weights ``[B, H, Q, K]``; None if none."""
        return None

    def score_mod(self, q_positions: Tensor, k_positions: Tensor) -> ScoreMod | None:
        """`bias` as a FlexAttention ``score_mod``; None leaves the scores alone. Positions are ``[B, Q]``, ``[B, K]``.

        Raises ``ValueError`` where the encoding cannot be one.
        """
        return None

    def default_scale(self, head_dim: int) -> float:
        """What ``scale=None`` means, ``1 / sqrt(head_dim)``; raises ``ValueError`` where that would be a guess."""
        return head_dim**-0.5


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


def check_heads(encoding: Encoding, num_heads: int, q: Tensor, way_out: str = "") -> None:
    """Raise ``ValueError`` unless q has the heads that the encoding was made for."""
    if q.shape[1] != num_heads:
        name = type(encoding).__name__
        raise ValueError(f"q must have the {num_heads} heads that {name} was made for, got {q.shape[1]}{way_out}")
