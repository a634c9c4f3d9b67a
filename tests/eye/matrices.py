"""Rotations as products with matrices."""

import torch

from eye.skeleton import ARANGE, DIM, Attention, decoder
from eye.truth import Turn, halves, ladder, neighbours

THETA = 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)


class TwoByTwo(Attention):
    """FLUX's: a matrix of two by two for each pair, [1, 1, tokens, pairs, 2, 2], multiplied and summed by hand."""

    def rotate(self, q, k):
        angle = torch.einsum("...n,d->...nd", torch.arange(q.shape[2], dtype=torch.float64), THETA)
        out = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1)
        freqs_cis = out.unflatten(-1, (2, 2)).float()[None, None]
        result = []
        for x in (q, k):
            pairs = x.float().reshape(*x.shape[:-1], -1, 1, 2)
            turned = freqs_cis[..., 0] * pairs[..., 0] + freqs_cis[..., 1] * pairs[..., 1]
            result.append(turned.reshape(x.shape).type_as(x))
        return result


class EinsumOfPairs(Attention):
    """The pairs of each token times their matrices in one einsum."""

    def rotate(self, q, k):
        angle = torch.outer(torch.arange(q.shape[2], dtype=torch.float64), THETA)
        rows = torch.stack(
            [torch.stack([angle.cos(), -angle.sin()], -1), torch.stack([angle.sin(), angle.cos()], -1)], -2
        )
        apply = lambda x: torch.einsum("spij,bhspj->bhspi", rows.to(x.dtype), x.unflatten(-1, (-1, 2))).flatten(-2)  # noqa: E731
        return apply(q), apply(k)


class MatmulOfPairs(Attention):
    """The same by matmul, a column for each pair."""

    def rotate(self, q, k):
        angle = torch.outer(torch.arange(q.shape[2], dtype=torch.float64), THETA).to(q.dtype)
        m = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).view(q.shape[2], DIM // 2, 2, 2)
        return tuple((m @ x.view(*x.shape[:-1], -1, 2, 1)).squeeze(-1).reshape(x.shape) for x in (q, k))


class WholeMatrix(Attention):
    """A dense matrix of width times width for each position, made in a loop, as a tutorial does it."""

    def __init__(self, layer=0):
        super().__init__()
        R = torch.zeros(16, DIM, DIM)
        for position in range(16):
            for i in range(DIM // 2):
                m_theta = torch.tensor(position * 10000.0 ** (-2 * i / DIM))
                R[position, 2 * i, 2 * i], R[position, 2 * i, 2 * i + 1] = m_theta.cos(), -m_theta.sin()
                R[position, 2 * i + 1, 2 * i], R[position, 2 * i + 1, 2 * i + 1] = m_theta.sin(), m_theta.cos()
        self.register_buffer("R", R)

    def rotate(self, q, k):
        return tuple(torch.einsum("sij,bhsj->bhsi", self.R[: x.shape[2]], x) for x in (q, k))


class BatchedWholeMatrix(WholeMatrix):
    """The same matrix from the right, by bmm over tokens."""

    def rotate(self, q, k):
        out = []
        for x in (q, k):
            b, h, s, d = x.shape
            rows = torch.bmm(x.permute(2, 0, 1, 3).reshape(s, b * h, d), self.R[:s].transpose(1, 2))
            out.append(rows.view(s, b, h, d).permute(1, 2, 0, 3))
        return out


class SignedPermutation(Attention):
    """rotate_half as a product with a constant matrix (ONNX exports, some accelerators)."""

    def __init__(self, layer=0):
        super().__init__()
        swap = torch.zeros(DIM, DIM)
        swap[range(4, 8), range(4)], swap[range(4), range(4, 8)] = -1.0, 1.0
        self.register_buffer("swap", swap)
        emb = torch.outer(torch.arange(32.0), THETA.float()).repeat(1, 2)
        self.register_buffer("cos_sin", torch.stack([emb.cos(), emb.sin()]))

    def rotate(self, q, k):
        cos, sin = self.cos_sin[:, : q.shape[2]]
        return q * cos + torch.matmul(q, self.swap) * sin, k * cos + torch.matmul(k, self.swap) * sin


PLAIN = Turn(neighbours(DIM), ladder(10000.0, DIM), ARANGE)
MATRICES = [
    decoder("two by two by hand", TwoByTwo, PLAIN),
    decoder("two by two by einsum", EinsumOfPairs, PLAIN),
    decoder("two by two by matmul", MatmulOfPairs, PLAIN),
    decoder("whole matrix by einsum", WholeMatrix, PLAIN),
    decoder("whole matrix by bmm", BatchedWholeMatrix, PLAIN),
    decoder("rotate_half by matmul", SignedPermutation, Turn(halves(DIM), ladder(10000.0, DIM), ARANGE)),
]
