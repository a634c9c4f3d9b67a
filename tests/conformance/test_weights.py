"""The `weights` of the rows by behaviour: what they name is permuted in tiny models of every type (`permuted`)."""

import importlib
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from phasor.eye.tiny.model import model_class
from phasor.models.prefixes import find_prefix
from phasor.models.rows import ROWS
from phasor.models.weights import Rows, Weights
from rows import FAMILIES, INDEXERS, NO_WEIGHTS, PUBLISHED, REMOTE, TOWERS, WEIGHTS

from . import given, tiny
from .permuted import faults
from .walk import quiet

TYPES = sorted({*FAMILIES, *TOWERS, *(f"{name}.indexer" for name in INDEXERS)} - {*NO_WEIGHTS})
FEW = (  # a packing each
    "codegen", "deepseek_v3", "falcon", "gpt_neox", "llama", "phi3", "qwen2_5_omni_dit", "qwen3_next", "roformer",
)  # fmt: skip

# What a config may switch: type, changed keys.
SWITCHED: list[tuple[str, dict[str, Any]]] = [
    ("cohere", {"use_qk_norm": True}),
    ("deepseek_v3", {"q_lora_rank": None}),
    ("deepseek_v3", {"attention_bias": True}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_attention_heads": 4}),
    ("falcon", {"multi_query": False, "bias": True}),
    ("gemma3n_text", {"num_kv_shared_layers": 1}),
    ("gemma4_text", {"attention_k_eq_v": True}),
    ("glm4_moe", {"use_qk_norm": True}),
    ("gpt_neox", {"attention_bias": False}),
    ("idefics", {"qk_layer_norms": True}),
    ("llama", {"attention_bias": True}),
    ("phi", {"qk_layernorm": True}),
    ("persimmon", {"qk_layernorm": False}),
    ("qwen3_next", {"attention_bias": True}),
    ("stablelm", {"qk_layernorm": True, "use_qkv_bias": True}),
]

NOT_RUN = {
    "esmfold2_atom": "it stands in three places of a model whose inputs are features of a folded protein",
    "pe_audio_video_encoder": "it needs the library timm",
    "pe_video_encoder": "it needs the library timm",
}


def weights_of(name: str) -> Weights:
    return INDEXERS[name.removesuffix(".indexer")].weights if name.endswith(".indexer") else WEIGHTS[name]


@lru_cache(maxsize=8)
def built(name: str, after: str) -> tuple[Any, Any, Any]:
    """A model, which `faults` leaves as it was, its inputs, and what is read of its config."""
    model = given.build(name)
    return model, given.inputs_for(name, model), given.read(name, model)


def checked(name: str, weights: Weights | None = None) -> tuple[list[str], int, int]:
    return faults(*built(name, str(tiny.AFTER.get(name))), weights or weights_of(name))


@pytest.mark.parametrize("name", FEW)
def test_a_few_types(name: str) -> None:
    found, attentions, _ = checked(name)
    assert not found and attentions


@pytest.mark.slow
@pytest.mark.parametrize("name, changes", SWITCHED)
def test_what_a_config_may_switch(name: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiny.AFTER, name, {**tiny.AFTER.get(name, {}), **changes})
    found, attentions, whole = checked(name)
    assert not found and attentions and whole


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("llama", Weights(rows=(Rows("q_proj", "k"), Rows("k_proj", "q")))),
        ("llama", Weights(rows=(Rows("q_proj", "q"), Rows("v_proj", "k")))),
        ("qwen3", Weights(q_norms=())),
        ("qwen3", Weights(q_norms=("k_norm",), k_norms=("q_norm",))),
        ("hunyuan_v1_dense", Weights()),
        ("phi3", Weights(rows=(Rows("qkv_proj", "kqv"),))),
        ("gpt_neox", replace(WEIGHTS["gpt_neox"], rows=(Rows("query_key_value", "qkv"),))),
        ("codegen", replace(WEIGHTS["codegen"], rows=(Rows("qkv_proj", "qkv", blocks=4),))),
        ("qwen3_next", Weights(rows=(Rows("q_proj", "q"), Rows("k_proj", "k")))),
        ("deepseek_v3", Weights(rows=(Rows("q_b_proj", "q"), Rows("kv_a_proj_with_mqa", "rc")))),
        ("zaya", replace(WEIGHTS["zaya"], rows=WEIGHTS["zaya"].rows[:-1])),
    ],
)
def test_a_wrong_claim_is_noticed(name: str, wrong: Weights) -> None:
    assert checked(name, wrong)[0]


def test_keys_that_are_values_need_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiny.AFTER, "gemma4_text", {"attention_k_eq_v": True})
    assert checked("gemma4_text", Weights())[0] == ["q and k permuted alike change the output"]


# type, class of a whole model, part of its config, its name in the table, and where its layers are
WHOLE = [
    ("csm", "CsmForConditionalGeneration", None, "csm", ""),
    ("gemma3", "Gemma3ForConditionalGeneration", "text_config", "gemma3_text", "model.language_model."),
    ("llama", "LlamaForCausalLM", None, "llama", "model."),
    ("llava", "LlavaForConditionalGeneration", "text_config", "llama", "model.language_model."),
    ("mllama", "MllamaForConditionalGeneration", "text_config", "mllama_text_model", "model.language_model."),
    ("modernbert", "ModernBertForMaskedLM", None, "modernbert", "model."),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", "text_config", "qwen2_vl_text", "model.language_model."),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", "vision_config", "qwen2_vl_vision", "model.visual."),
    ("qwen3_5", "Qwen3_5ForConditionalGeneration", "text_config", "qwen3_5_text", "model.language_model."),
]


@pytest.mark.parametrize("name, cls, part, row, prefix", WHOLE)
def test_layers_are_found_in_whole_models(name: str, cls: str, part: str | None, row: str, prefix: str) -> None:
    config = tiny.tiny_config(name)
    with quiet(), torch.device("meta"):
        model = getattr(importlib.import_module("transformers"), cls)(config)
    shapes = {n: tuple(x.shape) for n, x in model.state_dict().items()}
    rotary = given.read_config(config, part=part)
    sizes = {"heads": rotary.num_heads, "kv_heads": rotary.num_kv_heads}
    assert find_prefix(shapes, WEIGHTS[row], rotary.layers, **sizes) == prefix


def has_learned_frequencies(name: str) -> bool:
    """Whether a family's default config has them; one that leaves out what it must say has none."""
    try:
        model = given.read_config({"model_type": name})
    except ValueError:
        return False
    return any(spec.learned for spec in model.distinct)


def test_learned_frequencies_have_a_name() -> None:
    named = {name: weights.frequencies for name, weights in WEIGHTS.items() if weights.frequencies}
    assert {*named} == {name for name in FAMILIES if has_learned_frequencies(name)}
    for name, tensor in named.items():
        config = tiny.tiny_config(name)
        with quiet(), torch.device("meta"):
            assert model_class(config)(config).state_dict()[tensor].ndim == 1


def test_every_name_is_a_type() -> None:
    """What could not be run is marked as read: code from elsewhere, and published files under other names."""
    read = {name for name, weights in WEIGHTS.items() if weights.source == "read"}
    classes = {family.config for family in FAMILIES.values()}
    other_names = {name for name in REMOTE if ROWS[name].config in classes} - {"roformer_v2"}
    assert other_names == {"deepseek_ref", "kimi_k2", "phi4mm"}
    stated = {name for name in REMOTE - other_names if WEIGHTS[name] != Weights()}
    assert read == stated and all(w.source == "read" for w in PUBLISHED.values())
    assert set(NO_WEIGHTS) <= set(TOWERS)


FATES: dict[str, tuple[int, int]] = {}
SLICES = 12


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_all_types_that_can_be_built_small(start: int) -> None:
    wrong = {}
    for name in TYPES[start::SLICES]:
        if name in NOT_RUN:
            with pytest.raises(Exception):  # noqa: B017, PT011 (whatever stops it)
                checked(name)
            continue
        found, *FATES[name] = checked(name)
        print(f"{name:40} {FATES[name][0]:3} attentions, whole model: {bool(FATES[name][1])}", flush=True)
        if found:
            wrong[name] = found
    assert not wrong


@pytest.mark.slow
def test_which_types_were_reached() -> None:
    """Of the tests above, which must have run."""
    if len(FATES) + len(NOT_RUN) < len(TYPES):
        pytest.skip("needs all tests of test_all_types_that_can_be_built_small before it")
    assert not [name for name, (attentions, _) in FATES.items() if not attentions]
    print(f"{len(FATES)} types: {sum(w for _, w in FATES.values())} whole models")
