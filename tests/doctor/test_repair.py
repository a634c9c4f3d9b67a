"""phasor.repair: tables and logits are those of from_pretrained(dtype=...), and a sound model does not change."""

import copy
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

import limited
from integrations.models import causal, logits, tokens
from integrations.sick import DAMAGES, DTYPES, KINDS, buffers, emptied, healthy, to_bfloat16
from phasor.tools.doctor import repair
from phasor.tools.patch import patch, unpatch

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    """Each kind of model, saved."""
    made = {}
    for kind in KINDS:
        made[kind] = str(tmp_path_factory.mktemp("model"))
        model = healthy(kind)
        for name, weight in model.named_parameters():
            if name.endswith("mlp.gate.weight"):  # kept in float32 since transformers 5.24: what no dtype here rounds
                weight.data = weight.data.mul(64).round() / 64
        model.save_pretrained(made[kind])
    return made


def loaded(folder: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_as_from_pretrained_would_have_loaded_it(kind, damage, folders):
    dtype = DTYPES.get(damage, torch.float32)
    sound, sick = loaded(folders[kind], dtype), DAMAGES[damage](loaded(folders[kind]))
    ids = tokens(1, 120)
    expected = logits(sound, ids)
    if kind != "gptj" or dtype == torch.float32:  # whose code rounds its tables anyway
        assert damage == "meta" or not torch.equal(logits(sick, ids), expected)
    report = repair(sick)
    assert report.mended
    wanted, got = buffers(sound), buffers(sick)
    assert list(got) == list(wanted)
    for name, buffer in wanted.items():
        assert got[name].dtype == buffer.dtype and torch.equal(got[name], buffer), name
    assert torch.equal(logits(sick, ids), expected)
    assert not repair(sick).mended  # a second call finds nothing


@pytest.mark.parametrize("through", [(torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)])
def test_frequencies_that_went_through_other_dtypes(through, folders):
    sick = loaded(folders["llama"])
    sound = loaded(folders["llama"], through[-1])
    for dtype in through:
        sick.to(dtype)
    repair(sick)
    assert all(torch.equal(a, b) for a, b in zip(buffers(sick).values(), buffers(sound).values(), strict=True))


def test_weights_that_rounding_took_from_are_named(folders):
    """DeepSeek's router is kept in float32 by from_pretrained, as its class says; rounded, it is gone."""
    model = loaded(folders["deepseek_v3, yarn"])
    kept = {name.rpartition(".")[2] for name in model._keep_in_fp32_modules_strict}
    assert "e_score_correction_bias" in kept
    report = repair(to_bfloat16(model))
    assert {row.name for row in report.left} == kept and len(report.left) == len(kept)
    assert "left as it is: it is trained" in str(report)


CHANGED = {
    "base": ("llama", {"rope_theta": 1e6, "rope_type": "default"}),
    "YaRN": ("llama", {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}),
    "DeepSeek's factor on the softmax": (
        "deepseek_v3, yarn",
        {
            "rope_theta": 1e4, "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
            "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    ),
    "none": ("deepseek_v3, yarn", {"rope_theta": 1e4, "rope_type": "default"}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_a_config_edited_after_loading(change):
    """The model becomes what its class makes of the config as it is now, with the same weights."""
    kind, parameters = CHANGED[change]
    model = healthy(kind)
    model.config.rope_parameters = dict(parameters)
    before = logits(model)
    report = repair(model)
    fresh = type(model)(copy.deepcopy(model.config)).eval()
    fresh.load_state_dict(model.state_dict())
    assert report.mended and not report.left
    assert all(torch.equal(a, b) for a, b in zip(buffers(model).values(), buffers(fresh).values(), strict=True))
    assert torch.equal(logits(model), logits(fresh)) and not torch.equal(logits(model), before)
    assert not repair(model).rows


def test_long_frequencies_of_another_config_are_not_kept():
    """LongRoPE's module keeps the long ones that an earlier call has formed, and asks no config again."""
    model = healthy("phi3, longrope")
    ids = tokens(1, 300)
    logits(model, ids)
    model.config.rope_parameters["long_factor"] = [2.0] * 8
    repair(model)
    fresh = type(model)(copy.deepcopy(model.config)).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(logits(model, ids), logits(fresh, ids))
    assert not repair(model).rows


@pytest.mark.parametrize("name, value", [("inv_freq", 0.5), ("original_inv_freq", 0.5), ("attention_scaling", 2.0)])
def test_a_wrong_value(name, value):
    model = healthy("llama")
    expected = logits(model)
    rotary = model.model.rotary_emb
    setattr(rotary, name, getattr(rotary, name) * value)
    (row,) = repair(model).rows
    assert (row.path, row.name) == ("model.rotary_emb", name)
    assert torch.equal(logits(model), expected)


def state(model: nn.Module) -> list[tuple]:
    """Every object in every module, and how often each tensor was written."""
    return [
        (path, type(m), [(n, id(v)) for n, v in {**vars(m), **m._buffers, **m._parameters}.items()])
        for path, m in model.named_modules()
    ] + [(n, t._version) for n, t in [*model.named_parameters(), *model.named_buffers()]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [17, 300])  # beyond LongRoPE's threshold
def test_a_sound_model_does_not_change(kind, length):
    model = healthy(kind)
    logits(model, tokens(1, length))
    before = state(model)
    drawn = torch.get_rng_state()
    assert not repair(model).rows
    assert state(model) == before
    assert torch.equal(torch.get_rng_state(), drawn)


def test_dynamic_ntk_keeps_what_long_calls_left():
    model = causal("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    logits(model, tokens(1, 700))
    before = state(model)
    assert not repair(model).rows and state(model) == before
    model.model.rotary_emb.inv_freq.mul_(1.5)
    assert {row.name for row in repair(model).mended} == {"inv_freq", "max_seq_len_cached"}
    assert torch.equal(logits(model, tokens()), logits(healthy("llama", rope_theta=1e4), tokens()))


def test_places_flags_hooks_and_ties_stay():
    model = healthy("llama")
    rotary, called = model.model.rotary_emb, []
    rotary.register_forward_hook(lambda *given: called.append(1))
    rotary.original_inv_freq = rotary.inv_freq
    place = rotary.inv_freq.data_ptr()
    rotary.inv_freq.mul_(0.5)
    repair(model)
    assert rotary.inv_freq.data_ptr() == place  # a captured graph reads from there
    to_bfloat16(rotary)
    rotary.original_inv_freq = rotary.inv_freq
    repair(model)
    assert rotary.original_inv_freq is rotary.inv_freq
    assert rotary.inv_freq.dtype == torch.float32
    assert rotary._non_persistent_buffers_set == {"inv_freq", "original_inv_freq"}
    assert not any("inv_freq" in name for name in model.state_dict())
    logits(model)
    assert called


def test_stored_frequencies_are_mended_only_where_nobody_chose_them():
    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8,),
        conv_stride=(2,), conv_kernel=(3,), num_feat_extract_layers=1, position_embeddings_type="rotary",
        num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    model = transformers.Wav2Vec2ConformerModel(config).eval()
    frequencies = model.encoder.embed_positions
    sound = frequencies.inv_freq.clone()
    to_bfloat16(model)
    assert repair(model).mended and torch.equal(frequencies.inv_freq, sound)
    frequencies.inv_freq.mul_(0.5)
    (row,) = repair(model).left
    assert row.name == "inv_freq" and "stored with the weights" in row.reason
    assert torch.equal(frequencies.inv_freq, sound / 2)


def test_a_patched_model_is_repaired_below_the_patch():
    model = healthy("llama")
    expected = logits(model)
    patch(model)
    emptied(model)
    assert torch.equal(logits(model), expected)  # phasor forms the tables
    repair(model)
    unpatch(model)
    assert torch.equal(logits(model), expected)


def without_rotation() -> nn.Module:
    return transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=8, n_positions=8))


def of_another_size() -> nn.Module:
    model = healthy("llama")
    model.config.head_dim = 32
    return model


def all_on_meta() -> nn.Module:
    with torch.device("meta"):
        return healthy("llama")


def not_built_from_its_config() -> nn.Module:
    model = healthy("llama")
    model.config.rope_parameters = {"rope_type": "spiral", "rope_theta": 1e4}
    return model


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: nn.Linear(2, 2), "model must be or hold a transformers model, .* got Linear"),
        (lambda: "a folder", "model must be or hold a transformers model, .* got str"),
        (without_rotation, "model must have a rotary embedding, and no module of this GPT2Model has one"),
        (of_another_size, r"config says that .*q_proj.weight is \[128, 64\], but the weights are \[64, 64\]; undo"),
        (all_on_meta, "model is on the meta device, where nothing has values; load its weights first"),
        (not_built_from_its_config, "model cannot be built again from its config: "),
    ],
)
def test_what_cannot_be_mended_is_refused_in_one_line(make, says):
    model = make()
    before = state(model) if isinstance(model, nn.Module) else None
    with pytest.raises(ValueError, match=says) as raised:
        repair(model)
    assert "\n" not in str(raised.value)
    assert before is None or state(model) == before


def test_a_wrapper_around_a_model():
    model = healthy("llama")
    expected = logits(model)
    wrapper = nn.ModuleDict({"inner": emptied(model)})
    assert {row.path for row in repair(wrapper).rows} == {"inner.model.rotary_emb"}
    assert torch.equal(logits(model), expected)


@pytest.mark.slow
def test_two_processes_of_fsdp2_from_the_meta_device(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-m", "doctor.sharded", str(tmp_path)]
    with ExitStack() as stack:
        environments = [{**os.environ, **shared, "RANK": str(rank)} for rank in range(2)]
        pair = [stack.enter_context(limited.started(command, env=environment)) for environment in environments]
        assert [process.wait(limited.LIMIT) for process in pair] == [0, 0]
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert not found["before"] and found["after"], found
        assert found["dtypes"] == {torch.float32} and found["equal"]
