"""Other libraries on the same tensors, each in its own mode: order of axes, tables, new tensors or in place.

Signatures: flash-attn 2.8 `flash_attn/layers/rotary.py`, Liger 0.6 `liger_kernel/transformers/rope.py`,
TransformerEngine 2.x `transformer_engine/pytorch/attention/rope.py`, FlashInfer 0.3 `flashinfer/rope.py`,
vLLM 0.6 and newer `vllm/_custom_ops.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ....rotary.apply import rotate
from ..transformers import theirs
from .given import Given

Call = Callable[[], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Peer:
    """``package`` is what pip calls it, ``module`` what Python does; ``make`` gives its call, and what gradients
    are for.

    ``gradient``: it has one; ``interleaved``: it turns interleaved pairs, too.
    """

    name: str
    package: str
    module: str
    make: Callable[[Given], tuple[Call, tuple[Tensor, Tensor]]]
    gradient: bool = True
    interleaved: bool = True

    def missing(self) -> str:
        return "" if find_spec(self.module) else f"{self.package} is not installed; pip install {self.package}"

    def version(self) -> str:
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "unknown"


def _each(turn: Callable[[Tensor], Tensor], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return turn(q), turn(k)


def _transformers(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    cos, sin = (given.by_channel(t)[given.taken].to(given.q.dtype) for t in (given.table.cos, given.table.sin))
    tables = (t if t.ndim == 3 else t[None] for t in (cos, sin))
    return partial(theirs(given.spec.interleaved), given.q, given.k, *tables), (given.q, given.k)


def _flash_attn(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    from flash_attn.layers.rotary import apply_rotary_emb  # type: ignore[import-not-found]

    q, k = given.tokens_first()
    tables = {name: getattr(given.table, name).to(q.dtype) for name in ("cos", "sin")}
    offsets = 0 if given.counted else given.first.to(torch.int32)
    turn = partial(apply_rotary_emb, **tables, interleaved=given.spec.interleaved, seqlen_offsets=offsets)
    return partial(_each, turn, q, k), (q, k)


def _liger(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    from liger_kernel.transformers.rope import liger_rotary_pos_emb  # type: ignore[import-not-found]

    q, k = given.tokens_first()
    tables = [given.by_channel(t)[given.taken].to(q.dtype) for t in (given.table.cos, given.table.sin)]
    heads_first = q.transpose(1, 2), k.transpose(1, 2)  # the memory that its kernel takes without a copy
    return partial(liger_rotary_pos_emb, *heads_first, *(t if t.ndim == 3 else t[None] for t in tables)), (q, k)


def _transformer_engine(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    from transformer_engine.pytorch.attention.rope import apply_rotary_pos_emb  # type: ignore[import-not-found]

    q, k = given.tokens_first()
    angles = given.by_channel(torch.atan2(given.table.sin, given.table.cos))[:, None, None]  # [max, 1, 1, D]
    turn = partial(
        apply_rotary_pos_emb,
        freqs=angles,
        tensor_format="bshd",
        interleaved=given.spec.interleaved,
        fused=True,
        start_positions=None if given.counted else given.first.to(torch.int32),
    )
    return partial(_each, turn, q, k), (q, k)


def _flat(given: Given) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of the table ``[tokens]``, q and k ``[tokens, heads * D]``, and the table, cosines and then sines."""
    q, k = (x.flatten(0, 1).flatten(1) for x in given.tokens_first())
    rows = given.taken.expand(given.q.shape[0], -1).flatten()
    return rows, q, k, torch.cat((given.table.cos, given.table.sin), -1)


def _flashinfer(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    from flashinfer import apply_rope_with_cos_sin_cache  # type: ignore[import-not-found]

    rows, q, k, cache = _flat(given)
    width, halves = given.q.shape[-1], not given.spec.interleaved
    return partial(apply_rope_with_cos_sin_cache, rows, q, k, width, cache, halves), (q, k)


def _vllm(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    from vllm._custom_ops import rotary_embedding  # type: ignore[import-not-found]

    rows, q, k, cache = _flat(given)
    turn = partial(rotary_embedding, rows, q, k, given.q.shape[-1], cache.to(q.dtype), not given.spec.interleaved)
    return partial(_in_place, turn, q, k), (q, k)


def _in_place(turn: Callable[[], None], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    turn()
    return q, k


def _compiled(given: Given) -> tuple[Call, tuple[Tensor, Tensor]]:
    turn = torch.compile(partial(rotate, kernel="reference"), fullgraph=True)
    call: Any = partial(turn, given.q, given.k, given.positions, given.spec)
    return call, (given.q, given.k)


PEERS = (
    Peer("transformers", "transformers", "transformers", _transformers),
    Peer("flash-attn", "flash-attn", "flash_attn", _flash_attn),
    Peer("Liger", "liger-kernel", "liger_kernel", _liger, interleaved=False),
    Peer("TransformerEngine", "transformer-engine", "transformer_engine", _transformer_engine),
    Peer("FlashInfer", "flashinfer-python", "flashinfer", _flashinfer, gradient=False),
    Peer("vLLM", "vllm", "vllm", _vllm, gradient=False),
    Peer("torch.compile", "torch", "torch", _compiled),
)
