"""How the channels of a head hold P two-dimensional pairs, and how one layout becomes the other.

::

    halves       [x0 x1 x2 | y0 y1 y2]    GPT-NeoX, transformers' Llama    "rotate_half", is_neox_style, GPT-NeoX style
    interleaved  [x0 y0 | x1 y1 | x2 y2]  RoFormer, Meta's Llama, GPT-J    complex form, "traditional", GPT-J style
    2 blocks     [x0 x1 y0 y1 | x2 x3 y2 y3]    ChatGLM-6B, Gemma 4's vision tower    halves inside each block

The rotation is the same in both; only which channels form pair i differs. Weights trained in one layout give garbage
in the other unless the rows of their q and k projections are permuted alike.
"""

import torch
from torch import Tensor


def split(x: Tensor, interleaved: bool, blocks: int = 1) -> tuple[Tensor, Tensor]:
    """``[..., 2P] -> ([..., P], [..., P])``, first and second channel of every pair; views, unless ``blocks`` > 1.

    >>> a, b = split(torch.arange(6), interleaved=True)
    >>> a.tolist(), b.tolist()
    ([0, 2, 4], [1, 3, 5])
    >>> a, b = split(torch.arange(8), interleaved=False, blocks=2)
    >>> a.tolist(), b.tolist()
    ([0, 1, 4, 5], [2, 3, 6, 7])
    """
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    if blocks > 1:
        a, b = x.unflatten(-1, (blocks, 2, -1)).unbind(-2)
        return a.flatten(-2), b.flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return a, b


def join(a: Tensor, b: Tensor, interleaved: bool, blocks: int = 1) -> Tensor:
    """Inverse of `split`, as a new tensor: ``([..., P], [..., P]) -> [..., 2P]``.

    >>> join(torch.tensor([0, 1]), torch.tensor([2, 3]), interleaved=False).tolist()
    [0, 1, 2, 3]
    """
    if interleaved:
        return torch.stack((a, b), dim=-1).reshape(*a.shape[:-1], 2 * a.shape[-1])
    if blocks > 1:
        return torch.cat((a.unflatten(-1, (blocks, -1)), b.unflatten(-1, (blocks, -1))), dim=-1).flatten(-2)
    return torch.cat((a, b), dim=-1)


def rotary_slice(head_dim: int, rotary_dim: int, trailing: bool) -> slice:
    """The channels of a head that turn: the first ``rotary_dim``, or the last ones if ``trailing``.

    >>> rotary_slice(192, 64, trailing=True)
    slice(128, 192, None)
    """
    return slice(head_dim - rotary_dim, head_dim) if trailing else slice(0, rotary_dim)


def permutation(
    head_dim: int,
    *,
    source_interleaved: bool,
    target_interleaved: bool,
    rotary_dim: int | None = None,
    trailing: bool = False,
) -> Tensor:
    """Index ``p`` ``[head_dim]`` with ``x_target = x_source[..., p]``; channels outside the rotary slice stay.

    Swapping source and target gives the inverse permutation. To convert weights, permute the output rows of every
    head of the q and k projections (and their biases and per-channel q/k norms); v and o stay as they are.

    >>> permutation(6, source_interleaved=True, target_interleaved=False).tolist()
    [0, 2, 4, 1, 3, 5]
    >>> permutation(6, source_interleaved=False, target_interleaved=True).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    check_rotary_dim(rotary_dim, head_dim)
    index = torch.arange(head_dim)
    turned = rotary_slice(head_dim, rotary_dim, trailing)
    index[turned] = join(*split(index[turned], source_interleaved), target_interleaved)
    return index


def check_rotary_dim(rotary_dim: int, head_dim: int) -> None:
    """Raise ``ValueError`` unless ``rotary_dim`` is an even number between 2 and ``head_dim``."""
    for name, value in (("rotary_dim", rotary_dim), ("head_dim", head_dim)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be an integer, got {value!r}")
    if rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(f"rotary_dim must be a positive even number (channels turn in pairs), got {rotary_dim}")
    if rotary_dim > head_dim:
        raise ValueError(f"rotary_dim must be at most head_dim, got rotary_dim={rotary_dim} and head_dim={head_dim}")
