"""Right is said only of what runs: instances with a method or a class of their own, scales, rows, lengths, files."""

import json
import types

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.llama.modeling_llama import LlamaAttention

import phasor

SIZES = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}


def llama(**changes):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | changes)).eval()
    for name, weight in model.named_parameters():
        if "q_proj" in name or "k_proj" in name:  # scores large enough for positions to matter
            weight.data *= 8
    return model


def test_where_positions_move_nothing_nothing_is_right():
    model = llama()
    for layer in model.model.layers:
        layer.self_attn.forward = types.MethodType(lambda self, hidden_states, **kwargs: (hidden_states, None), layer)
    report = phasor.diagnose(model)
    assert report.verdict == "not shown" and "and 0 attentions were seen" in str(report), str(report)


def test_a_softmax_scale_that_was_changed_is_named():
    model = llama(num_hidden_layers=2)
    model.model.layers[1].self_attn.scaling *= 1.3
    report = phasor.diagnose(model)
    assert [row.cause for row in report.wrong] == ["attention factor"], str(report)
    assert report.wrong[0].where.endswith("layers.1.self_attn")


def test_the_class_without_the_factor_of_its_config_is_named(monkeypatch):
    """DeepSeek multiplies the softmax scale by the square of mscale; a port that drops it has q and k right."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as code

    torch.manual_seed(0)
    config = transformers.DeepseekV3Config(
        vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16,
        qk_nope_head_dim=16, v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        first_k_dense_replace=1, max_position_embeddings=256,
        rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    )  # fmt: skip
    model = transformers.DeepseekV3ForCausalLM(config).eval()
    assert not phasor.diagnose(model).wrong
    own = code.DeepseekV3Attention.__init__

    def without(self, *args, **kwargs):
        own(self, *args, **kwargs)
        self.scaling = self.qk_head_dim**-0.5

    monkeypatch.setattr(code.DeepseekV3Attention, "__init__", without)
    report = phasor.diagnose(transformers.DeepseekV3ForCausalLM(config).eval())
    assert "attention factor" in report.causes, str(report)


def test_longrope_that_is_stuck_beyond_its_length_is_wrong():
    torch.manual_seed(0)
    scaling = {
        "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 10000.0,
    }  # fmt: skip
    model = llama(rope_parameters=scaling, original_max_position_embeddings=64)
    assert not phasor.diagnose(model).wrong, str(phasor.diagnose(model))
    rotary = model.model.rotary_emb
    rotary.forward = types.MethodType(_stuck, rotary)
    report = phasor.diagnose(model)
    assert not report.sound, str(report)


@torch.no_grad()
def _stuck(self, x, position_ids):
    """The short frequencies at every length."""
    angles = position_ids[:, :, None].float() * self.original_inv_freq
    angles = torch.cat((angles, angles), -1)
    return (angles.cos() * self.attention_scaling).to(x.dtype), (angles.sin() * self.attention_scaling).to(x.dtype)


def test_dynamic_ntk_whose_frequencies_stay_is_told():
    """Cached and full logits differ beyond the trained length, and that is meant; a prompt within it never changes."""
    scaling = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    for length in (64, 200):
        model = llama(rope_parameters=scaling, max_position_embeddings=64)
        ids = torch.randint(64, (2, length), generator=torch.Generator().manual_seed(1))
        report = phasor.diagnose(model, ids)
        assert not report.wrong and any(row.by_design for row in report.findings), (length, str(report))
        assert any(row.what == "q and k after a longer call" and row.verdict == "right" for row in report.findings)


@pytest.fixture
def folder(tmp_path):
    llama().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder, change_tensors=None, **config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    if change_tensors:
        tensors = load_file(folder / "model.safetensors")
        change_tensors(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("change, says", [
    (lambda t: t.update({Q: t[Q].long()}), "is stored as I64, without a quantization_config"),
    (lambda t: t.update({Q: (t[Q] * 100).to(torch.int8)}), "is stored as I8, without a quantization_config"),
    (lambda t: t.update({Q.replace("weight", "bias"): torch.zeros(16)}), "the model of this config has no such bias"),
])  # fmt: skip
def test_weights_that_cannot_be_what_they_are_named(change, says, folder, phasor):
    assert phasor("doctor", folder)[0] == 0
    edit(folder, change)
    code, out, _ = phasor("doctor", folder)
    assert code == 1 and says in out and "model.safetensors" in out, out


def test_a_scaling_without_a_base_is_a_fault(folder, phasor):
    """transformers takes its class's default, whatever the model was trained with; older files state no dictionary."""
    scaling = {key: value for key, value in YARN.items() if key != "rope_theta"}
    edit(folder, rope_parameters=scaling)
    code, out, _ = phasor("doctor", folder)
    assert code == 1 and "rope_parameters states a scaling and no rope_theta" in out, out


def test_endless_nesting_is_refused_in_one_line(folder, phasor):
    config = json.loads((folder / "config.json").read_text())
    for _ in range(900):
        config = {"model_type": "llava", "text_config": config}
    (folder / "config.json").write_text(json.dumps(config))
    code, out, err = phasor("doctor", folder)
    assert code == 2 and not out and err.count("\n") == 1 and "nested" in err, err


def test_the_classes_of_transformers_are_as_this_file_takes_them():
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} <= dict(llama().model.layers[0].self_attn.named_modules()).keys()
    assert isinstance(llama().model.layers[0].self_attn, LlamaAttention)
