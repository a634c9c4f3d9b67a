"""Tiny models of every kind of packing: another layout and back; run with that layout they give the same logits."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch

from phasor.tools.checkpoints import convert, make_plan

from .models import MLA, SMALL, contents, logits, save_model, tensors_of, use_other_pairs, write_folder

# model type, what is changed in its config, the layout of its own code
FAMILIES = [
    ("llama", {"num_key_value_heads": 2, "attention_bias": True}, "halves"),  # grouped heads, biases
    ("qwen3", {"num_key_value_heads": 2, "head_dim": 32}, "halves"),  # norms on heads
    ("olmo2", {"num_key_value_heads": 2}, "halves"),  # norms on all heads
    ("phi3", {"num_key_value_heads": 2}, "halves"),  # stacked
    ("gpt_neox", {"rotary_pct": 0.25}, "halves"),  # blocks of each head, partial
    ("glm4", {"num_key_value_heads": 2, "head_dim": 16}, "interleaved"),  # partial
    ("cohere", {"num_key_value_heads": 2, "use_qk_norm": True}, "interleaved"),
]


@pytest.mark.parametrize("model_type, changes, native", FAMILIES)
def test_another_layout_and_back(model_type, changes, native, tmp_path, monkeypatch):
    source, other, back = tmp_path / "source", tmp_path / "other", tmp_path / "back"
    save_model(model_type, source, **changes)
    target = "interleaved" if native == "halves" else "halves"
    expected = logits(source)
    convert(source, other, to=target)
    convert(other, back, to="native")
    assert contents(back) == contents(source)
    wrong = logits(other)
    use_other_pairs(monkeypatch, model_type, interleaved=target == "interleaved")
    assert (logits(other) - expected).abs().max() <= 2e-5 * expected.abs().max()
    assert (wrong - expected).abs().max() > 1e-2 * expected.abs().max()  # the test can fail


def test_latent_attention_says_its_layout_in_the_config(tmp_path):
    source, other, back = tmp_path / "source", tmp_path / "other", tmp_path / "back"
    save_model("deepseek_v3", source, **MLA)
    convert(source, other, to="halves")
    assert '"rope_interleave": false' in (other / "config.json").read_text()
    assert not (other / "phasor.json").exists()
    torch.testing.assert_close(logits(other), logits(source), rtol=0, atol=1e-5)
    convert(other, back, to="interleaved")
    assert all(torch.equal(x, y) for x, y in zip(tensors_of(source).values(), tensors_of(back).values(), strict=True))
    assert '"rope_interleave": true' in (back / "config.json").read_text()


def test_of_latent_attention_keys_alone_have_one_head_for_all(tmp_path):
    save_model("deepseek_v3", tmp_path / "source", **MLA)
    held = tensors_of(tmp_path / "source")
    name = "model.layers.1.self_attn.q_b_proj.weight"
    held[name] = held[name][:16].clone()
    config = json.loads((tmp_path / "source/config.json").read_text())
    with pytest.raises(ValueError, match=f"{name}: must have 4 heads of q, .* got 1 of 16 channels"):
        make_plan(write_folder(tmp_path / "short", config, held), "halves")


CHATGLM = {
    "model_type": "chatglm", "hidden_size": 32, "num_attention_heads": 4, "num_layers": 2, "kv_channels": 8,
    "multi_query_attention": True, "multi_query_group_num": 2, "original_rope": True, "seq_length": 64,
    "padded_vocab_size": 64,
}  # fmt: skip


def test_chatglm_packed_and_partial(tmp_path):
    """[q of 4 heads, k of 2, v of 2], 8 channels each; 4 turn: 0 1 2 3 interleaved are 0 2 1 3 in halves."""
    name = "transformer.encoder.layers.{}.self_attention.query_key_value.{}"
    tensors = {name.format(i, "weight"): torch.randn(64, 32, dtype=torch.float16) for i in range(2)}
    tensors |= {name.format(i, "bias"): torch.randn(64) for i in range(2)} | {"lm_head.weight": torch.randn(64, 32)}
    source = write_folder(tmp_path / "source", CHATGLM, tensors)
    report = convert(source, tmp_path / "halves", to="halves")
    rows = [8 * h + c for h in range(8) for c in ((0, 2, 1, 3, 4, 5, 6, 7) if h < 6 else range(8))]
    moved = tensors_of(tmp_path / "halves")
    for key, tensor in tensors.items():
        assert torch.equal(moved[key], tensor if key == "lm_head.weight" else tensor[rows])
    assert report["tensors"] == {"byte_identical": 1, "moved": 4}
    convert(tmp_path / "halves", tmp_path / "back", to="native")
    assert contents(tmp_path / "back") == contents(source)


def llama(folder: Path, dtype: torch.dtype = torch.bfloat16, **more: torch.Tensor) -> Path:
    config = {**SMALL, "model_type": "llama", "num_hidden_layers": 1}
    shapes = {"q_proj": (64, 64), "k_proj": (64, 64), "v_proj": (64, 64), "o_proj": (64, 64)}
    tensors = {f"model.layers.0.self_attn.{n}.weight": torch.randn(s).to(dtype) for n, s in shapes.items()}
    return write_folder(folder, config, {**tensors, **more})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dtypes_are_moved_to_the_bit(dtype, tmp_path):
    source = llama(tmp_path / "source", dtype)
    convert(source, tmp_path / "there", to="interleaved")
    convert(tmp_path / "there", tmp_path / "back", to="halves")
    assert contents(tmp_path / "back") == contents(source) != contents(tmp_path / "there")


def test_values_that_are_not_finite_are_kept(tmp_path):
    bad = torch.randn(64, 64)
    bad[3, 5], bad[9, 0], bad[9, 1] = float("nan"), float("inf"), -float("inf")
    source = llama(tmp_path / "source", torch.float32, **{"model.layers.0.self_attn.k_proj.weight": bad})
    convert(source, tmp_path / "there", to="interleaved")
    convert(tmp_path / "there", tmp_path / "back", to="native")
    assert contents(tmp_path / "back") == contents(source)
