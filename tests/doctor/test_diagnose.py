"""`phasor.diagnose`: what it takes, what it refuses, what it leaves as it was, and models that are not sound wholly."""

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")
import transformers

import phasor
from phasor import diagnose
from phasor.tools.doctor import Check, examinations

from .families import SIZES, model_of, rotary_of
from .faults import damaged


def state(model: nn.Module) -> Any:
    """All that a model is, but for the values of its tensors."""
    own = [{n: repr(v) for n, v in vars(m).items() if n != "_modules"} for m in model.modules()]
    return own, repr(model.config), [id(t) for t in (*model.parameters(), *model.buffers())]


@pytest.mark.parametrize("rope_type", ["default", "dynamic"])
def test_a_model_is_left_as_it_was(rope_type: str) -> None:
    rope = {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0}
    config = transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 64}, rope_parameters=rope)
    model = transformers.LlamaForCausalLM(config)
    model.model.layers[0].eval()  # and the rest in training mode
    before, values, random = state(model), copy.deepcopy(model.state_dict()), torch.get_rng_state()
    seen = diagnose(model)
    assert state(model) == before and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(a, b) for a, b in zip(values.values(), model.state_dict().values(), strict=True))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert seen.sound and torch.is_grad_enabled()


def test_each_examination_finds_the_model_as_it_was_and_is_told_of_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def damaging(observed: Any, before: Any) -> list[Check]:
        (rotary,) = observed.modules.values()
        seen.append((rotary.inv_freq, hasattr(rotary, "mark"), len(before)))
        rotary.inv_freq, rotary.mark = rotary.inv_freq * 2, True
        return [Check(what="anything", against="spec", verdict="right")]

    monkeypatch.setattr(examinations, "EXAMINATIONS", (damaging, damaging))
    assert len(diagnose(model_of("llama")).findings) == 2
    (first, marked, none), (second, marked_again, one) = seen
    assert first is second and not marked and not marked_again and (none, one) == (0, 1)


def test_a_model_that_raises_is_left_as_it_was() -> None:
    model = model_of("llama").train()
    before = state(model)
    with pytest.raises(ValueError, match="inputs must be what the model takes; it raises"):
        diagnose(model, {"pixel_values": torch.zeros(1, 9)})
    assert state(model) == before


@pytest.mark.parametrize(
    "model, inputs, message",
    [
        (None, None, "model must be a transformers model, or a function of tokens, got NoneType"),
        ("llama", None, "model must be a transformers model, or a function of tokens, got str"),
        (len, torch.zeros(2, 4, dtype=torch.long), r"inputs must be token ids \[batch, seq\] of at least 8 tokens"),
        (len, "text", "or a dictionary of keyword arguments, got str"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnose(model, inputs)


def test_of_a_model_without_rotary_it_says_what_there_is_instead() -> None:
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    found = diagnose(transformers.BertModel(config))
    assert found.verdict == "right" and found.exit_code == 0
    says = "nothing rotates: learned positions, added to the embeddings, from row 0 of 512"
    assert found.findings[0].reason == says and found.findings[0].verdict == "not shown"
    row = next(row for row in found.findings if row.what == "positions added to the tokens")
    assert (row.verdict, row.where) == ("right", "embeddings")


def test_a_model_without_rotary_and_without_values_is_refused() -> None:
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    with torch.device("meta"):
        model = transformers.BertModel(config)
    with pytest.raises(ValueError, match="model must have a rotary embedding, and no module of this BertModel has one"):
        diagnose(model)


def test_on_the_meta_device_it_is_judged_by_the_spec_only() -> None:
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(model_of("llama").config)
    found = diagnose(model)
    assert not found.wrong and found.verdict == "not shown"  # what runs was not observed
    assert {row.verdict for row in found.findings if row.against == "itself"} == {"not shown"}
    assert [row.what for row in found.findings if row.against == "spec"] == ["tables"]


def test_frequencies_that_stayed_on_the_meta_device() -> None:
    model = model_of("llama")
    rotary_of(model).to("meta")
    found = diagnose(model)
    assert found.causes[0] == "frequencies on the meta device"


def test_a_model_that_phasor_runs_is_sound() -> None:
    model = model_of("llama")
    phasor.patch(model)
    assert diagnose(model).sound
    rotary_of(model).to(torch.bfloat16)  # its stand-in forms its tables from the spec
    assert diagnose(model).sound


def test_a_model_loaded_in_half_precision_is_sound() -> None:
    config = model_of("llama").config
    found = diagnose(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16))
    assert found.sound, str(found)


def test_a_tower_is_watched_when_an_image_is_given() -> None:
    from integrations.models import qwen2_vl

    model, inputs = qwen2_vl()
    seen = {row.where: row for row in diagnose(model, inputs).findings if row.where.startswith("model.visual.blocks")}
    assert {row.verdict for row in seen.values()} == {"right"}
    assert all(row.reason == "" for row in seen.values())  # not of its function alone


def test_a_diagnosis_says_the_verdict_first_and_is_plain_data() -> None:
    with damaged("llama", "frequencies in bfloat16") as model:
        found = diagnose(model)
    lines = str(found).splitlines()
    assert lines[0].startswith(
        "LlamaForCausalLM: wrong: 1 fault in 18 checks: frequencies rounded to bfloat16; 2 not shown"
    )
    assert lines[1].startswith("wrong: model.rotary_emb: tables (cos and sin differ by")
    assert "phasor.repair(model)" in lines[2]
    of_both_layers = [line for line in lines if line.startswith("right: model.layers.0-1.self_attn: ")]
    assert [line.split(": ")[2].split(" (")[0] for line in of_both_layers] == [
        "rotation of q and k",
    ]
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["sound"] is False and data["verdict"] == "wrong" and len(data["checks"]) == len(found.findings)
    assert data["checks"][0]["cause"] == "frequencies rounded to bfloat16"


def gptj() -> Any:
    sizes = {"n_embd": 64, "n_layer": 1, "n_head": 4, "rotary_dim": 8, "n_positions": 512, "vocab_size": 96}
    torch.manual_seed(0)
    config = transformers.GPTJConfig(**sizes, bos_token_id=1, eos_token_id=2)
    return transformers.GPTJForCausalLM(config).eval()


def test_a_table_that_a_model_keeps() -> None:
    model = gptj()
    assert diagnose(model).sound
    assert any(row.what == "table embed_positions" and row.verdict == "right" for row in diagnose(model).findings)
    keeps = next(module for module in model.modules() if "embed_positions" in module._buffers)
    keeps.embed_positions = keeps.embed_positions[:100]
    first = diagnose(model).wrong[0]
    assert (first.cause, first.position) == ("table of another length", 100.0)
    angles = torch.arange(512)[:, None] * 1000.0 ** -(torch.arange(4) / 4)
    keeps.embed_positions = torch.cat((angles.sin(), angles.cos()), dim=-1)
    first = diagnose(model).wrong[0]
    assert (first.cause, first.position, first.pair) == ("base", 1.0, 1), str(first)


def test_the_shortest_inputs_are_enough() -> None:
    assert diagnose(model_of("llama"), torch.arange(8).expand(2, -1)).sound


@pytest.mark.parametrize("worst", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_refused(worst: int) -> None:
    with pytest.raises(ValueError, match="inputs must be token ids from 0 to"):
        diagnose(model_of("llama"), torch.arange(10).expand(2, -1).index_fill(1, torch.tensor([3]), worst))


def test_a_wrapper_is_refused_or_opened() -> None:
    model = model_of("llama")
    with pytest.raises(ValueError, match="give the model inside"):
        diagnose(nn.DataParallel(model))
    with pytest.raises(ValueError, match="got type"):
        diagnose(type(model))
    compiled = diagnose(torch.compile(model, backend="eager"))
    assert compiled.sound and compiled.findings[-1].what == "compiled = eager"
    assert compiled.findings[:-1] == diagnose(model).findings
