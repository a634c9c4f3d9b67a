"""apply_rotary: the one way to rotate queries and keys. Checks, then the kernel.

Each call tries the short ways (`short_ways`) first, which look at the tensors themselves; then, of DTensors, the parts
that are here; and then the long way, `_rotate`, behind all checks.
"""

from functools import partial
from typing import Any

from torch import Tensor

from ..kernels import Angles, choose
from ..rotation import Rotation
from ..spec import RotarySpec
from ..tables import Phases
from . import short_ways
from .formats import TensorFormat, order_of
from .input_checks import check_angles, check_fits, check_gradient, check_pair, check_tensor, unflat
from .outputs import check_out
from .sharded import is_sharded, on_shards, pair_on_shards


def apply_rotary(
    x: Tensor,
    rotation: Rotation,
    *,
    tensor_format: TensorFormat = "bhsd",
    num_heads: int | None = None,
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotate ``x`` by ``rotation``: ``y = R x`` for every token and head. A new, contiguous tensor.

    ``x`` is float64, float32, float16 or bfloat16, of any strides:

    - ``"bhsd"`` ``[..., heads, seq, head_dim]``, the order of SDPA, and ``"bshd"`` ``[..., seq, heads, head_dim]``;
    - ``"sbhd"`` ``[seq, batch, heads, head_dim]`` (Megatron);
    - ``"thd"`` ``[tokens, heads, head_dim]``: documents packed end to end, one position per token
      (`phasor.positions.packed`, or `Rotation.take` of a table);
    - with ``num_heads`` the last two axes are one, ``heads * head_dim`` (not for ``"bhsd"``).

    The rotation's length must be that of the sequence, and its batch, if it has one, that of ``x``. An order of axes
    that is not the tensor's raises by that, unless there are as many tokens as heads: then no shape can tell. The
    result has the dtype of ``x``, or, of a ``promoted`` rotation, the wider one of its tables. The gradient is the
    transposed rotation of the gradient, and nothing of ``x`` is kept for it.

    ``x`` must not be rotated already. A rotation with an attention factor (YaRN, LongRoPE) multiplies by it each time,
    and no shape can tell, so keys of a cache are moved with `shift` or `reposition`.

    ``kernel``: ``"auto"`` takes the first of `phasor.kernels.available` that can; a named one runs or raises.
    ``out`` is written and returned; it has the shape of ``x``, may be ``x`` itself (in place), and not where a gradient
    is needed.

    Raises ``ValueError`` for a rank, length, batch, head count, width, dtype or device that does not fit, for a kernel
    that cannot, and for an ``out`` that overlaps anything in part.

    >>> import torch
    >>> spec = RotarySpec(head_dim=4)
    >>> x = torch.ones(1, 1, 2, 4)
    >>> y = apply_rotary(x, Rotation.at(spec, torch.tensor([0, 1])))
    >>> bool((y[0, 0, 0] == x[0, 0, 0]).all()), bool((y[0, 0, 1] == x[0, 0, 1]).all())
    (True, False)
    """
    done = short_ways.by_tables(kernel, x, None, rotation, tensor_format, num_heads, out)
    if done is not None:
        return done[0]
    check_angles("rotation", rotation)
    if is_sharded(x):
        rotated = partial(apply_rotary, tensor_format=tensor_format, kernel=kernel)
        return on_shards("x", x, rotation, tensor_format, num_heads, out, rotated)  # type: ignore[no-any-return]
    return _rotate(x, None, rotation, tensor_format, num_heads, kernel, out, ("x", "k"))[0]


def apply_rotary_qk(
    q: Tensor,
    k: Tensor | None,
    rotation: Rotation,
    *,
    k_rotation: Rotation | None = None,
    tensor_format: TensorFormat = "bhsd",
    num_heads: int | None = None,
    kernel: str = "auto",
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`apply_rotary` for queries and keys; head counts may differ (grouped-query attention).

    Both are of the same tokens, unless ``k_rotation`` is given: then k has tokens of its own. ``k`` may be None, and
    stays it. ``num_heads`` are those of q; ``out`` is a pair.

    >>> import torch
    >>> r = Rotation.at(RotarySpec(head_dim=4), torch.arange(3))
    >>> q, k = apply_rotary_qk(torch.ones(1, 3, 8), torch.ones(1, 3, 4), r, tensor_format="bshd", num_heads=2)
    >>> q.shape, k.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 3, 4]))
    """
    done = short_ways.by_tables(kernel, q, k, rotation, tensor_format, num_heads, out, k_rotation)
    if done is not None:
        return done  # type: ignore[return-value]
    check_angles("rotation", rotation)
    if is_sharded(q):
        rotated = partial(apply_rotary, tensor_format=tensor_format, kernel=kernel)
        at, width = (rotation, k_rotation or rotation), rotation.layout.head_dim
        return pair_on_shards(q, k, at, tensor_format, num_heads, width, out, (rotated, rotated))
    if k_rotation is not None and k is not None:
        check_angles("k_rotation", k_rotation)
    return _rotate(q, k, rotation, tensor_format, num_heads, kernel, out, k_angles=k_rotation)  # type: ignore[return-value]


def rotate(
    q: Tensor,
    k: Tensor | None,
    positions: Tensor,
    spec: RotarySpec,
    *,
    k_positions: Tensor | None = None,
    seq_len: int | None = None,
    tensor_format: TensorFormat = "bhsd",
    num_heads: int | None = None,
    kernel: str = "auto",
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys of the tokens at ``positions`` by ``spec``: the usual call, phases inside.

    ``positions`` is ``[seq]`` or ``[batch, seq]``, with a leading axis dimension if the spec has several axes; those of
    k are the same, unless ``k_positions`` are given. The rest as in `apply_rotary_qk`. In a model with many layers of
    one spec, build ``Rotation.at(spec, positions)`` once and call `apply_rotary_qk`.

    >>> import torch
    >>> q, k = rotate(torch.ones(1, 2, 3, 4), torch.ones(1, 1, 3, 4), torch.arange(3), RotarySpec(head_dim=4))
    >>> q.shape, k.shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 1, 3, 4]))
    """
    done = short_ways.by_phases(kernel, q, k, positions, spec, seq_len, tensor_format, num_heads, out, k_positions)
    if done is not None:
        return done  # type: ignore[return-value]
    check_tensor("q", q)
    if is_sharded(q):
        more: Any = {"seq_len": seq_len, "tensor_format": tensor_format, "kernel": kernel}

        def rotated(x: Tensor, at: Tensor, num_heads: int | None, out: Any) -> Tensor:
            return rotate(x, None, at, spec, num_heads=num_heads, out=None if out is None else (out, out), **more)[0]

        both, several = (positions, positions if k_positions is None else k_positions), spec.axes.count > 1
        return pair_on_shards(q, k, both, tensor_format, num_heads, spec.head_dim, out, (rotated, rotated), several)
    at = Phases(spec, positions, seq_len, dtype=q.dtype)
    k_at = None
    if k_positions is not None and k is not None:
        check_tensor("k", k)
        k_at = Phases(spec, k_positions, seq_len, dtype=k.dtype)
    return _rotate(q, k, at, tensor_format, num_heads, kernel, out, k_angles=k_at)  # type: ignore[return-value]


def _rotate(
    q: Tensor,
    k: Tensor | None,
    angles: Angles,
    tensor_format: str,
    num_heads: int | None,
    kernel: str,
    out: Any,
    names: tuple[str, str] = ("q", "k"),
    k_angles: Angles | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Checks, then the kernel. ``k_angles``: of k's own tokens; then q and k are rotated one after the other."""
    order, flat_out, of_k = order_of(tensor_format), out, angles if k_angles is None else k_angles
    if num_heads is not None:
        widths = (angles.layout.head_dim, of_k.layout.head_dim)
        q = unflat(names[0], q, widths[0], tensor_format, num_heads)
        k = unflat(names[1], k, widths[1], tensor_format)
        if isinstance(out, tuple | list):
            out = [unflat("out", y, widths[i > 0], tensor_format) for i, y in enumerate(out)]
        else:
            out = unflat("out", out, widths[0], tensor_format)
    check_fits(names[0], q, angles, order, tensor_format)
    if k is not None:
        check_fits(names[1], k, of_k, order, tensor_format)
        check_gradient(k, of_k)
        if k_angles is None:
            check_pair(q, k)
    check_gradient(q, angles)
    pair = None if out is None else check_out(out, q, k, angles, names, of_k)
    if k is None or k_angles is None:
        y, z = choose(kernel, q, k, angles).rotate(q, k, angles, order, pair)
    else:
        each = ((q, angles), (k, k_angles))
        y, z = (choose(kernel, x, None, by).rotate(x, None, by, order, None)[0] for x, by in each)
        if pair is not None and pair[1] is not None:  # written when both are formed: what is refused changes nothing
            y, z = pair[0].copy_(y), pair[1].copy_(z)
    if num_heads is None:
        return y, z
    if flat_out is not None:
        return (flat_out[0], flat_out[1]) if isinstance(flat_out, tuple | list) else (flat_out, None)
    return y.flatten(-2), None if z is None else z.flatten(-2)
