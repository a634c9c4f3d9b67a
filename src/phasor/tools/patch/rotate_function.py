"""Stand-ins for the functions with which models rotate q and k: the same arguments and results, rotated by phasor.

`CALLS` has one stand-in for each list of parameters that such functions have. ``rotate(q, k, cos, sin, order)`` is
phasor's, and gives a pair; ``order`` says where heads and tokens are. A model's function either says so by the place
at which it inserts the head axis into cos and sin, or always has the same order.

Those that take complex tables stay the model's own: `report.COMPLEX`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from itertools import product
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...rotary.apply import TensorFormat, apply_rotary_qk
from ...rotary.kernels.native import kernel as native
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...support.tracing import transformed
from .functions import Kind
from .swap import WRAPS, globals_of, members, with_globals, wrapping
from .tables import Form, per_pair

Order = TensorFormat | None
Rotate = Callable[[Tensor, Tensor | None, Tensor, Tensor, Order], tuple[Tensor, Tensor | None]]
Call = Callable[[Rotate, int, Order], Callable]


def order_of(table: Tensor, unsqueeze_dim: int) -> TensorFormat:
    """The order of tensors that fit ``table.unsqueeze(unsqueeze_dim)``, whose new axis stands for the heads."""
    from_end = unsqueeze_dim if unsqueeze_dim < 0 else unsqueeze_dim - (table.ndim + 1)
    return "bshd" if from_end == -2 else "bhsd"


def one_or_pair(rotate: Rotate, default: int, order: Order) -> Callable:
    def either(
        q: Tensor, k: Any = None, cos: Any = None, sin: Any = None, *, position_ids: Any = None,
        unsqueeze_dim: int = default,
    ) -> Any:  # fmt: skip
        rotated = rotate(q, k, cos, sin, order_of(cos, unsqueeze_dim))
        return rotated[0] if k is None else rotated

    return either


def fixed_pair(rotate: Rotate, default: int, order: Order) -> Callable:
    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return rotate(q, k, cos, sin, order)

    return both


def after_prefix(rotate: Rotate, default: int, order: Order) -> Callable:
    """Tables shorter than the sequence belong to its last tokens (DINOv3's class and register tokens do not rotate)."""

    def last(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        before = x.shape[-2] - cos.shape[-2]
        return torch.cat((x[..., :before, :], rotate(x[..., before:, :], None, cos, sin, "bhsd")[0]), dim=-2)

    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return last(q, cos, sin), last(k, cos, sin)

    return both


def gathered(rotate: Rotate, default: int, order: Order) -> Callable:
    """CLVP: tables of all positions, out of which ``position_ids`` choose; values rotate too."""

    def three(
        q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, unsqueeze_dim: int = default
    ) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin = cos[position_ids], sin[position_ids]
        where = order_of(cos, unsqueeze_dim)
        rotated = rotate(q, k, cos, sin, where)
        return rotated[0], rotated[1], rotate(v, None, cos, sin, where)[0]  # type: ignore[return-value]

    return three


def states(rotate: Rotate, default: int, order: Order) -> Callable:
    """The conformers: a method that rotates hidden states before they are projected, by stacked tables."""

    def method(self: Any, hidden_states: Tensor, relative_position_embeddings: Tensor) -> Tensor:
        cos, sin = relative_position_embeddings[:, : hidden_states.shape[1], 0, 0]
        heads = torch.unflatten(hidden_states, -1, (self.num_heads, self.head_size))
        return rotate(heads, None, cos, sin, "bshd")[0].flatten(-2)

    return method


def one(rotate: Rotate, default: int, order: Order) -> Callable:
    def alone(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None, *, unsqueeze_dim: int = default) -> Tensor:
        return rotate(x, None, cos, sin, order_of(cos, unsqueeze_dim))[0]

    return alone


def sin_first(rotate: Rotate, default: int, order: Order) -> Callable:
    def alone(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return rotate(tensor, None, cos, sin, order)[0]

    return alone


def sinusoidal(rotate: Rotate, default: int, order: Order) -> Callable:
    """RoFormer: one table ``[1, 1, S, 2P]``, all sines before all cosines; values rotate too if they are given."""

    def all_heads(sinusoidal_pos: Tensor, query_layer: Tensor, key_layer: Tensor, value_layer: Any = None) -> Any:
        sin, cos = sinusoidal_pos.squeeze(1).chunk(2, dim=-1)
        heads = (query_layer, key_layer) if value_layer is None else (query_layer, key_layer, value_layer)
        return tuple(rotate(x, None, cos, sin, "bhsd")[0] for x in heads)

    return all_heads


CALLS: dict[tuple[str, ...], Call] = {
    ("q", "k", "cos", "sin", "unsqueeze_dim"): one_or_pair,
    ("q", "k", "cos", "sin", "position_ids", "unsqueeze_dim"): one_or_pair,
    ("q", "k=None", "cos=None", "sin=None", "unsqueeze_dim"): one_or_pair,
    ("q", "k", "cos", "sin"): fixed_pair,
    ("q", "k", "cos", "sin", "**kwargs"): after_prefix,
    ("q", "k", "v", "cos", "sin", "position_ids", "unsqueeze_dim"): gathered,
    ("self", "hidden_states", "relative_position_embeddings"): states,
    ("x", "cos", "sin", "unsqueeze_dim"): one,
    ("x", "cos", "sin", "position_ids", "unsqueeze_dim"): one,
    ("tensor", "sin", "cos"): sin_first,
    ("sinusoidal_pos", "query_layer", "key_layer", "value_layer=None"): sinusoidal,
}


def parameters_of(function: Callable) -> tuple[tuple[str, ...], int]:
    """The parameters of a function that rotates, as `CALLS` lists them, and the default of its ``unsqueeze_dim``."""
    named, default = [], 1
    for p in signature(function).parameters.values():
        if p.name == "unsqueeze_dim":
            default = p.default
        left_out = p.default is None and p.name in ("k", "cos", "sin", "value_layer")
        named.append(f"**{p.name}" if p.kind is Parameter.VAR_KEYWORD else f"{p.name}=None" if left_out else p.name)
    return tuple(named), default


@dataclass(frozen=True)
class RotateFunction:
    """How one function of a model rotates: plain data, equal for all specs whose pairs lie alike.

    - ``parameters`` and the default ``unsqueeze_dim`` are those of the function; ``order`` is the order of heads and
      tokens where it has no such parameter; None: heads go to axis 1 of its tables, batched or not.
    - ``form``: that of the tables it is given; ``layout``: that of the heads.
    - ``promoted``: the result has the wider dtype of heads and tables; ``widened``: tables are widened before the
      products; ``backwards``: it rotates by minus the angle of its tables; ``sheared``: the second members of its pairs
      have angles of their own; ``latest``: queries that are fewer than the keys take the last rows of the tables.
    """

    parameters: tuple[str, ...]
    unsqueeze_dim: int
    order: TensorFormat | None
    form: Form
    layout: Layout
    promoted: bool = False
    widened: bool = False
    backwards: bool = False
    sheared: bool = False
    latest: bool = False
    kernel: str = "auto"

    def stand_in(self, fused: Any = None) -> Callable:
        """The stand-in: it takes and returns what the model's own function does. ``fused`` normalises, too."""
        stand_in: Callable = CALLS[self.parameters](self.rotating(fused), self.unsqueeze_dim, self.order)
        return stand_in

    def rotating(self, fused: Any = None) -> Rotate:
        """phasor's ``rotate`` as this function does it."""
        kernel = self.kernel

        def rotate(
            q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, order: TensorFormat | None
        ) -> tuple[Tensor, Tensor | None]:
            order = order or order_of(cos, 1)
            kept = getattr(cos, KEPT, None)
            if kept is not None and fused is None and native.is_open(kernel) and kept.fits(self, cos, sin, q):
                done = native.apply(q, k, kept.rotation, order, None, None)
                if done is not None:
                    return done  # type: ignore[no-any-return]
            # tables of another dtype than the heads: dots3's, for the layers that it computes in float32
            promoted = self.promoted and cos.dtype != q.dtype
            if fused is not None:
                return fused.rotate(q, k, self._rotation(cos, sin, q, promoted), order, kernel)
            if self.latest and k is not None and q.shape[-2] < k.shape[-2]:
                last = slice(-q.shape[-2], None)
                return rotate(q, None, cos[..., last, :], sin[..., last, :], order)[0], rotate(
                    k, None, cos, sin, order
                )[0]
            if k is not None and (k.dtype, k.shape[-1]) != (q.dtype, q.shape[-1]):
                return rotate(q, None, cos, sin, order)[0], rotate(k, None, cos, sin, order)[0]
            rotation = self._rotation(cos, sin, q, promoted)
            return apply_rotary_qk(q, k, rotation, tensor_format=order, kernel=kernel)

        return rotate

    def _rotation(self, cos: Tensor, sin: Tensor, q: Tensor, promoted: bool) -> Rotation:
        """The rotation of heads like ``q``, formed by the first layer that is given these tables."""
        width = q.shape[-1]
        if not keeps(cos, sin):
            return self._formed(cos, sin, width, promoted)
        kept: Kept | None = getattr(cos, KEPT, None)
        if kept is None or not kept.fits(self, cos, sin, q):
            counted = not (cos.is_inference() or sin.is_inference())
            kept = Kept(
                self, sin, width, q.dtype,
                (cos._version, sin._version) if counted else None,
                () if counted else (cos.clone(), sin.clone()),
                self._formed(cos, sin, width, promoted, kept=True),
            )  # fmt: skip
            setattr(cos, KEPT, kept)
        return kept.rotation

    def _formed(self, cos: Tensor, sin: Tensor, width: int, promoted: bool, kept: bool = False) -> Rotation:
        whole = self.layout
        more: dict[str, Any] = {}
        if self.sheared:
            more["second"] = tuple(t[..., t.shape[-1] // 2 :] for t in (cos, sin))
        cos, sin = per_pair(cos, self.form, whole.blocks), per_pair(sin, self.form, whole.blocks)
        if kept:  # copies, because a view would keep the tensor that keeps it
            cos, sin = cos.clone(), sin.clone()
            more = {name: tuple(t.clone() for t in tables) for name, tables in more.items()}
        if self.widened:
            cos, sin = cos.float(), sin.float()
            more = {name: tuple(t.float() for t in tables) for name, tables in more.items()}
        layout = whole if width == whole.head_dim else replace(whole, head_dim=width)  # heads may be cut before
        sin = -sin if self.backwards else sin
        return Rotation(cos=cos, sin=sin, layout=layout, promoted=promoted, **more)


ROUNDINGS: tuple[dict[str, Any], ...] = ({"promoted": True}, {}, {"widened": True})


def ways(
    layout: Layout,
    form: Form,
    backwards: Sequence[bool] = (False, True),
    parameters: tuple[str, ...] = (),
    unsqueeze_dim: int = 1,
    orders: Sequence[Order] = (None,),
    **more: Any,
) -> Iterator[RotateFunction]:
    """Every way to rotate heads of a layout by tables of a form, rounded as models round it."""
    for order, back, rounding in product(orders, backwards, ROUNDINGS):
        yield RotateFunction(parameters, unsqueeze_dim, order, form, layout, backwards=back, **rounding, **more)


class Kept(NamedTuple):
    """A rotation and what it was made of, beside the cosines of which it was made."""

    function: RotateFunction
    sin: Tensor
    width: int
    dtype: torch.dtype
    versions: tuple[int, int] | None  # None: no version tells that these tables were written to
    copies: tuple[Tensor, ...]
    rotation: Rotation

    def fits(self, function: RotateFunction, cos: Tensor, sin: Tensor, q: Tensor) -> bool:
        """Whether it is still what ``function`` makes of these tables for heads like ``q``."""
        if self.function is not function or self.sin is not sin or self.dtype != q.dtype or self.width != q.shape[-1]:
            return False
        if cos.requires_grad or sin.requires_grad:
            return False
        if self.versions is not None:
            return self.versions == (cos._version, sin._version)
        return torch.equal(cos, self.copies[0]) and torch.equal(sin, self.copies[1])


KEPT = "_phasor_rotation"  # the attribute of a table under which the rotation that it makes is kept, while it lives


def keeps(cos: Tensor, sin: Tensor) -> bool:
    """Whether a table can hold what was made of it, and be seen to change."""
    return not (
        transformed()
        or type(cos) is not Tensor
        or (torch.is_grad_enabled() and (cos.requires_grad or sin.requires_grad))
        or (not cos.is_cpu and cos.is_inference())  # to compare values would wait for the device
    )


@dataclass(frozen=True)
class Rotating:
    """A function of a model by its ``name``, and how it rotates; ``given``: its `Given`, where no names tell that.

    ``kind``: how its module finds it, as in `Holder`; ``method``: the one in which a local function is made.
    """

    name: str
    kind: Kind
    function: RotateFunction
    given: Any = None
    method: str = ""

    def stand_in(self, own: Any, fused: Any = None) -> Any:
        """What is called instead of the model's ``own`` function."""
        if self.given is None:
            return self.function.stand_in(fused)
        return self.given.stand_in(self.function, own, takes_self=self.kind == "method")


@dataclass(frozen=True)
class RotatingModule:
    """Methods for a module that rotates: copies of its own, in which the stand-ins have the names of the functions."""

    functions: tuple[Rotating, ...]

    def methods(self, cls: type[nn.Module], fused: Any = None) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for f in self.functions:
            if "method" in f.kind:
                stand_in = f.stand_in(getattr(cls, f.name), fused)
                made[f.name] = stand_in if f.kind == "method" else staticmethod(stand_in)
        found = {f.name: f for f in self.functions if f.kind == "function"}
        for name, value in members(cls).items():
            known = globals_of(value) if name not in made else {}
            changes = {n: found[n].stand_in(known[n], fused) for n in found.keys() & known.keys()}
            local = {f.name: f.stand_in for f in self.functions if f.kind == "local" and f.method == name}
            if local:
                wraps = {f"{WRAPS}{n}": stand_in for n, stand_in in local.items()}
                made[name] = with_globals(value, changes | wraps, wrapping(value, tuple(local)))
            elif isinstance(value, FunctionType) and changes:
                made[name] = with_globals(value, changes)
            elif changes:  # a static or class method
                made[name] = type(value)(with_globals(value.__func__, changes))
        return made
