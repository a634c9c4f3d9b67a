"""Stand-ins for libraries that need a GPU to be imported: their documented signatures, and what they document.

Names and order of parameters are those of the files that `timing.gpu.libraries` names.
"""

import sys
from types import ModuleType

import torch


def turned(x, cos, sin, interleaved):
    """``cos`` and ``sin`` ``[..., P]`` that broadcast to the heads of ``x``; products in float32, rounded once."""
    wide = x.float()
    a, b = (wide[..., 0::2], wide[..., 1::2]) if interleaved else wide.chunk(2, -1)
    cos, sin = cos.float(), sin.float()
    first, second = a * cos - b * sin, a * sin + b * cos
    y = torch.stack((first, second), -1).flatten(-2) if interleaved else torch.cat((first, second), -1)
    return y.to(x.dtype)


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None):
    """flash-attn: x (batch_size, seqlen, nheads, headdim); cos, sin (seqlen_rotary, rotary_dim / 2)."""
    batch, seq = x.shape[:2]
    assert (cos.ndim == 2 and isinstance(seqlen_offsets, int)) or seqlen_offsets.shape == (batch,)
    rows = torch.arange(seq) + (seqlen_offsets if isinstance(seqlen_offsets, int) else seqlen_offsets[:, None])
    rows = rows.expand(batch, seq)
    return turned(x, cos[rows][:, :, None], sin[rows][:, :, None], interleaved)


def liger_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """Liger: q (bsz, n_q_head, seq_len, head_dim); cos (1, seq_len, head_dim) or (bsz, seq_len, head_dim)."""
    assert cos.shape == sin.shape and cos.shape[0] in (1, q.shape[0]) and cos.shape[1:] == q.shape[2:]
    half = q.shape[-1] // 2
    assert torch.equal(cos[..., :half], cos[..., half:])
    tables = cos[..., :half].unsqueeze(unsqueeze_dim), sin[..., :half].unsqueeze(unsqueeze_dim)
    return turned(q, *tables, False), turned(k, *tables, False)


def apply_rotary_pos_emb(
    t,
    freqs,
    tensor_format="sbhd",
    start_positions=None,
    interleaved=False,
    fused=False,
    cu_seqlens=None,
    cp_size=1,
    cp_rank=0,
):
    """TransformerEngine: t [b, s, h, d]; freqs [s2, 1, 1, d2], float, with s2 >= s."""
    assert tensor_format == "bshd" and fused and freqs.dtype == torch.float32 and freqs.shape[1:3] == (1, 1)
    batch, seq = t.shape[:2]
    starts = torch.zeros(batch, dtype=torch.int32) if start_positions is None else start_positions
    angles = freqs[:, 0, 0][starts[:, None] + torch.arange(seq)][:, :, None]
    angles = angles[..., 0::2] if interleaved else angles[..., : angles.shape[-1] // 2]
    return turned(t, angles.cos(), angles.sin(), interleaved)


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    """FlashInfer: query (nnz, num_q_heads * head_size); cos_sin_cache (max_seq_len, rotary_dim), float32."""
    assert cos_sin_cache.dtype == torch.float32 and positions.shape == query.shape[:1]
    cos, sin = (t[:, None] for t in cos_sin_cache[positions].chunk(2, -1))
    return tuple(turned(x.view(len(x), -1, head_size), cos, sin, not is_neox).flatten(1) for x in (query, key))


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0, inverse=False):
    """vLLM: as FlashInfer, in place, by a cache in the dtype of the query; gives nothing."""
    assert cos_sin_cache.dtype == query.dtype and positions.dtype == torch.int64 and not (rope_dim_offset or inverse)
    cache = cos_sin_cache.float()
    for x, y in zip(
        (query, key), apply_rope_with_cos_sin_cache(positions, query, key, head_size, cache, is_neox), strict=True
    ):
        x.copy_(y)


FAKES = {
    "flash_attn.layers.rotary": apply_rotary_emb,
    "liger_kernel.transformers.rope": liger_rotary_pos_emb,
    "transformer_engine.pytorch.attention.rope": apply_rotary_pos_emb,
    "flashinfer": apply_rope_with_cos_sin_cache,
    "vllm._custom_ops": rotary_embedding,
}


def install(monkeypatch):
    """Put them where the libraries would be, packages above them included."""
    for path, function in FAKES.items():
        parts = path.split(".")
        for n in range(1, len(parts) + 1):
            name = ".".join(parts[:n])
            module = ModuleType(name)
            module.__spec__ = type("Spec", (), {"name": name})()
            monkeypatch.setitem(sys.modules, name, module)
        setattr(sys.modules[path], function.__name__, function)
