"""Other libraries on the same tensors, each in its own mode: order of axes, tables, new tensors or in place.

Signatures: flash-attn 2.8 `flash_attn/layers/rotary.py`, Liger 0.6 `liger_kernel/transformers/rope.py`,
TransformerEngine 2.x `transformer_engine/pytorch/attention/rope.py`, FlashInfer 0.3 `flashinfer/rope.py`,
vLLM 0.6 and newer `vllm/_custom_ops.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, rotate

from ..libraries import by_channel, transformers_function
from ..measure import Variant

Call = Callable[[], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Workload:
    """``q`` and ``k`` ``[B, heads, S, D]``; token ``i`` of sequence ``b`` takes row ``first[b] + i`` of a table.

    ``rows`` are the positions of that table, ``[max]`` or ``[axes, max]``.
    """

    variant: Variant
    spec: RotarySpec
    q: Tensor
    k: Tensor
    rows: Tensor
    first: Tensor

    @property
    def from_first(self) -> bool:
        """Whether all sequences begin with the first row."""
        return self.length == self.rows.shape[-1]

    @property
    def length(self) -> int:
        return self.q.shape[-2]

    @cached_property
    def token_rows(self) -> Tensor:
        """``[S]`` rows, or ``[B, S]``."""
        steps = torch.arange(self.length, device=self.q.device)
        return steps if self.from_first else self.first.unsqueeze(-1) + steps

    @cached_property
    def positions(self) -> Tensor:
        """Of the tokens, as phasor takes them."""
        return self.rows[..., self.token_rows]

    @cached_property
    def table(self) -> Rotation:
        """All rows, cos and sin in float32."""
        return Rotation.at(self.spec, self.rows)

    def by_channel(self, table: Tensor) -> Tensor:
        """``[..., P]`` with every value twice, in the order of the pairs."""
        return by_channel(table, self.spec.interleaved)

    def tokens_first(self) -> tuple[Tensor, Tensor]:
        """q and k as ``[B, S, heads, D]``, of their own: some libraries write in place."""
        q, k = (x.detach().transpose(1, 2).clone(memory_format=torch.contiguous_format) for x in (self.q, self.k))
        return q.requires_grad_(self.q.requires_grad), k.requires_grad_(self.k.requires_grad)


def text(variant: Variant, batch: int, length: int, gradient: bool = False) -> Workload:
    """32 and 8 heads of 128, one axis; with more than one sequence each begins at a position of its own."""
    spec = variant.spec(128)
    q, k = (x.requires_grad_(gradient) for x in variant.pair(batch, 32, 8, length, 128))
    first = torch.arange(batch) * 61 + (4096 if length == 1 else 0)
    rows = torch.arange(int(first.max()) + length)
    return Workload(variant, spec, q, k, rows.to(variant.device), first.to(variant.device))


@dataclass(frozen=True)
class Library:
    """``package`` is what pip calls it, ``module`` what Python does; ``make`` gives its call, and what gradients
    are for.

    ``gradient``: it has one; ``interleaved``: it rotates interleaved pairs, too.
    """

    name: str
    package: str
    module: str
    make: Callable[[Workload], tuple[Call, tuple[Tensor, Tensor]]]
    gradient: bool = True
    interleaved: bool = True

    def missing(self) -> str:
        return "" if find_spec(self.module) else f"{self.package} is not installed; pip install {self.package}"

    def version(self) -> str:
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "unknown"


def _each(rotated: Callable[[Tensor], Tensor], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return rotated(q), rotated(k)


def _transformers(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    cos, sin = (work.by_channel(t)[work.token_rows].to(work.q.dtype) for t in (work.table.cos, work.table.sin))
    tables = (t if t.ndim == 3 else t[None] for t in (cos, sin))
    return partial(transformers_function(work.spec.interleaved), work.q, work.k, *tables), (work.q, work.k)


def _flash_attn(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    from flash_attn.layers.rotary import apply_rotary_emb  # type: ignore[import-not-found]

    q, k = work.tokens_first()
    tables = {name: getattr(work.table, name).to(q.dtype) for name in ("cos", "sin")}
    offsets = 0 if work.from_first else work.first.to(torch.int32)
    call = partial(apply_rotary_emb, **tables, interleaved=work.spec.interleaved, seqlen_offsets=offsets)
    return partial(_each, call, q, k), (q, k)


def _liger(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    from liger_kernel.transformers.rope import liger_rotary_pos_emb  # type: ignore[import-not-found]

    q, k = work.tokens_first()
    tables = [work.by_channel(t)[work.token_rows].to(q.dtype) for t in (work.table.cos, work.table.sin)]
    heads_first = q.transpose(1, 2), k.transpose(1, 2)  # the memory that its kernel takes without a copy
    return partial(liger_rotary_pos_emb, *heads_first, *(t if t.ndim == 3 else t[None] for t in tables)), (q, k)


def _transformer_engine(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb  # type: ignore[import-not-found]

    q, k = work.tokens_first()
    angles = work.by_channel(torch.atan2(work.table.sin, work.table.cos))[:, None, None]  # [max, 1, 1, D]
    call = partial(
        apply_rotary_pos_emb,
        freqs=angles,
        tensor_format="bshd",
        interleaved=work.spec.interleaved,
        fused=True,
        start_positions=None if work.from_first else work.first.to(torch.int32),
    )
    return partial(_each, call, q, k), (q, k)


def _flat(work: Workload) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of the table ``[tokens]``, q and k ``[tokens, heads * D]``, and the table, cosines and then sines."""
    q, k = (x.flatten(0, 1).flatten(1) for x in work.tokens_first())
    rows = work.token_rows.expand(work.q.shape[0], -1).flatten()
    return rows, q, k, torch.cat((work.table.cos, work.table.sin), -1)


def _flashinfer(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    from flashinfer import apply_rope_with_cos_sin_cache  # type: ignore[import-not-found]

    rows, q, k, cache = _flat(work)
    width, halves = work.q.shape[-1], not work.spec.interleaved
    return partial(apply_rope_with_cos_sin_cache, rows, q, k, width, cache, halves), (q, k)


def _vllm(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    from vllm._custom_ops import rotary_embedding  # type: ignore[import-not-found]

    rows, q, k, cache = _flat(work)
    call = partial(rotary_embedding, rows, q, k, work.q.shape[-1], cache.to(q.dtype), not work.spec.interleaved)
    return partial(_in_place, call, q, k), (q, k)


def _in_place(call: Callable[[], None], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    call()
    return q, k


def _compiled(work: Workload) -> tuple[Call, tuple[Tensor, Tensor]]:
    compiled = torch.compile(partial(rotate, kernel="reference"), fullgraph=True)
    call: Any = partial(compiled, work.q, work.k, work.positions, work.spec)
    return call, (work.q, work.k)


LIBRARIES = (
    Library("transformers", "transformers", "transformers", _transformers),
    Library("flash-attn", "flash-attn", "flash_attn", _flash_attn),
    Library("Liger", "liger-kernel", "liger_kernel", _liger, interleaved=False),
    Library("TransformerEngine", "transformer-engine", "transformer_engine", _transformer_engine),
    Library("FlashInfer", "flashinfer-python", "flashinfer", _flashinfer, gradient=False),
    Library("vLLM", "vllm", "vllm", _vllm, gradient=False),
    Library("torch.compile", "torch", "torch", _compiled),
)
