"""Key heads and lengths: the class's own default where the config is silent, on record; wrong values refused."""

import contextlib
import json
from typing import Any

import pytest

from phasor.models.configs import read_config
from phasor.models.reading.keys import Keys
from phasor.models.reading.sizes import read_sizes
from phasor.rotary.scaling import DynamicNTK
from rows import FAMILIES
from steps import counted_steps

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "model_type, keys, kv_heads",  # the classes' defaults in transformers 5.23
    [
        ("mistral", {}, 8),
        ("gemma3_text", {"head_dim": 16}, 4),
        ("qwen3_moe", {}, 4),
        ("llama", {}, 4),  # None there: one per query head
        ("mistral", {"num_key_value_heads": None}, 4),
        ("mistral", {"num_key_value_heads": 2}, 2),
        ("dbrx", {}, 1),
        ("dbrx", {"attn_config": {"kv_n_heads": 2}}, 2),
        ("hy_v4", {"num_key_value_heads": 2, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}, 4),  # its class overwrites
        ("falcon", {}, 1),
        ("falcon", {"num_kv_heads": 2}, 1),
        ("falcon", {"num_kv_heads": 2, "multi_query": False}, 2),
        ("falcon", {"multi_query": False}, 4),
        ("falcon", {"num_kv_heads": 2, "new_decoder_architecture": True}, 2),
        ("falcon", {"new_decoder_architecture": True}, 4),
    ],
)
def test_key_heads(model_type: str, keys: dict[str, Any], kv_heads: int) -> None:
    assert read_config({"model_type": model_type, **SMALL, **keys}).num_kv_heads == kv_heads


def test_key_heads_that_are_not_stated_are_on_record() -> None:
    sources = read_config({"model_type": "mistral", **SMALL}).sources
    assert sources["num_key_value_heads"] == "not in config: MistralConfig's default, 8"
    sources = read_config({"model_type": "llama", **SMALL}).sources
    assert sources["num_key_value_heads"] == "not in config: one per query head, 4"
    sources = read_config({"model_type": "falcon", **SMALL}).sources
    assert sources["multi_query"] == "not in config: FalconConfig's default, true"


@pytest.mark.parametrize("value", [[8], "8", -3, 0, 2.0, True])
@pytest.mark.parametrize(
    "keys", [{}, {"multi_query": False}, {"new_decoder_architecture": True}], ids=["shared", "old", "new"]
)
def test_key_heads_of_falcon_are_checked(keys: dict[str, Any], value: Any) -> None:
    with pytest.raises(ValueError, match="num_kv_heads must be an integer of at least 1"):
        read_config({"model_type": "falcon", **SMALL, **keys, "num_kv_heads": value})


def theirs(config: Any) -> Any:
    """The key heads with which transformers' own attention is built."""
    if config.model_type == "falcon":  # FalconAttention.__init__
        return config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
    if config.model_type == "dbrx":  # DbrxAttention.__init__
        return config.attn_config.kv_n_heads
    return config.to_dict().get("num_key_value_heads")  # None: the class has no such key, or one per query head


@pytest.mark.parametrize("state", [{}, {"num_key_value_heads": None}], ids=["absent", "null"])
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_key_heads_are_those_of_transformers_when_only_query_heads_are_stated(
    model_type: str, state: dict[str, Any]
) -> None:
    """Every family of the table, with twice the default number of query heads."""
    transformers = pytest.importorskip("transformers")
    from huggingface_hub.errors import StrictDataclassFieldValidationError

    family = FAMILIES[model_type]
    heads = 2 * (family.heads or 8)
    expected = None
    with contextlib.suppress(*[StrictDataclassFieldValidationError] if state else []):  # some refuse null: as of old
        if model_type == "dots3_note_text":  # refuses other numbers of key heads than of query heads
            heads = family.heads or 0
        expected = theirs(getattr(transformers, family.config)(num_attention_heads=heads, **state))
    names = family.names
    source = {names.heads[0]: heads, names.hidden[0]: 16 * heads, names.layers[0]: 2, **state}
    assert read_sizes(family, Keys([("", source)], {})).kv_heads == (expected or heads)


def test_a_generation_length_is_no_trained_length() -> None:
    """transformers starts dynamic scaling at LlamaConfig's default, 2048; max_length 20 is a generation setting."""
    source = {"model_type": "llama", **SMALL, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    for keys in ({}, {"max_length": 20}, {"model_max_length": 20}, {"seq_length": 20}):
        model = read_config({**source, **keys})
        assert model.max_position == 2048 and next(iter(model.distinct)).scaling == DynamicNTK(2.0, 2048)


@pytest.mark.parametrize(
    "model_type, keys, length",
    [
        ("neobert", {"max_length": 4096}, 4096),  # its code builds its table for max_length positions
        ("chatglm", {"seq_length": 8192, "kv_channels": 16, "max_length": 20}, 8192),
        ("bailing_hybrid", {"model_max_length": 4096, "layer_group_size": 1}, 4096),  # attribute_map of its class
        ("gptj", {"n_positions": 1024, "rotary_dim": 8}, 1024),
        ("qwen", {"max_position_embeddings": 32768, "seq_length": 8192, "kv_channels": 16}, 32768),  # Qwen-72B's
    ],
)
def test_lengths_of_families_with_a_name_of_their_own(model_type: str, keys: dict[str, Any], length: int) -> None:
    assert read_config({"model_type": model_type, **SMALL, **keys}).max_position == length


def test_two_lengths_that_disagree_are_a_contradiction() -> None:
    source = {"model_type": "gptj", **SMALL, "rotary_dim": 16, "n_positions": 64}
    assert read_config({**source, "max_position_embeddings": 64}).max_position == 64
    with pytest.raises(ValueError, match="n_positions and max_position_embeddings contradict each other: 64 and 128"):
        read_config({**source, "max_position_embeddings": 128})


def test_the_length_is_on_record_under_its_own_key() -> None:
    text = {"model_type": "llama", **SMALL}
    default = "not in config: LlamaConfig's default, 2048"
    assert read_config(text).sources["max_position_embeddings"] == default
    text["rope_scaling"] = {"type": "dynamic", "factor": 2.0}
    sources = read_config({"model_type": "llava", "text_config": text}).sources
    assert sources["text_config.max_position_embeddings"] == f"{default}; original_max_position 2048 of dynamic scaling"
    assert "max_position_embeddings" not in sources
    sources = read_config({**text, "max_position_embeddings": 128.0}).sources
    assert sources["max_position_embeddings"] == "original_max_position 128 of dynamic scaling"


@pytest.mark.parametrize("value", [2**62 + 1, 10**30])
@pytest.mark.parametrize(
    "keys",
    [
        {"max_position_embeddings": 0},
        {"original_max_position_embeddings": 0},
        {"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0}},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 0},
        {"model_type": "qwen", "kv_channels": 16, "seq_length": 0, "use_dynamic_ntk": True},
    ],
    ids=str,
)
def test_lengths_beyond_int64_are_refused(keys: dict[str, Any], value: int) -> None:
    text = json.dumps({"model_type": "llama", **SMALL, **keys})
    source = json.loads(text.replace(": 0", f": {value}"))
    with pytest.raises(ValueError, match=rf"(position_embeddings|seq_length) must be .* at most .*, got {value}"):
        read_config(source)


@pytest.mark.parametrize(
    ("name", "most"),
    [("hidden_size", 2**20), ("num_attention_heads", 2**11), ("num_hidden_layers", 2**11), ("head_dim", 2**12),
     ("num_key_value_heads", 2**11)],
)  # fmt: skip
def test_sizes_that_no_model_has_are_refused_before_anything_is_built(name: str, most: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be at most {most}, got 1099511627776"):
        read_config({"model_type": "llama", **SMALL, name: 2**40})


def test_configs_of_absurd_extent_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config has \d+ keys; a config has at most 2000"):
        read_config({"model_type": "llama", **SMALL, **{f"k{i}": i for i in range(3000)}})
    parts = {f"part{i}_config": {"model_type": "llama"} for i in range(100)}
    with pytest.raises(ValueError, match="config holds 100 models; a composite config has at most 64"):
        read_config({"model_type": "frame", **parts})


@pytest.mark.parametrize(
    "keys",
    [{"num_hidden_layers": 2**11}, {"head_dim": 2**12}, {"num_attention_heads": 2**11, "head_dim": 2**12},
     {"model_type": "deepseek_v3", "qk_rope_head_dim": 2**12}, {f"k{i}": i for i in range(1900)}],
)  # fmt: skip
def test_the_largest_sizes_are_read_in_few_steps(keys: dict[str, Any]) -> None:
    """Far beyond any model; what is larger is refused at once."""
    with counted_steps() as steps:
        read_config({"model_type": "llama", **SMALL, **keys})
    assert steps.count < 2_000_000  # about half of that; the squares of these sizes are four million
