"""Bad and unknown input: always ValueError, always naming the key, never a guess."""

import contextlib
import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phasor.models.configs import Refused, read_config

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
         "max_position_embeddings": 128, "rope_theta": 10_000.0}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    "key",
    ["rope_thetas", "rope_base", "roep_scaling", "rop_theta", "rotary_percent", "my_rope_key", "ntk_alpha",
     "yarn_factor", "use_alibi", "position_encoding_3d", "xrope", "original_max_position_embedding", "ropeTheta",
     "rope_ratio", "rope_freq_base", "swa_rope_theta", "partial_rotary_factors", "position_interpolation_factor",
     "seq_len_interpolation_factor"],
)  # fmt: skip
def test_every_single_unknown_key_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=rf"\b{key}\b"):
        read_config({**LLAMA, key: 3})


@pytest.mark.parametrize("key", ["attn_factor", "betafast", "mscal", "foo", "alpha", "short_factor", "low_freq_factor"])
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_every_unknown_key_inside_the_rope_dictionary_is_named(place: str, key: str) -> None:
    with pytest.raises(ValueError, match=rf"{place}\.{key} is not understood: llama with yarn scaling uses"):
        read_config({**LLAMA, place: {**YARN, key: 2.0}})


@pytest.mark.parametrize(
    "wrong, right",
    [("beta_fst", "beta_fast"), ("original_max_position_embedding", "original_max_position_embeddings"),
     ("attention_facter", "attention_factor"), ("fctor", "factor")],
)  # fmt: skip
def test_a_slip_is_told_the_right_name(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=rf"{wrong} is not understood.*did you mean {right}\?"):
        read_config({**LLAMA, "rope_scaling": {**YARN, wrong: 32}})


def test_an_unknown_scaling_is_told_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"rope_scaling.type is 'llama4', which is none of .*did you mean llama3"):
        read_config({**LLAMA, "rope_scaling": {"type": "llama4", "factor": 2.0}})


def test_a_rope_key_deep_inside_an_unrelated_setting_is_named() -> None:
    with pytest.raises(ValueError, match=r"attn_settings\.inner\.rope_theta is not understood"):
        read_config({**LLAMA, "attn_settings": {"inner": {"rope_theta": 5.0}}})


@pytest.mark.parametrize(
    "keys, words",
    [
        ({"rope_parameters": {"rope_theta": 5e5}}, ["rope_theta", "rope_parameters.rope_theta", "contradict"]),
        ({"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}}, ["rope_type", "contradict"]),
        ({"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 2.0}}, ["factor", "contradict"]),
        ({"rope_scaling": YARN, "original_max_position_embeddings": 64}, ["original_max_pos", "contradict"]),
        ({"model_type": "hunyuan_vl_text", "head_dim": 16, "attention_head_dim": 32}, ["attention_head_dim"]),
        ({"model_type": "gptj", "n_head": 8}, ["num_attention_heads", "n_head", "contradict"]),
    ],
)  # fmt: skip
def test_contradictions_name_both_keys(keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match="contradict each other") as error:
        read_config({**LLAMA, **keys})
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("model_type", ["nanochat", "llama", "qwen2_vl_text"])
@pytest.mark.parametrize("off", [False, None])
def test_an_order_of_axes_that_is_off_contradicts_no_dictionary_without_it(model_type: str, off: bool | None) -> None:
    """None of these classes reads ``mrope_interleaved``; switched on beside a dictionary without it, it is refused."""
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    config = {"model_type": model_type, "hidden_size": 4096, "num_attention_heads": 32, "rope_scaling": plain}
    once = read_config(config)
    for one, other in ((plain, {**plain, "mrope_interleaved": off}), ({**plain, "mrope_interleaved": off}, plain)):
        assert read_config({**config, "rope_parameters": one, "rope_scaling": other}).layers == once.layers
    with pytest.raises(ValueError, match=r"rope_parameters\.mrope_interleaved contradict each other: None and True"):
        read_config({**config, "rope_parameters": {**plain, "mrope_interleaved": True}})


@pytest.mark.parametrize("value", ["10000", True, -5.0, 0, 1, float("nan"), float("inf"), [10_000.0], {"a": 1}])
def test_bases_that_are_none(value: Any) -> None:
    with pytest.raises(ValueError, match="rope_theta must be a finite number"):
        read_config({**LLAMA, "rope_theta": value})


@pytest.mark.parametrize(
    "key, value",
    [("num_attention_heads", 0), ("num_hidden_layers", "2"), ("hidden_size", 64.5), ("head_dim", -16),
     ("rope_scaling", "linear"), ("rope_scaling", [1]), ("layer_types", "full_attention"), ("head_dim", 15)],
)  # fmt: skip
def test_wrong_types_and_sizes_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match="rotary_dim" if value == 15 else key):
        read_config({**LLAMA, key: value})


def test_heads_that_do_not_divide_the_width() -> None:
    with pytest.raises(ValueError, match="64 and 5; the first must be a multiple of the second; add head_dim"):
        read_config({**LLAMA, "num_attention_heads": 5})


@pytest.mark.parametrize("kv_heads", [3, 8])
def test_key_heads_that_do_not_divide_the_query_heads(kv_heads: int) -> None:
    """transformers builds such a Llama; its first call ends in a RuntimeError about the sizes of two tensors."""
    with pytest.raises(ValueError, match=f"num_key_value_heads must divide .* query heads, 4, got {kv_heads}"):
        read_config({**LLAMA, "num_key_value_heads": kv_heads})


@pytest.mark.parametrize("name", ["original_max_position_embeddings", "factor", "low_freq_factor", "high_freq_factor"])
def test_a_missing_scaling_key_is_named(name: str) -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}  # fmt: skip
    with pytest.raises(ValueError, match=rf"rope_scaling\.{name} is missing"):
        read_config({**LLAMA, "rope_scaling": {k: v for k, v in rope.items() if k != name}})


@pytest.mark.parametrize(
    "source, words",
    [
        ({"model_type": "bloom", "n_head": 4}, "bloom uses ALiBi; it has no rotary embedding to read"),
        ({"model_type": "mpt", "attn_config": {"alibi": True}}, "mpt uses ALiBi"),
        ({"model_type": "t5"}, "t5 uses T5's bucketed relative bias"),
        ({"model_type": "gpt2"}, "gpt2 uses learned absolute positions"),
        ({"model_type": "deberta-v2"}, "disentangled relative positions"),
        ({"model_type": "jamba"}, "jamba uses no position encoding in its attention"),
        ({**LLAMA, "model_type": "falcon", "alibi": True}, "falcon uses ALiBi"),
        ({**LLAMA, "model_type": "esm", "position_embedding_type": "absolute"}, "esm uses learned absolute positions"),
        ({"model_type": "gpt_neo", "num_heads": 4}, "gpt_neo uses learned absolute positions"),
        ({**LLAMA, "model_type": "baichuan", "hidden_size": 5120}, "baichuan 13B uses ALiBi"),
        ({**LLAMA, "model_type": "cohere2", "layer_types": ["full_attention"] * 2}, "rotates in none of its 2 layers"),
        ({**LLAMA, "model_type": "smollm3", "no_rope_layers": [0, 0]}, "rotates in none of its 2 layers"),
        ({"model_type": "falcon_perception"}, "falcon_perception' cannot be read: half of each head follows 2-D"),
        ({"model_type": "timm_wrapper"}, "its architecture comes from timm"),
        ({**LLAMA, "model_type": "lama"}, "'lama' is not known.*did you mean llama.*RotarySpec yourself"),
        ({"hidden_size": 64}, "model_type is missing.*RotarySpec yourself"),
    ],
)  # fmt: skip
def test_models_without_a_readable_rotation_say_why(source: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_config(source)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_config(tmp_path) == read_config(str(tmp_path / "config.json")) == read_config(LLAMA)
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())  # UTF-8 with byte order mark
    assert read_config(tmp_path / "marked.json") == read_config(LLAMA)
    with pytest.raises(ValueError, match="there is no such file"):
        read_config(tmp_path / "nothing.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"the folder has no config\.json"):
        read_config(tmp_path / "empty")
    for text, words in (
        ("{", "is not JSON"),
        ("[1]", "must hold a JSON object, got list"),
        ("[" * 200_000, "nested too deeply"),
        ('{"model_type": "llama", "rope_theta": NaN}', "rope_theta must be a finite number, got nan"),
        ('{"model_type": "llama", "rope_theta": ' + "9" * 5000 + "}", "is no config: Exceeds the limit"),
        ('{"a": 1, "a": 2}', "bad.json' is no config: the key 'a' stands twice in one object; keep one$"),
        ('{"model_type": "' + "x" * 10**5 + '"}', "model_type must be a plain word, got 'x{79}$"),
        ('{"model_type": "llama", "rope_theta": ' + "9" * 400 + "}", "rope_theta must be a number of ordinary size"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested more than 100 deep"),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_config(tmp_path / "bad.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not JSON in UTF-8"):
        read_config(tmp_path / "binary.json")
    os.mkfifo(tmp_path / "pipe.json")
    for other, words in ((tmp_path / "pipe.json", "pipe.json must be .*, and is a pipe"), ("/dev/null", "is a device")):
        with pytest.raises(ValueError, match=words):
            read_config(other)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(65 * 2**20)  # sparse: takes no room on the disk
    with pytest.raises(ValueError, match="a config has at most"):
        read_config(tmp_path / "huge.json")


@pytest.mark.parametrize("source", [None, 3, ["llama"], object()])
def test_sources_that_are_none(source: Any) -> None:
    with pytest.raises(ValueError, match=r"source must be the path of a config\.json"):
        read_config(source)


def test_reading_does_not_change_the_source() -> None:
    source = {**LLAMA, "rope_scaling": dict(YARN)}
    before = copy.deepcopy(source)
    read_config(source)
    assert source == before


NAMES = st.sampled_from(
    ["model_type", "rope_theta", "rope_scaling", "rope_parameters", "type", "rope_type", "factor", "head_dim",
     "hidden_size", "num_attention_heads", "num_hidden_layers", "layer_types", "text_config", "full_attention",
     "mrope_section", "partial_rotary_factor", "no_rope_layers", "short_factor", "per_layer_config", "architectures"],
)  # fmt: skip
WORDS = st.sampled_from(
    ["llama", "gemma3_text", "qwen2_vl", "yarn", "linear", "longrope", "default", "deepseek_v4", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 300) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


def reads_or_refuses(source: Any, part: Any = None) -> None:
    with contextlib.suppress(ValueError):
        read_config(source, part)


ANY = given(st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=8), st.none() | WORDS)


@settings(max_examples=100, deadline=None)
@example({"model_type": {"text_config": {"model_type": "llama"}}}, None)  # a part inside what is no part
@ANY
def test_any_json_reads_or_raises_value_error(source: dict[str, Any], part: str | None) -> None:
    reads_or_refuses(source, part)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@ANY
def test_much_json_reads_or_raises_value_error(source: dict[str, Any], part: str | None) -> None:
    reads_or_refuses(source, part)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["llama", "gemma3_text", "gemma4_text", "qwen3_vl", "deepseek_v3", "deepseek_v4", "llama4_text",
                        "step3p5", "falcon", "molmo2_text", "nemotron-nas", "dbrx", "phi3", "mimo_v2_flash"]),
       st.dictionaries(NAMES, JSON, max_size=4))  # fmt: skip
def test_any_change_of_a_small_config_reads_or_raises_value_error(model_type: str, changes: dict[str, Any]) -> None:
    reads_or_refuses({**LLAMA, "model_type": model_type, **changes})


def mutated(config: Any, source: random.Random) -> Any:
    """The config with one value, anywhere, replaced, removed, renamed or duplicated."""
    config = copy.deepcopy(config)
    node = config
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = source.choice(keys)
        inner = node[key]
        if isinstance(inner, dict | list) and inner and source.random() < 0.8:
            node = inner
            continue
        values = [None, True, 0, -1, 3, 1e308, float("nan"), "x", [], {}, [None], {"a": 1}, 10**400, "full_attention"]
        action = source.choice(["replace", "remove", "rename"])
        if action == "replace" or isinstance(node, list):
            node[key] = source.choice(values)
        else:
            value = node.pop(key)
            if action == "rename":
                node[key + "x"] = value
        return config


def test_mutated_real_configs_read_or_raise_value_error(shared_data: Path) -> None:
    source = random.Random(0)
    for path in sorted((shared_data / "configs").glob("*/*.json")):
        config = json.loads(path.read_text())
        for _ in range(12):
            reads_or_refuses(mutated(config, source))


def test_parameters_per_layer_type_are_checked_like_any_others() -> None:
    key = "rope_parameters"
    gemma = {**LLAMA, "model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"]}
    del gemma["rope_theta"]
    full, sliding = {"rope_theta": 1e6}, {"rope_theta": 1e4}
    with pytest.raises(ValueError, match=rf"{key}\.full_attention\.fatcor is not understood.*did you mean factor"):
        read_config({**gemma, key: {"full_attention": {**full, "fatcor": 2.0}, "sliding_attention": sliding}})
    with pytest.raises(ValueError, match=rf"{key}\.sliding_atention is not understood"):
        read_config({**gemma, key: {"full_attention": full, "sliding_atention": sliding}})
    with pytest.raises(ValueError, match=r"swa_rope_theta is 10000\.0, but the code of gemma3_text does not read it"):
        read_config({**gemma, "swa_rope_theta": 1e4})
    with pytest.raises(ValueError, match=r"attn_config\.rope_theta is not understood"):
        read_config({**gemma, "attn_config": {"rope_theta": 5e5}})


@pytest.mark.parametrize("value", [[1], "x", 3, False])
@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config", "decoder", "thinker_config"])
def test_a_text_part_that_is_none_is_not_replaced_by_a_default(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{key} must be an object of keys, the config of the text model"):
        read_config({**LLAMA, "model_type": "llava", key: value})
    with pytest.raises(ValueError, match=r"^thinker_config\.text_config must be an object of keys"):
        read_config({"model_type": "qwen3_omni_moe", "thinker_config": {"model_type": "x", "text_config": value}})
    assert read_config({**LLAMA, "model_type": "llava", key: None}).layers == read_config(LLAMA).layers


def test_a_short_text_part_is_read_with_its_own_keys() -> None:
    """LLaVA's configs leave out what LlamaConfig has by default, even all sizes: 8 heads of 4096 / 8 channels."""
    model = read_config({"model_type": "llava", "text_config": {"num_attention_heads": 8}})
    assert (model.part, model.num_heads, model.layers[0].head_dim) == ("text_config", 8, 512)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "source, where",
    [
        ({0: 1}, "config keys"),
        ({"rope_scaling": {0: 1}}, "rope_scaling has the key 0"),
        ({"rope_parameters": {**YARN, 0: 1}}, "rope_parameters has the key 0"),
        ({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {0: 1}}}, r"full_attention has the key 0"),
        ({"model_type": "gemma3_text", "rope_parameters": {0: {}}}, "rope_parameters has the key 0"),
        ({"model_type": "dbrx", "attn_config": {0: 1}}, "attn_config has the key 0"),
        ({"model_type": "llava", "text_config": {**LLAMA, 0: {}}}, "text_config has the key 0"),
        ({"settings": {0: {"rope_theta": 2.0}}}, r"settings\.0\.rope_theta is not understood"),
    ],
)
def test_keys_that_are_no_words_are_refused_where_they_are_read(source: dict[Any, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        read_config({**LLAMA, **source})


def test_a_dictionary_of_labels_by_number_is_no_reason_to_refuse() -> None:
    """transformers' own to_dict() has such keys."""
    assert read_config({**LLAMA, "id2label": {0: "A", 1: "B"}}) == read_config(LLAMA)


def test_a_part_of_a_config_without_parts() -> None:
    words = r"part must be left out, because this config has no parts, got 'text_config'"
    with pytest.raises(ValueError, match=words):
        read_config(LLAMA, part="text_config")
    assert read_config(LLAMA, part="") == read_config(LLAMA)


def test_an_absurd_mscale_is_refused_as_a_value() -> None:
    rope = {**YARN, "mscale": 1.0, "mscale_all_dim": 1e200}
    with pytest.raises(ValueError, match="finite number"):
        read_config({**LLAMA, "model_type": "deepseek_v3", "rope_scaling": rope})


UNKNOWN = {
    "model_type": "newcomer", "head_dim": 16, "partial_rotary_factor": 0.5, "rope_theta": 5e5, "rope_interleave": True,
    "num_attention_heads": 4, "num_hidden_layers": 2,
}  # fmt: skip


@pytest.mark.parametrize("part", ["text_config", "vision_config"])
def test_a_type_that_nothing_knows_is_refused_whatever_its_keys_say(part: str) -> None:
    for config, where in ((UNKNOWN, ""), ({"model_type": "llava", part: UNKNOWN}, part)):
        with pytest.raises(
            Refused, match=r"'newcomer' is not known.*phasor\.observe.*register_model.*RotarySpec"
        ) as no:
            read_config(config, where)
        assert no.value.keys == (f"{where}.model_type".lstrip("."),)


def test_a_name_of_the_hub_is_read_from_its_cache_or_said(tmp_path, monkeypatch):
    """As ``huggingface_hub`` lays out what it fetched; nothing is fetched here."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    message = "and the hub's cache .*; fetch it with: hf download some-lab/Model-1.5B config.json"
    with pytest.raises(ValueError, match=message):
        read_config("some-lab/Model-1.5B")
    folder = tmp_path / "hub/models--some-lab--Model-1.5B"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc")
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "snapshots/abc/config.json").write_text(
        '{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "rope_theta": 777}'
    )
    assert read_config("some-lab/Model-1.5B").layers[0].base == 777.0
    (tmp_path / "some-lab").mkdir()
    (tmp_path / "some-lab/Model-1.5B").write_text("{}")  # a file of that name comes first
    with pytest.raises(ValueError, match="model_type is missing"):
        read_config("some-lab/Model-1.5B")
    with pytest.raises(ValueError, match="there is no such file"):
        read_config("folder/config.json/deep")
