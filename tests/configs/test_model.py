"""ModelRotary as data: hash, equality, one object per spec, JSON round trip, differences."""

import json
from pathlib import Path
from typing import Any

import pytest

from phasor import RotarySpec
from phasor.models.configs import ModelRotary, read_config
from phasor.rotary.scaling import YaRN
from phasor.rotary.temperature import LearnedLog, LogFloor, Power

SMALL = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
A, B = RotarySpec(head_dim=8), RotarySpec(head_dim=8, base=500.0, scaling=YaRN(4.0, 32))


def toy(*layers: RotarySpec | None, **fields: Any) -> ModelRotary:
    given = {"model_type": "toy", "num_heads": 4, "layer_types": ("attention",) * len(layers), **fields}
    return ModelRotary(layers=layers, **given)


def test_hash_and_equality_leave_the_sources_out() -> None:
    first = read_config({**SMALL, "rope_theta": 5e5})
    second = read_config({**SMALL, "rope_parameters": {"rope_theta": 5e5}})
    assert first.sources != second.sources
    assert first == second and hash(first) == hash(second) and len({first, second}) == 1
    assert first != read_config({**SMALL, "rope_theta": 4e5})


def test_equal_specs_are_one_object() -> None:
    """torch.compile guards a spec by its identity, so a second object would mean a second compilation."""
    scaled = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_scaling_layers": [0]}
    source = {**SMALL, "model_type": "molmo2_text", "head_dim": 16, **scaled}
    read = read_config(source)
    for model in (read, read.with_angles("float32"), toy(A, A.replace(), None, B, A.replace())):
        assert len(model.distinct) == len({id(spec) for spec in model.layers if spec is not None}) == 2


def test_with_angles_keeps_everything_else() -> None:
    model = toy(A, None, B, A, notes=("n",), sources={"a": "b"})
    changed = model.with_angles("float32")
    assert [s and s.angles for s in changed.layers] == ["float32", None, "float32", "float32"]
    assert changed.with_angles("exact") == model and changed.sources == model.sources


def round_trip(model: ModelRotary) -> ModelRotary:
    return ModelRotary.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))


@pytest.mark.parametrize(
    "model",
    [
        toy(A),
        toy(A, None, B, A, num_kv_heads=2, max_position=2**62, part="p", parts=("p", "q"), sources={"k": "v"},
            softmax_factor=0.1 + 0.2, notes=("one", "two"),
            temperatures=(None, LogFloor(0.1, 64), Power(), LearnedLog()),
            targets=("q",), prefix_tokens=5, suffix_tokens=1, heads=2, own_angles="float64"),
        toy(),
    ],
    ids=["least", "all fields", "no layers"],
)  # fmt: skip
def test_json_round_trip(model: ModelRotary) -> None:
    back = round_trip(model)
    assert back == model and back.sources == model.sources and hash(back) == hash(model)
    assert [type(s) for s in back.layers] == [type(s) for s in model.layers]


def test_json_round_trip_of_real_configs(shared_data: Path) -> None:
    names = ("full/Qwen__Qwen3-Omni-30B-A3B-Instruct", "full/Qwen__Qwen-14B-Chat", "edited/OpenGVLab__InternVL2-4B")
    for name in names:
        model = read_config(shared_data / "configs" / f"{name}.json")
        back = round_trip(model)
        assert back == model and back.sources == model.sources


def test_to_dict_shares_nothing_and_holds_each_spec_once() -> None:
    model = toy(A, None, B, A, sources={"k": "v"})
    data = model.to_dict()
    assert data["layers"] == [0, None, 1, 0] and data["specs"] == [A.to_dict(), B.to_dict()]
    data["sources"]["k"] = "other"
    assert model.sources == {"k": "v"}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"nots": []}, r"data has unknown keys \['nots'\]"),
        ({0: 1}, r"data has unknown keys \[0\]"),
        ({"model_type": 3}, "model_type must be a word, got 3"),
        ({"part": None}, "part must be a word, got None"),
        ({"layers": [0, 2, 0]}, r"layers must hold numbers of specs, below 2 here, or None, got 2"),
        ({"layers": [0, -1, 0]}, "layers must hold numbers of specs"),
        ({"layers": [0, True, 0]}, "layers must hold numbers of specs"),
        ({"layers": [0, 1.0, 0]}, r"layers\[1\] must be a int, got 1.0"),
        ({"layers": [0]}, "layer_types must have one word per layer, 1 here, got 3"),
        ({"layer_types": "abc"}, "layer_types must be a list or tuple, got 'abc'"),
        ({"layer_types": [None, "a", "a"]}, r"layer_types\[0\] must be a str, got None"),
        ({"specs": {}}, r"specs must be a list or tuple, got \{\}"),
        ({"specs": [None]}, r"specs\[0\] must be a dict, got None"),
        ({"specs": [{"head_dim": 8, "bas": 3.0}]}, "unknown keys"),
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ({"num_kv_heads": "4"}, "num_kv_heads must be an integer of at least 1, got '4'"),
        ({"max_position": 2.0}, "max_position must be an integer of at least 1, got 2.0"),
        ({"softmax_factor": float("nan")}, "softmax_factor must be a finite number above 0, got nan"),
        ({"sources": ["k"]}, r"sources must be a dictionary of words, got \['k'\]"),
        ({"sources": {"k": 1}}, "sources must be a dictionary of words"),
        ({"notes": "n"}, "notes must be a list or tuple, got 'n'"),
        ({"parts": [1]}, r"parts\[0\] must be a str, got 1"),
        ({"temperatures": [None]}, "temperatures must have one scheme or None per layer, 3 here, got 1"),
        (
            {"temperatures": [{"name": "warm"}] * 3},
            "temperatures must be a dictionary with a 'name' out of .*log_floor",
        ),
        ({"windows": [4, True, None]}, r"windows\[1\] must be an integer of at least 1, got True"),
        ({"windows": [-3, 4, None]}, r"windows\[0\] must be an integer of at least 1, got -3"),
        ({"targets": "qk"}, "targets must be a list or tuple, got 'qk'"),
        ({"prefix_tokens": -1}, "prefix_tokens must be an integer of at least 0, got -1"),
        ({"suffix_tokens": 1.5}, r"suffix_tokens must be an integer of at least 0, got 1\.5"),
        ({"heads": 0}, "heads must be an integer of at least 1, got 0"),
        ({"own_angles": "exact"}, "own_angles must be 'float32', .* or 'float64_rounded', got 'exact'"),
    ],
)
def test_from_dict_is_strict(change: dict[Any, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ModelRotary.from_dict({**toy(A, None, B).to_dict(), **change})


@pytest.mark.parametrize("name", ["model_type", "layers", "layer_types", "num_heads", "specs"])
def test_from_dict_needs_the_fields_without_default(name: str) -> None:
    data = toy(A).to_dict()
    del data[name]
    with pytest.raises(ValueError, match=f"data must have the key '{name}'"):
        ModelRotary.from_dict(data)
    with pytest.raises(ValueError, match="data must be a dictionary as made by to_dict, got list"):
        ModelRotary.from_dict([data])  # type: ignore[arg-type]


def test_float32_angles_are_the_models_own() -> None:
    model = toy(A, own_angles="float64")
    assert [model.with_angles(a).layers[0].angles for a in ("exact", "float32")] == ["exact", "float64"]  # type: ignore[union-attr, arg-type]


def test_diff() -> None:
    model = toy(A, None, B, sources={"k": "v"})
    assert model.diff(toy(A, None, B)) == {}  # the sources are no part of a model's identity
    assert model.diff(toy(B, A, B)) == {0: (A, B), 1: (None, A)}
    other = toy(A, None, num_kv_heads=2)
    assert model.diff(other) == {
        "layers": (3, 2), "layer_types": (("attention",) * 3, ("attention",) * 2), "num_kv_heads": (4, 2),
    }  # fmt: skip
    assert other.diff(model)["layers"] == (2, 3)
    with pytest.raises(ValueError, match="other must be a ModelRotary, got RotarySpec"):
        model.diff(A)  # type: ignore[arg-type]
