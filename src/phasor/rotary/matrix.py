"""The rotation as a dense matrix, as the exponential of its generator, and as complex numbers: to read and to test.

None of these is a fast path. All agree with `phasor.apply_rotary`, whose docstring has the sign convention:
counter-clockwise, ``(R_m q) . (R_n k) = q . R_{n-m} k``.
"""

import torch
from torch import Tensor

from .kernels import reference
from .layout import Layout
from .rotation import Rotation
from .spec import RotarySpec


def rotation_matrix(rotation: Rotation) -> Tensor:
    """Dense ``R`` ``[..., S, D, D]`` with ``y = R x`` for column vectors; identity on channels that do not rotate.

    >>> quarter = Rotation.from_tables(torch.zeros(1, 1), torch.ones(1, 1), form="half")
    >>> rotation_matrix(quarter).tolist()
    [[[0.0, -1.0], [1.0, 0.0]]]
    """
    layout, cos = rotation.layout, rotation.cos
    eye = torch.eye(layout.head_dim, dtype=cos.dtype, device=cos.device)
    first, second = (cos, rotation.sin), rotation.second or (cos, rotation.sin)
    basis = eye.expand(*cos.shape[:-1], layout.head_dim, layout.head_dim)
    cos_1, sin_1, cos_2, sin_2 = (t.unsqueeze(-2) for t in (*first, *second))
    return reference.rotated(basis, cos_1, sin_1, layout, second=(cos_2, sin_2)).mT


def generator(spec: RotarySpec, seq_len: int | None = None) -> Tensor:
    """``J`` float64 ``[axes, D, D]``, skew-symmetric, with ``R(m) = exp(sum over axes of m_a J_a)``.

    Each pair contributes ``theta * [[0, -1], [1, 0]]`` on its own two channels. Built without the kernel, so that
    ``torch.matrix_exp(m * generator(spec)[0])`` is an independent definition of the rotation (without its magnitude).
    A ``permuted`` spec reorders the channels after that. Raises ``ValueError`` for ``second``, which is no group, and
    for learned frequencies, whose values a spec does not have.
    Source: RoFormer, arXiv:2104.09864, eq. 14-15, as a one-parameter group.

    >>> generator(RotarySpec(head_dim=2))[0].tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    if spec.second is not None or spec.learned:
        raise ValueError(
            f"spec must have fixed frequencies and one angle per pair for a generator, got {spec.describe()}"
        )
    weights = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float64, device="cpu")
    speeds = weights * spec.inv_freq(seq_len) * spec.position_scale * (-1 if spec.reverse else 1)
    first, second = spec.layout.split(torch.arange(spec.head_dim, device="cpu"))
    j = torch.zeros(spec.axes.count, spec.head_dim, spec.head_dim, dtype=torch.float64, device="cpu")
    j[:, first, second], j[:, second, first] = -speeds, speeds
    return j


def as_complex(x: Tensor, *, interleaved: bool = False) -> Tensor:
    """``[..., 2P]`` real -> ``[..., P]`` complex: channel pairs ``(a, b)`` as ``a + ib``, a copy.

    >>> as_complex(torch.tensor([1.0, 2.0]))
    tensor([1.+2.j])
    """
    return torch.complex(*Layout(head_dim=x.shape[-1], interleaved=interleaved).split(x))


def from_complex(z: Tensor, *, interleaved: bool = False) -> Tensor:
    """Inverse of `as_complex`, a copy.

    >>> from_complex(torch.tensor([1 + 3j, 2 + 4j]))
    tensor([1., 2., 3., 4.])
    """
    return Layout(head_dim=2 * z.shape[-1], interleaved=interleaved).join(z.real, z.imag)


def complex_form(rotation: Rotation) -> Tensor:
    """``cos + i sin`` ``[..., S, P]``: the rotation is multiplication by it (Meta's ``freqs_cis``).

    Scores need the conjugate of the key: ``(R_m q) . (R_n k) = Re sum_i q_i conj(k_i) exp(i (m - n) theta_i)``.

    >>> complex_form(Rotation.from_angles(torch.zeros(1, 1)))
    tensor([[1.+0.j]])
    """
    if rotation.second is not None:
        raise ValueError("rotation must have one angle per pair for a complex form, got one with second angles")
    return torch.complex(rotation.cos, rotation.sin)
