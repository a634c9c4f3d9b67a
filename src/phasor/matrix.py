"""The rotation as a dense matrix, as the exponential of its generator, and as complex numbers: to read and to test.

None of these is a fast path. All agree with `phasor.apply_rotary`, whose docstring has the sign convention:
counter-clockwise, ``(R_m q) . (R_n k) = q . R_{n-m} k``.
"""

import torch
from torch import Tensor

from .kernels import reference
from .pairs import join, rotary_slice, split
from .rotation import Rotation
from .spec import RotarySpec


def rotation_matrix(rotation: Rotation, head_dim: int | None = None) -> Tensor:
    """Dense ``R`` ``[..., S, D, D]`` with ``y = R x`` for column vectors; identity on channels that do not turn.

    >>> quarter = Rotation(torch.zeros(1, 1), torch.ones(1, 1))
    >>> rotation_matrix(quarter).tolist()
    [[[0.0, -1.0], [1.0, 0.0]]]
    """
    width = 2 * rotation.cos.shape[-1]
    head_dim = width if head_dim is None else head_dim
    if head_dim < width:
        raise ValueError(f"head_dim must be at least the rotation's {width} channels, got {head_dim}")
    eye = torch.eye(head_dim, dtype=rotation.cos.dtype, device=rotation.cos.device)
    first, second = rotation[:2], rotation.second or rotation[:2]
    columns = reference.rotate(
        eye.expand(*rotation.cos.shape[:-1], head_dim, head_dim),
        *(t.unsqueeze(-2) for t in first),
        second=(second[0].unsqueeze(-2), second[1].unsqueeze(-2)),
        **rotation.layout(),
    )
    return columns.mT


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
    channels = torch.arange(spec.head_dim, device="cpu")[rotary_slice(spec.head_dim, spec.rotary_dim, spec.trailing)]
    first, second = split(channels, spec.interleaved, spec.blocks)
    j = torch.zeros(spec.axes.count, spec.head_dim, spec.head_dim, dtype=torch.float64, device="cpu")
    j[:, first, second], j[:, second, first] = -speeds, speeds
    return j


def as_complex(x: Tensor, *, interleaved: bool = False) -> Tensor:
    """``[..., 2P]`` real -> ``[..., P]`` complex: channel pairs ``(a, b)`` as ``a + ib``, a copy.

    >>> as_complex(torch.tensor([1.0, 2.0]))
    tensor([1.+2.j])
    """
    return torch.complex(*split(x, interleaved))


def from_complex(z: Tensor, *, interleaved: bool = False) -> Tensor:
    """Inverse of `as_complex`."""
    return join(z.real, z.imag, interleaved)


def complex_form(rotation: Rotation) -> Tensor:
    """``cos + i sin`` ``[..., S, P]``: the rotation is multiplication by it (Meta's ``freqs_cis``).

    Scores need the conjugate of the key: ``(R_m q) . (R_n k) = Re sum_i q_i conj(k_i) exp(i (m - n) theta_i)``.

    >>> complex_form(Rotation(torch.zeros(1, 1), torch.ones(1, 1)))
    tensor([[0.+1.j]])
    """
    if rotation.second is not None:
        raise ValueError("rotation must have one angle per pair for a complex form, got one with second angles")
    return torch.complex(rotation.cos, rotation.sin)
