"""Families with an arithmetic of their own: bit for bit against the modules and functions of transformers."""

import importlib
from typing import Any

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary_qk
from phasor.models.configs import read_config
from phasor.models.rows import ROWS
from phasor.models.weights import pieces
from phasor.rotary.axes import Alternating, Axial, InterleavedSections, Listed
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


def test_hunyuan_vl_needs_its_sections() -> None:
    source = {"model_type": "hunyuan_vl_text", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(ValueError, match=r"rope_parameters\.mrope_section is missing: the code of hunyuan_vl_text"):
        read_config(source)
    with pytest.raises(ValueError, match=r"must add up to rotary_dim / 2 = 64 pairs, got \(16, 16\) with sum 32"):
        read_config({**source, "rope_parameters": {"rope_theta": 1e4, "mrope_section": [16, 16]}})


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


def test_cohere_compass_keys_beside_the_layer_types() -> None:
    """Published configs have a second rope_theta there; a flat dictionary its code cannot use."""
    source = {"model_type": "cohere_compass_text", "num_hidden_layers": 1}
    nested = {"full_attention": {"rope_theta": 5e4}, "rope_theta": 1e4, "rope_type": "default"}
    assert only(read_config({**source, "rope_parameters": nested})).base == 5e4
    with pytest.raises(ValueError, match="rope_parameters must have parameters per layer type"):
        read_config({**source, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}})


def test_ernie_vl_pairs_height_and_width() -> None:
    """Its sections are height, width, time: the axes 1, 2, 0 of its positions. Its module refuses any scaling."""
    source = {"model_type": "ernie4_5_vl_moe_text", "head_dim": 16, "rope_theta": 5e5}
    spec = only(read_config({**source, "rope_scaling": {"type": "default", "mrope_section": [2, 2, 4]}}))
    assert spec.axes == Listed((1, 2, 1, 2, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="with as many pairs for height as for width, got"):
        read_config({**source, "rope_scaling": {"mrope_section": [3, 1, 4]}})
    with pytest.raises(ValueError, match="is 'linear', but the code of ernie4_5_vl_moe_text has no scaling"):
        read_config({**source, "rope_scaling": {"type": "linear", "factor": 2.0, "mrope_section": [2, 2, 4]}})


def test_neomme_alternates_rows_and_columns_on_a_quarter_of_full_layers() -> None:
    model = read_config({"model_type": "neomme"})
    sliding, full = model.distinct
    assert (sliding.rotary_dim, sliding.base, sliding.axes) == (64, 1e4, Alternating((0, 1)))
    assert (full.rotary_dim, full.base, model.layer_types[-1]) == (16, 1e6, "full_attention")


def test_dots_3_has_latent_attention_of_two_widths() -> None:
    """Indexed layers: 128 + 64 channels, base 8e7; sliding ones: 192 + 64, base 5e4 (also in the first spelling)."""
    for source in ({}, {"swa_head_dim": 256, "swa_qk_nope_head_dim": 192, "swa_rope_theta": 5e4, "rope_theta": 8e7}):
        model = read_config({"model_type": "dots3_note_text", **source})
        widths = {(s.head_dim, s.rotary_dim, s.base) for s in model.distinct}
        assert widths == {(192, 64, 8e7), (256, 64, 5e4)}
    with pytest.raises(ValueError, match=r"per_layer_config\.2\.rope_theta is not understood"):
        read_config({"model_type": "dots3_note_text", "per_layer_config": {"2": {"rope_theta": 1.5}}})


def test_muse_lists_bases_of_which_only_the_zeros_matter() -> None:
    source = {"model_type": "muse_spark_text", "num_hidden_layers": 5, "rope_theta": 5e5}
    assert [spec is None for spec in read_config(source).layers] == [True, False, False, False, True]
    six = read_config({**source, "num_hidden_layers": 6}).layers  # counted from the last
    assert [spec is None for spec in six] == [False, True, False, False, False, True]
    listed = {**source, "layer_rope_theta": [5e5, 0, 5e5, 5e5, 0]}
    assert [spec is None for spec in read_config(listed).layers] == [False, True, False, False, True]
    with pytest.raises(ValueError, match=r"layer_rope_theta\[2\] and rope_theta contradict each other: 10000.0"):
        read_config({**listed, "layer_rope_theta": [5e5, 0, 1e4, 5e5, 0]})


def test_glm_4_moe_divides_exponents_by_an_odd_width() -> None:
    """Its default config: 4096 // 96 = 42 channels, half of them 21, whose 11 frequencies turn 22 channels."""
    spec = only(read_config({"model_type": "glm4_moe"}))
    assert (spec.head_dim, spec.rotary_dim, spec.exponent_dim) == (42, 22, 21)
    inv_freq = code_of("glm4_moe").Glm4MoeRotaryEmbedding(transformers.Glm4MoeConfig()).inv_freq
    assert torch.equal(spec.inv_freq().float(), inv_freq)
    with pytest.raises(ValueError, match="rotary_dim"):  # its ramp has 10 values for 11 frequencies
        read_config({"model_type": "glm4_moe", "rope_scaling": {
            "type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}})  # fmt: skip


def test_a_default_of_sections_that_does_not_fit_is_cut() -> None:
    """32 pairs and sections of 24, 20 and 20 in the code: every axis keeps its turns. 128 pairs: the rest is time."""
    talker = only(read_config({"model_type": "qwen3_omni_moe_talker_text"}))
    assert talker.axes == InterleavedSections((11, 11, 10))
    assert only(read_config({"model_type": "qwen4_exp_text"})).axes == InterleavedSections((107, 11, 10))
    stated = {"model_type": "qwen3_omni_moe_talker_text", "rope_parameters": {"mrope_section": [24, 20, 20]}}
    assert only(read_config(stated)).axes == InterleavedSections((11, 11, 10))


def test_the_first_chatglm_turns_two_halves_by_two_positions() -> None:
    """THUDM/chatglm-6b: 128 channels, each half with a ladder of 32 over its own position, in halves."""
    source = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28,
              "position_encoding_2d": True, "max_sequence_length": 2048}  # fmt: skip
    spec = only(read_config(source))
    assert spec == RotarySpec(head_dim=128, blocks=2, axes=Axial((32, 32)), angles="float32")
    assert only(read_config({**source, "position_encoding_2d": False})).interleaved


def test_roformer_forms_its_angles_in_float64_and_may_rotate_v() -> None:
    model = read_config({"model_type": "roformer", "rotary_value": True})
    assert model.targets == ("q", "k", "v") and model.with_angles("float32").layers[0].angles == "float64"  # type: ignore[union-attr]
    assert read_config({"model_type": "roformer"}).targets == ("q", "k")


def test_deepseek_v4_rotates_its_one_latent_head_and_turns_the_output_back() -> None:
    assert read_config({"model_type": "deepseek_v4"}).targets == ("q", "k", "v", "output")


def test_nanochat_turns_backwards() -> None:
    assert only(read_config({"model_type": "nanochat"})).reverse


def test_what_a_code_does_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="rotary_value is True, but the code of esmc does"):
        read_config({"model_type": "esmc", "rotary_value": True})
    with pytest.raises(ValueError, match="position_encoding_2d is True, but the code of llama does not read it"):
        read_config({"model_type": "llama", "position_encoding_2d": True})


def test_dynamic_ntk_says_what_transformers_does_otherwise() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    (note,) = read_config({"model_type": "llama", "rope_theta": 1e4, "rope_scaling": rope}).notes
    assert note.startswith("transformers keeps the base of the longest sequence so far")


def test_baichuan_packs_queries_keys_and_values_one_after_the_other():
    """Its code: ``proj.unflatten(-1, (3, hidden_size))``, a head after the other in each of the three."""
    at = "model.layers.0.self_attn"
    shapes = {f"{at}.W_pack.weight": (24, 8), f"{at}.o_proj.weight": (8, 8)}
    found = pieces(ROWS["baichuan"].weights, RotarySpec(head_dim=4), shapes, at, heads=2, kv_heads=2)
    assert [(*piece[:2], piece.starts) for piece in found] == [
        (f"{at}.W_pack.weight", "q", (0, 4)),
        (f"{at}.W_pack.weight", "k", (8, 12)),
    ]
