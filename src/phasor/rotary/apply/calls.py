"""apply_rotary: the one way to rotate queries and keys. Checks, then the kernel."""

from typing import Any

from torch import Tensor

from ..kernels import Angles, choose
from ..kernels.native import kernel as native
from ..kernels.triton import plans
from ..rotation import Rotation
from ..spec import RotarySpec
from ..tables import Phases
from .fit import check_angles, check_fits, check_gradient, check_pair, check_tensor
from .formats import TensorFormat, order_of, unflat
from .outputs import check_out
from .sharded import is_sharded, on_shards


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
    if native.is_open(kernel):
        done = native.apply(x, None, rotation, tensor_format, num_heads, out)
        if done is not None:
            return done[0]  # type: ignore[no-any-return]
    if plans.is_open(kernel) and num_heads is None:
        done = plans.apply(x, None, rotation, tensor_format, out)
        if done is not None:
            return done[0]  # type: ignore[no-any-return]
    if is_sharded(x):
        check_angles("rotation", rotation)
        return _sharded("x", x, rotation, tensor_format, num_heads, kernel, out)
    check_angles("rotation", rotation)
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
    if native.is_open(kernel):
        done = native.apply(q, k, rotation, tensor_format, num_heads, out, k_rotation)
        if done is not None:
            return done  # type: ignore[no-any-return]
    if plans.is_open(kernel) and num_heads is None and k_rotation is None:
        done = plans.apply(q, k, rotation, tensor_format, out)
        if done is not None:
            return done  # type: ignore[return-value]
    check_angles("rotation", rotation)
    if is_sharded(q):
        y, z = out or (None, None)
        y = _sharded("q", q, rotation, tensor_format, num_heads, kernel, y)
        of_k = None if num_heads is None or k is None else k.shape[-1] // rotation.layout.head_dim
        if k is not None:
            z = _sharded("k", k, k_rotation or rotation, tensor_format, of_k, kernel, z)
        return y, z  # type: ignore[return-value]
    if k_rotation is None or k is None:
        return _rotate(q, k, rotation, tensor_format, num_heads, kernel, out)  # type: ignore[return-value]
    check_angles("k_rotation", k_rotation)
    return _rotate_apart(q, k, rotation, k_rotation, tensor_format, num_heads, kernel, out)


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
    if native.is_open(kernel):
        done = native.rotate(q, k, positions, spec, seq_len, tensor_format, num_heads, out, k_positions)
        if done is not None:
            return done  # type: ignore[no-any-return]
    if plans.is_open(kernel) and num_heads is None and k_positions is None and seq_len is None:
        done = plans.rotate(q, k, positions, spec, tensor_format, out)
        if done is not None:
            return done  # type: ignore[return-value]
    check_tensor("q", q)
    if is_sharded(q):
        y, z = out or (None, None)
        more: Any = {"seq_len": seq_len, "tensor_format": tensor_format, "kernel": kernel}
        of_k = None if num_heads is None or k is None else k.shape[-1] // spec.head_dim

        def rotated(x: Tensor, at: Tensor, heads: int | None, into: Any) -> Tensor:
            return rotate(x, None, at, spec, num_heads=heads, out=None if into is None else (into, into), **more)[0]

        y = on_shards("q", q, positions, tensor_format, num_heads, y, rotated, spec.axes.count > 1)
        at_k = positions if k_positions is None else k_positions
        if k is not None:
            z = on_shards("k", k, at_k, tensor_format, of_k, z, rotated, spec.axes.count > 1)
        return y, z  # type: ignore[return-value]
    at = Phases(spec, positions, seq_len, dtype=q.dtype)
    if k_positions is None or k is None:
        return _rotate(q, k, at, tensor_format, num_heads, kernel, out)  # type: ignore[return-value]
    k_at = Phases(spec, k_positions, seq_len, dtype=q.dtype)
    return _rotate_apart(q, k, at, k_at, tensor_format, num_heads, kernel, out)


def _sharded(
    name: str, x: Any, rotation: Rotation, tensor_format: TensorFormat, num_heads: int | None, kernel: str, out: Any
) -> Any:
    def rotated(part: Tensor, own: Rotation, heads: int | None, into: Tensor | None) -> Tensor:
        return apply_rotary(part, own, tensor_format=tensor_format, num_heads=heads, kernel=kernel, out=into)

    return on_shards(name, x, rotation, tensor_format, num_heads, out, rotated)


def _rotate(
    q: Tensor,
    k: Tensor | None,
    angles: Angles,
    tensor_format: str,
    num_heads: int | None,
    kernel: str,
    out: Any,
    names: tuple[str, str] = ("q", "k"),
) -> tuple[Tensor, Tensor | None]:
    order, given = order_of(tensor_format), out
    if num_heads is not None:
        head_dim = angles.layout.head_dim
        q, k = unflat(names[0], q, head_dim, tensor_format, num_heads), unflat(names[1], k, head_dim, tensor_format)
        if out is not None:
            out = [unflat("out", y, head_dim, tensor_format) for y in (out if isinstance(out, tuple | list) else [out])]
            out = out[0] if len(out) == 1 else out
    check_fits(names[0], q, angles, order, tensor_format)
    if k is not None:
        check_fits(names[1], k, angles, order, tensor_format)
        check_pair(q, k)
        check_gradient(k, angles)
    check_gradient(q, angles)
    pair = None if out is None else check_out(out, q, k, angles, names)
    y, z = choose(kernel, q, k, angles).rotate(q, k, angles, order, pair)
    if num_heads is None:
        return y, z
    if given is not None:
        return (given[0], given[1]) if isinstance(given, tuple | list) else (given, None)
    return y.flatten(-2), None if z is None else z.flatten(-2)


def _rotate_apart(
    q: Tensor,
    k: Tensor,
    angles: Angles,
    k_angles: Angles,
    tensor_format: str,
    num_heads: int | None,
    kernel: str,
    out: Any,
) -> tuple[Tensor, Tensor]:
    """q and k of different tokens, one after the other."""
    check_tensor("k", k)
    of_k = None if num_heads is None else k.shape[-1] // k_angles.layout.head_dim
    y, _ = _rotate(q, None, angles, tensor_format, num_heads, kernel, None)
    z, _ = _rotate(k, None, k_angles, tensor_format, of_k, kernel, None, ("k", "k"))
    if out is None:
        return y, z
    q_out, k_out = check_out(out, q, k, angles, ("q", "k"))  # written when both are formed and checked
    assert k_out is not None
    return q_out.copy_(y), k_out.copy_(z)
