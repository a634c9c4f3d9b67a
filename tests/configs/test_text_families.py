"""Families with an arithmetic of their own: bit for bit against the modules and functions of transformers."""

import importlib
from typing import Any

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary_qk
from phasor.models.configs import read_config
from phasor.models.rows import ROWS
from phasor.models.weights import pieces
from phasor.rotary.axes import InterleavedSections, Listed
from phasor.rotary.scaling import NTK, YaRN

transformers = pytest.importorskip("transformers")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
POSITIONS = torch.tensor([[0, 1, 2, 7, 100, 4095]])


def code_of(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def tensors(heads: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, n, 6, width, generator=generator).to(dtype) for n in (heads, 2))  # type: ignore[return-value]


def only(model: Any) -> RotarySpec:
    (spec,) = model.with_angles("float32").distinct
    return spec


@DTYPES
@pytest.mark.parametrize("rope", [{}, {"type": "xdrope", "alpha": 1000.0, "factor": 1.0}])
def test_hunyuan_vl_turns_the_members_of_a_pair_by_different_axes(rope: dict[str, Any], dtype: torch.dtype) -> None:
    key = "xdrope_section" if rope else "mrope_section"
    parameters = {"rope_theta": 10_000.0, key: [16, 16, 16, 16], **rope}
    config = transformers.HunYuanVLTextConfig(rope_parameters=dict(parameters), head_dim=128)
    spec = only(read_config(config))
    assert spec.scaling == (NTK(1000.0) if rope else None)
    # 64 pairs, doubled sections of 32 channels: the first members follow axes 0 and 1, the second ones 2 and 3
    assert spec.axes == Listed((0,) * 32 + (1,) * 32, axes=4) and spec.second == Listed((2,) * 32 + (3,) * 32)
    code = code_of("hunyuan_vl")
    positions = torch.stack([POSITIONS + shift for shift in (0, 3, 40, 7)])
    q, k = tensors(3, 128, dtype)
    cos, sin = code.HunYuanVLRotaryEmbedding(config)(q, positions)
    ours = apply_rotary_qk(q, k, Rotation.at(spec, positions, dtype=dtype))
    assert all(map(torch.equal, ours, code.apply_rotary_pos_emb(q, k, cos, sin)))


@DTYPES
def test_mistral_large_4_learns_its_frequencies(dtype: torch.dtype) -> None:
    """Its module with other log-scales than the zeros it starts with; NoPE every fourth layer."""
    config = transformers.MistralLarge4TextConfig()
    model = read_config(config)
    assert [i for i in range(12) if model.layers[i] is None] == [3, 7, 11]
    spec = only(model)
    assert spec.learned and spec.permuted and isinstance(spec.scaling, YaRN) and spec.attention_factor() == 1.0
    code = code_of("mistral_large4")
    module = code.MistralLarge4TextRotaryEmbedding(config)
    module.alpha.data = torch.linspace(-0.5, 0.3, 32)  # a parameter since transformers 5.24, a buffer before
    q, k = tensors(3, 128, dtype)
    theirs = code.apply_rotary_pos_emb_interleave(q[..., 64:], k[..., 64:], *module(q, POSITIONS))
    rotation = Rotation.at(spec, POSITIONS, log_scale=module.alpha, dtype=dtype)
    assert all(torch.equal(a[..., 64:], b) for a, b in zip(apply_rotary_qk(q, k, rotation), theirs, strict=True))


@DTYPES
def test_cohere_compass_has_sections_per_layer_type(dtype: torch.dtype) -> None:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 50_000.0, "mrope_section": [24, 20, 20]},
        "full_attention": None,
    }
    types = ["sliding_attention", "full_attention"]
    config = transformers.CohereCompassTextConfig(
        num_hidden_layers=2, layer_types=types, rope_parameters={k: v and dict(v) for k, v in rope.items()}
    )
    model = read_config(config)
    assert model.layers[1] is None and model.layers[0].axes == InterleavedSections((24, 20, 20))  # type: ignore[union-attr]
    code, spec = code_of("cohere_compass"), only(model)
    positions = torch.stack([POSITIONS + shift for shift in (0, 3, 40)])
    q, k = tensors(3, 128, dtype)
    cos, sin = code.CohereCompassRotaryEmbedding(config)(q, positions, layer_type="sliding_attention")
    ours = apply_rotary_qk(q, k, Rotation.at(spec, positions, dtype=dtype))
    assert all(map(torch.equal, ours, code.apply_rotary_pos_emb(q, k, cos, sin)))


def test_baichuan_packs_queries_keys_and_values_one_after_the_other():
    """Its code: ``proj.unflatten(-1, (3, hidden_size))``, a head after the other in each of the three."""
    at = "model.layers.0.self_attn"
    shapes = {f"{at}.W_pack.weight": (24, 8), f"{at}.o_proj.weight": (8, 8)}
    found = pieces(ROWS["baichuan"].weights, RotarySpec(head_dim=4), shapes, at, heads=2, kv_heads=2)
    assert [(*piece[:2], piece.starts) for piece in found] == [
        (f"{at}.W_pack.weight", "q", (0, 4)),
        (f"{at}.W_pack.weight", "k", (8, 12)),
    ]
