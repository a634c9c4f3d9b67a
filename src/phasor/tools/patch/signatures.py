"""The ways in which models call the functions that turn: one stand-in for each list of parameters.

``turn(q, k, cos, sin, order)`` is phasor's, and gives a pair; ``order`` says where heads and tokens are. A model's
function either says so by the place at which it inserts the head axis into cos and sin, or always has the same order.

Those that take complex tables are compared and never replaced: `reasons.COMPLEX`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...rotary.apply import TensorFormat

Order = TensorFormat | None
Turn = Callable[[Tensor, Tensor | None, Tensor, Tensor, Order], tuple[Tensor, Tensor | None]]
Call = Callable[[Turn, int, Order], Callable]


def order_of(table: Tensor, unsqueeze_dim: int) -> TensorFormat:
    """The order of tensors that fit ``table.unsqueeze(unsqueeze_dim)``, whose new axis stands for the heads."""
    from_end = unsqueeze_dim if unsqueeze_dim < 0 else unsqueeze_dim - (table.ndim + 1)
    return "bshd" if from_end == -2 else "bhsd"


def pair(turn: Turn, default: int, order: Order) -> Callable:
    def both(
        q: Tensor, k: Any, cos: Tensor, sin: Tensor, *, position_ids: Any = None, unsqueeze_dim: int = default
    ) -> Any:
        return turn(q, k, cos, sin, order_of(cos, unsqueeze_dim))

    return both


def one_or_pair(turn: Turn, default: int, order: Order) -> Callable:
    def either(q: Tensor, k: Any = None, cos: Any = None, sin: Any = None, *, unsqueeze_dim: int = default) -> Any:
        turned = turn(q, k, cos, sin, order_of(cos, unsqueeze_dim))
        return turned[0] if k is None else turned

    return either


def fixed_pair(turn: Turn, default: int, order: Order) -> Callable:
    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return turn(q, k, cos, sin, order)

    return both


def after_prefix(turn: Turn, default: int, order: Order) -> Callable:
    """Tables shorter than the sequence belong to its last tokens (DINOv3's class and register tokens do not turn)."""

    def last(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        before = x.shape[-2] - cos.shape[-2]
        return torch.cat((x[..., :before, :], turn(x[..., before:, :], None, cos, sin, "bhsd")[0]), dim=-2)

    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return last(q, cos, sin), last(k, cos, sin)

    return both


def gathered(turn: Turn, default: int, order: Order) -> Callable:
    """CLVP: tables of all positions, out of which ``position_ids`` choose; values turn too."""

    def three(
        q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, unsqueeze_dim: int = default
    ) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin = cos[position_ids], sin[position_ids]
        where = order_of(cos, unsqueeze_dim)
        turned = turn(q, k, cos, sin, where)
        return turned[0], turned[1], turn(v, None, cos, sin, where)[0]  # type: ignore[return-value]

    return three


def states(turn: Turn, default: int, order: Order) -> Callable:
    """The conformers: a method that turns hidden states before they are projected, by stacked tables."""

    def method(self: Any, hidden_states: Tensor, relative_position_embeddings: Tensor) -> Tensor:
        cos, sin = relative_position_embeddings[:, : hidden_states.shape[1], 0, 0]
        heads = torch.unflatten(hidden_states, -1, (self.num_heads, self.head_size))
        return turn(heads, None, cos, sin, "bshd")[0].flatten(-2)

    return method


def one(turn: Turn, default: int, order: Order) -> Callable:
    def alone(x: Tensor, cos: Tensor, sin: Tensor, *, unsqueeze_dim: int = default) -> Tensor:
        return turn(x, None, cos, sin, order_of(cos, unsqueeze_dim))[0]

    return alone


def one_of_grid(turn: Turn, default: int, order: Order) -> Callable:
    def alone(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Any, *, unsqueeze_dim: int = default) -> Tensor:
        return turn(x, None, cos, sin, order_of(cos, unsqueeze_dim))[0]

    return alone


def sin_first(turn: Turn, default: int, order: Order) -> Callable:
    def alone(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return turn(tensor, None, cos, sin, order)[0]

    return alone


def sinusoidal(turn: Turn, default: int, order: Order) -> Callable:
    """RoFormer: one table ``[1, 1, S, 2P]``, all sines before all cosines; values turn too if they are given."""

    def all_given(sinusoidal_pos: Tensor, query_layer: Tensor, key_layer: Tensor, value_layer: Any = None) -> Any:
        sin, cos = sinusoidal_pos.squeeze(1).chunk(2, dim=-1)
        given = (query_layer, key_layer) if value_layer is None else (query_layer, key_layer, value_layer)
        return tuple(turn(x, None, cos, sin, "bhsd")[0] for x in given)

    return all_given


def complex_pair(turn: Turn, default: int, order: Order) -> Callable:
    def both(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> Any:
        return turn(xq, xk, freqs_cis.real, freqs_cis.imag, order)

    return both


def complex_vision(turn: Turn, default: int, order: Order) -> Callable:
    """Llama 4's tower: ``[B, S, H, D]`` heads, and a table of all patches in any shape of ``S * P`` values."""

    def named(query: Tensor, key: Tensor, freqs_ci: Tensor) -> Any:
        table = freqs_ci.reshape(query.shape[1], query.shape[-1] // 2)
        return turn(query, key, table.real, table.imag, "bshd")

    return named


CALLS: dict[tuple[str, ...], Call] = {
    ("q", "k", "cos", "sin", "unsqueeze_dim"): pair,
    ("q", "k", "cos", "sin", "position_ids", "unsqueeze_dim"): pair,
    ("q", "k=None", "cos=None", "sin=None", "unsqueeze_dim"): one_or_pair,
    ("q", "k", "cos", "sin"): fixed_pair,
    ("q", "k", "cos", "sin", "**kwargs"): after_prefix,
    ("q", "k", "v", "cos", "sin", "position_ids", "unsqueeze_dim"): gathered,
    ("self", "hidden_states", "relative_position_embeddings"): states,
    ("x", "cos", "sin", "unsqueeze_dim"): one,
    ("x", "cos", "sin", "position_ids", "unsqueeze_dim"): one_of_grid,
    ("tensor", "sin", "cos"): sin_first,
    ("sinusoidal_pos", "query_layer", "key_layer", "value_layer=None"): sinusoidal,
    ("xq", "xk", "freqs_cis"): complex_pair,
    ("query", "key", "freqs_ci"): complex_vision,
}
