"""Tokens of one sequence over several processes: which of them each rank has; positions go with their tokens."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..support.checks import one_of, whole
from .tensor_checks import integers

Scheme = Literal["contiguous", "head-tail", "per-document", "striped", "ulysses"]


def shard(
    x: Tensor,
    over: Any,
    scheme: Scheme | Any = "head-tail",
    *,
    cu_seqlens: Tensor | None = None,
    dim: int = -1,
) -> Tensor:
    """The tokens of one rank, in the order in which it holds them: a part of ``x`` along ``dim``. A copy.

    For positions ``[L]``, ``[B, L]`` or ``[axes, B, L]``, and alike for ids, labels and embeddings (``dim=1``): what is
    cut by one scheme stays together. Positions are made for the whole sequence and cut here, never counted per rank:
    where every rank counts from 0, all distances between ranks are wrong, and nothing crashes.

    - ``over``: ``(rank, size)``, or a `DeviceMesh` of one dimension.
    - ``scheme``: with ``C = L / size`` or, of pieces in pairs, ``L / (2 size)``:
      ``"contiguous"``: tokens ``r C`` to ``(r + 1) C``; ``"ulysses"`` alike (rotate before heads are exchanged; after
      it every rank has all tokens and needs the whole positions); ``"striped"``: tokens ``r, r + size, …``;
      ``"head-tail"``: pieces ``r`` and ``2 size - 1 - r`` of ``2 size``, which balances causal attention;
      ``"per-document"``: the same inside each document of ``cu_seqlens``, so that each rank has a part of each; or
      one of torch's load balancers, for exactly its order (its ``_PerDocumentHeadTailLoadBalancer`` lists document by
      document, and what a rank gets of that is other than here).

    Raises ``ValueError`` for lengths that do not divide, and ``cu_seqlens`` that do not belong to ``x``.
    Source: torch's ``_HeadTailLoadBalancer`` and ``_PerDocumentHeadTailLoadBalancer``; Megatron-LM's
    ``get_pos_emb_on_this_cp_rank``; TransformerEngine's ``thd_get_partitioned_indices``; Striped Attention,
    arXiv:2311.09431; DeepSpeed Ulysses, arXiv:2309.14509.

    >>> shard(torch.arange(8), (0, 2)).tolist(), shard(torch.arange(8), (1, 2)).tolist()
    ([0, 1, 6, 7], [2, 3, 4, 5])
    >>> from phasor.positions import packed
    >>> lengths = torch.tensor([0, 8, 12])
    >>> shard(packed(lengths), (0, 2), "per-document", cu_seqlens=lengths).tolist()
    [0, 1, 6, 7, 0, 3]
    """
    rank, size = _place(over)
    order = shard_order(_length(x, dim), size, scheme, cu_seqlens=cu_seqlens, device=x.device)
    return _taken(x, order[..., rank * (order.shape[-1] // size) :][..., : order.shape[-1] // size], dim)


def gather(
    shards: Sequence[Tensor] | Tensor,
    scheme: Scheme | Any = "head-tail",
    *,
    mesh: Any = None,
    cu_seqlens: Tensor | None = None,
    dim: int = -1,
) -> Tensor:
    """Undoes `shard`: the tokens of all ranks in their own order. A copy.

    ``shards``: those of all ranks, in the order of the ranks; or, with ``mesh``, this rank's, and the others' are
    fetched from the other processes (without gradients).

    >>> parts = [shard(torch.arange(8), (rank, 2)) for rank in (0, 1)]
    >>> gather(parts).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    if isinstance(shards, Tensor):
        if mesh is None:
            raise ValueError("shards must be a list, one of each rank; for this rank's alone give the mesh")
        shards = _fetched(shards, mesh)
    x = torch.cat(list(shards), dim)
    order = shard_order(_length(x, dim), len(shards), scheme, cu_seqlens=cu_seqlens, device=x.device)
    return _taken(x, order.argsort(-1), dim)


def shard_order(
    length: int, size: int, scheme: Scheme | Any, *, cu_seqlens: Tensor | None = None, device: Any = None
) -> Tensor:
    """All tokens in the order of the ranks, ``[length]``: rank ``r`` has the ``r``-th of ``size`` equal parts.

    ``[B, length]`` by a load balancer that orders each row otherwise.

    >>> shard_order(6, 2, "striped").tolist()
    [0, 2, 4, 1, 3, 5]
    """
    whole("length", length)
    whole("size", size)
    if hasattr(scheme, "_generate_indices"):
        return _of_balancer(scheme, length, size, device)
    one_of("scheme", scheme, get_args(Scheme))
    if (cu_seqlens is not None) != (scheme == "per-document"):
        raise ValueError(f"cu_seqlens belongs to scheme='per-document', and must be given with it, got {scheme!r}")
    token = torch.arange(length, device=device)
    if scheme == "per-document":
        assert cu_seqlens is not None
        documents = token.split(_lengths(cu_seqlens, length, size))
        pieces = [_paired(document, size) for document in documents]
        return torch.cat([piece[rank] for rank in range(size) for piece in pieces])
    if scheme == "head-tail":
        _divides(length, 2 * size, f"2 x {size} ranks, for scheme='head-tail'")
        return _paired(token, size).flatten()
    _divides(length, size, f"{size} ranks")
    return token.view(-1, size).T.flatten() if scheme == "striped" else token


def _paired(token: Tensor, size: int) -> Tensor:
    """``[size, ...]``: of ``2 size`` pieces the ``r``-th and the ``r``-th from the end."""
    pieces = token.view(2 * size, -1)
    return torch.cat((pieces[:size], pieces[size:].flip(0)), 1)


def _lengths(cu_seqlens: Tensor, length: int, size: int) -> list[int]:
    bounds = integers("cu_seqlens", cu_seqlens, 1)
    lengths: list[int] = bounds.diff().tolist()
    if len(bounds) < 2 or int(bounds[0]) != 0 or int(bounds[-1]) != length or min(lengths) < 0:
        raise ValueError(f"cu_seqlens must rise from 0 to the {length} tokens, got {bounds.tolist()[:8]}")
    for i, one in enumerate(lengths):
        _divides(one, 2 * size, f"2 x {size} ranks, document {i} too: pad it", "cu_seqlens")
    return lengths


def _divides(length: int, parts: int, which: str, name: str = "x") -> None:
    if length % parts:
        raise ValueError(f"{name} must have lengths that divide by {parts} ({which}), got {length}")


def _of_balancer(balancer: Any, length: int, size: int, device: Any) -> Tensor:
    order: Tensor = balancer._generate_indices().to(device=device, dtype=torch.int64)
    if order.shape[-1] != length or length % size:
        raise ValueError(f"scheme must order the {length} tokens of {size} ranks, got one of {order.shape[-1]}")
    return order[0] if len(order) == 1 else order


def _place(over: Any) -> tuple[int, int]:
    if isinstance(over, tuple) and len(over) == 2:
        rank, size = over
    elif hasattr(over, "get_local_rank"):
        if over.ndim != 1:
            raise ValueError(f"over must be a mesh of one dimension, got {over.ndim}: name one, mesh['cp']")
        rank, size = over.get_local_rank(), over.size()
    else:
        raise ValueError(f"over must be (rank, size) or a DeviceMesh, got {type(over).__name__}")
    whole("size", size)
    whole("rank", rank, at_least=0)
    if rank >= size:
        raise ValueError(f"over must be (rank, size) with a rank below {size}, got {rank}")
    return rank, size


def _length(x: Any, dim: int) -> int:
    if not isinstance(x, Tensor) or not -x.ndim <= dim < x.ndim:
        got = f"{x.ndim} dimensions" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a tensor with the tokens along dim={dim}, got {got}")
    return x.shape[dim]


def _taken(x: Tensor, order: Tensor, dim: int) -> Tensor:
    if order.ndim == 1:
        return x.index_select(dim, order)
    dim %= x.ndim
    if dim == 0 or x.shape[dim - 1] != len(order):
        raise ValueError(
            f"x must have the {len(order)} rows of the load balancer before its tokens, got {tuple(x.shape)}"
        )
    # `order` is [rows, tokens], and the rows of x are the axis before its tokens: gather wants an index of all axes.
    shape = [1] * (dim - 1) + list(order.shape) + [1] * (x.ndim - dim - 1)
    size = [*x.shape[:dim], order.shape[-1], *x.shape[dim + 1 :]]
    return x.gather(dim, order.view(shape).expand(size))


def _fetched(x: Tensor, mesh: Any) -> list[Tensor]:
    import torch.distributed as dist

    _place(mesh)
    parts = [torch.empty_like(x) for _ in range(mesh.size())]
    dist.all_gather(parts, x.contiguous(), group=mesh.get_group())
    return parts
