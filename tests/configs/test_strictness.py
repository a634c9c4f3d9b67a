"""Bad and unknown input: always ValueError, always naming the key, never a guess."""

import contextlib
import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phasor.models.configs import read_config

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
         "max_position_embeddings": 128, "rope_theta": 10_000.0}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


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
        ('{"model_type": "llama", "rope_theta": ' + "9" * 5000 + "}", "bad.json: Exceeds the limit"),
        ('{"a": 1, "a": 2}', "bad.json: the key 'a' stands twice in one object; keep one$"),
        ('{"model_type": "' + "x" * 10**5 + '"}', "model_type must be a plain word, got 'x{79}$"),
        ('{"model_type": "llama", "rope_theta": ' + "9" * 400 + "}", "rope_theta must be a number of ordinary size"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested more than 100 deep"),
        ('{"a":' + "[" * 150 + "]" * 150 + "}", "nested more than 100 deep"),
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
        file.truncate(101 * 2**20)  # sparse: takes no room on the disk
    with pytest.raises(ValueError, match=r"huge\.json: must have at most 104857600 bytes"):
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
