"""What the page reads of a config that is dropped on it is what phasor reads, or it says in one line why not."""

import json
import sys
from pathlib import Path

import pytest
from explorer_page import plain_types
from explorer_page.entries import memory_groups, spec_data

from phasor import read_config
from phasor.models.published_lengths import published_length
from phasor_serve.engines import load_config

READ = "return readConfigText(a[0], 'x', RULES)"
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 4, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
COMMAND = "phasor inspect config.json"
SCALINGS = [
    {"type": "linear", "factor": 4}, {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "default"},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "truncate": False},
    {"rope_type": "yarn", "original_max_position_embeddings": 2048, "beta_fast": 16, "attention_factor": 1.1},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
     "mscale_all_dim": 0.5},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"type": "longrope", "short_factor": [1.5] * 64, "long_factor": [3.25] * 64,
     "original_max_position_embeddings": 4096, "short_mscale": 1.1, "long_mscale": 1.2},
    {"rope_theta": 1234.5, "rope_type": "linear", "factor": 2.5},
]  # fmt: skip


def differences(got, config):
    """Where the page's entry is not what phasor reads."""
    model, (mine,) = read_config(config), got["rotations"]
    if len(model.distinct) != 1:
        return ["one rotation"]
    (spec,), published = model.distinct, published_length(model)
    pairs = {
        "type": (got["type"], model.model_type),
        "declared": (got["declared"], model.max_position),
        "trained": (got["trained"], published and published.tokens),
        "heads": (got["heads"], model.num_heads),
        "kv_heads": (got["kv_heads"], model.num_kv_heads),
        "layers": ([got["layers"], mine["layers"]], [len(model.layers)] * 2),
        "all layers": (None not in model.layers, True),
        "windows": (any(model.windows), False),
        "more": ((model.softmax_factor, model.targets, any(model.temperatures)), (1, ("q", "k"), False)),
        "spec": (mine["spec"], spec_data(spec)),
        "own angles": (got["own_angles"], model.own_angles),
    }
    kept = [
        [{**store, "kind": "attention"} for store in group["stores"]] for group in memory_groups(load_config(config))
    ]
    wrong = [name for name, (one, other) in pairs.items() if one != other]
    return wrong + (["memory"] if any(stores != got["memory"][0]["stores"] for stores in kept) else [])


def is_right(js, config):
    """Whether the page read it, and as phasor does; None where it refused, in one line that names the command."""
    got = js(READ, json.dumps(config))
    if "refused" in got:
        assert "\n" not in got["refused"] and (COMMAND in got["refused"] or "no config.json" in got["refused"]), got
        return None
    assert differences(got, config) == [], config
    return True


@pytest.fixture(scope="module")
def types():
    return plain_types()


def test_every_plain_type_by_its_defaults(js, types):
    assert {"llama", "mistral", "qwen2", "qwen3", "phi3", "gemma"} <= set(types)
    assert not {"deepseek_v3", "gpt_oss", "gemma3", "llama4", "qwen2_vl", "chatglm"} & set(types)
    for name in types:
        assert is_right(js, {"model_type": name}), name


@pytest.mark.parametrize("rope", SCALINGS, ids=lambda rope: rope.get("rope_type", rope.get("type")))
@pytest.mark.parametrize("key", [pytest.param("rope_scaling", marks=pytest.mark.slow), "rope_parameters"])
def test_every_plain_type_with_every_scaling(js, types, rope, key):
    read = 0
    for name in types:
        theta = {} if "rope_theta" in rope else {"rope_theta": 500000.0}
        config = {**LLAMA, "model_type": name, "head_dim": 128, **theta, key: rope}
        config = {k: v for k, v in config.items() if k != "rope_theta" or theta}
        try:
            read_config(config)
        except ValueError:
            assert is_right(js, config) is None, name
        else:
            read += is_right(js, config) or 0
    assert read > 20


def test_every_config(js, every_config):
    """Those that are read are right, and no type is refused that is plain without one of the reasons that it states."""
    found = {name: is_right(js, config) for name, config in every_config.items()}
    assert found["Qwen/Qwen3-8B"] and found["meta-llama/Llama-3.1-8B"]
    assert found["deepseek-ai/DeepSeek-V3"] is None
    if len(found) > 100:
        assert sum(read or 0 for read in found.values()) >= 35


def one_kind_of_number(text):
    """JavaScript has one: it reads 32.0 where 32 is meant, and phasor asks for a whole number."""
    return int(float(text)) if float(text).is_integer() and float(text) < 2**53 else float(text)


@pytest.mark.parametrize("draws", [30, pytest.param(3000, marks=pytest.mark.slow)])
def test_mistakes_drawn_at_random(js, shared_data, monkeypatch, draws):
    """Configs of plain types with a random mistake: what phasor refuses the page refuses; what it reads is right."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "configs"))
    for name in ("confused", "law", "vocabulary"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from law import mutant

    paths = sorted((shared_data / "configs").glob("*/*.json"))
    texts = {path.stem: json.loads(path.read_text(encoding="utf-8-sig")) for path in paths}
    bases = {name: config for name, config in texts.items() if is_right(js, config)}
    read = 0
    for number in range(draws):
        made = mutant(number, bases)
        try:
            text = json.dumps(made.data, allow_nan=False)
        except ValueError:
            continue
        got = js(READ, text)
        if "refused" in got:
            assert "\n" not in got["refused"], made.done
            continue
        try:
            wrong = differences(got, json.loads(text, parse_float=one_kind_of_number))
        except ValueError as error:
            wrong = [f"phasor refuses it: {error}"]
        assert not wrong, (made.number, made.done, wrong)
        read += 1
    assert read > draws / 6


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no config.json"),
        ("{", "no config.json"),
        ("[1, 2]", "must hold an object"),
        ("null", "must hold an object"),
        ("{}", "no model_type"),
        ('{"model_type": 5}', "no model_type"),
        ('{"model_type": "toString"}', "does not read configs of the type"),
        ('{"model_type": "deepseek_v3"}', "does not read configs of the type"),
        ('{"model_type": "llama", "rope_theta": 1e4, "rope_theta": 1e6}', '"rope_theta" stands twice'),
        ('{"model_type": "llama", "rope_theta": 1e999}', "rope_theta must be a number above 1"),
        ('{"model_type": "llama", "rope_theta": "1e4"}', "rope_theta must be a number above 1"),
        ('{"model_type": "llama", "rope_scaling": {"type": "su"}}', 'does not read rope_type "su"'),
        ('{"model_type": "llama", "rope_scaling": []}', "rope_scaling must be an object"),
        ('{"model_type": "llama", "roep_theta": 1e6}', "roep_theta is 1000000, which is not understood"),
        ('{"model_type": "llama", "rotary_pct": 0.5}', "rotary_pct is 0.5"),
        ('{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3}', "not a multiple"),
        ('{"model_type": "llama", "head_dim": 9007199254740993}', "head_dim must be a"),
        ('{"model_type": "mistral", "sliding_window": 4096}', "does not read windows"),
        ('{"model_type": "llama", "text_config": {"rope_theta": 5.0}}', "a part of its own"),
        ('{"model_type": "llama", "x": {"y": {"rope_theta": 5.0}}}', "x.y.rope_theta"),
        ('{"model_type": "qwen2", "layer_types": ["sliding_attention"], "num_hidden_layers": 1}', "layer_types"),
        ('{"model_type": "llama", "__proto__": {"rope_theta": 5.0}}', "__proto__.rope_theta"),
    ],
)
def test_bad_input_is_one_line(js, text, words):
    refused = js(READ, text)["refused"]
    assert words in refused and "\n" not in refused and len(refused) < 400


def test_a_huge_file_is_one_line(js):
    refused = js("return readConfigText(' '.repeat(a[0]), 'x', RULES)", 9 * 2**20)["refused"]
    assert "a config has a few thousand" in refused


def test_keys_in_strings_and_lists_are_no_keys(js):
    text = json.dumps({**LLAMA, "architectures": ["a", "a"], "b": 'x "a": 1, "a": 2', "c": [{"a": 1}, {"a": 2}]})
    assert js(READ, text)["type"] == "llama"
