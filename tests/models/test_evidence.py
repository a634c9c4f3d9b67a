"""Rows beside small models of the installed transformers: what a row reads of a config is what its model does."""

import json
from contextlib import suppress

import pytest

pytest.importorskip("transformers")

from evidence.__main__ import observable
from evidence.changes import changes
from evidence.collect import collect, of_type, with_defaults
from evidence.compare import differences
from evidence.experiment import Outcome, arguments, default_of, experiment
from evidence.verdict import FILE, Tally, argued, reasons
from phasor import RotarySpec, read_config
from phasor.axes import Listed
from phasor.eye.experiments import longest_in
from phasor.models.configs import ModelRotary
from phasor.models.rows import ROWS

# Halves, neighbours, permuted, a part, the end of a head; kinds of layers; sections; roundings; a temperature; towers;
# a decoder without its encoder; members of a pair by different axes, and by different rungs.
VARIED = (
    "llama", "gpt_neox", "gptj", "cohere", "deepseek_v3", "gpt_oss", "olmo2", "nanochat", "qwen2_vl_text", "ministral3",
    "smollm3", "mimi", "dinov3_vit", "dia_decoder", "hunyuan_vl_text", "vjepa2",
)  # fmt: skip
SPEC = RotarySpec(head_dim=8)


SOON = ("gpt_neox", "deepseek_v3", "gpt_oss", "qwen2_vl_text", "mimi", "vjepa2")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in SOON)) for n in VARIED])
def test_the_default_config(name: str) -> None:
    found = experiment(default_of(name))
    assert found.kind == "equal", found
    assert found.reads


def test_keys_change_the_row_as_they_change_the_model() -> None:
    found = of_type("gpt_neox")
    assert len(found) > 8 and [one for one in found if one.kind != "equal"] == []


@pytest.mark.slow
def test_every_type() -> None:
    """Some hours on one core: every key about positions of every type."""
    tally, wrong = Tally(), []
    for _, outcomes in collect(observable(list(ROWS)), 2, None):
        tally.add(outcomes)
        wrong += [one for one in outcomes if one.kind in ("differs", "not read", "not seen") and not argued(one)]
    print(tally)
    assert wrong == []


def test_the_length_of_every_type_is_one_that_its_config_class_states() -> None:
    """No model tells it. Towers have none, or one so short that it may be any number: these are left out."""
    both: dict[str, tuple[int, int]] = {}
    for name in observable(list(ROWS)):
        with suppress(ValueError):  # a default config that does not rotate, or states too little
            read, stated = read_config(default_of(name)).max_position, longest_in(with_defaults(default_of(name)))
            if read and stated:
                both[name] = stated, read
    assert len(both) > 200 and {name: pair for name, pair in both.items() if pair[0] != pair[1]} == {}


def model(*layers: RotarySpec | None, **more: object) -> ModelRotary:
    return ModelRotary(model_type="toy", layers=layers, layer_types=("attention",) * len(layers), num_heads=2, **more)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (model(SPEC, SPEC.replace(base=10_001.0)), ["frequencies"]),
        (model(SPEC, None), ["rotates"]),
        (model(SPEC), ["layers"]),
        (model(SPEC, SPEC, targets=("q", "k", "v")), ["targets"]),
        (model(SPEC, SPEC, prefix_tokens=1), ["prefix_tokens"]),
        (model(SPEC.replace(interleaved=True), SPEC), ["layout"]),
        (model(SPEC.replace(tables="float32"), SPEC), ["tables"]),
        (model(SPEC, SPEC.replace(reverse=True)), ["reverse"]),
        (model(SPEC, SPEC.replace(frequencies=(1.0, 0.1, 0.01, 0.001))), []),
    ],
)
def test_what_differs_is_named(other: ModelRotary, names: list[str]) -> None:
    """And what is only called otherwise is no difference: the ladder of base 10000, listed."""
    assert list(differences(model(SPEC, SPEC), other)) == names


SHEARED = SPEC.replace(axes=Listed((0, 0, 1, 1)), second=Listed((1, 1, 0, 0)))


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (SHEARED.replace(second=None), ["axes"]),
        (SHEARED.replace(second=Listed((1, 1, 0, 1), axes=2)), ["axes"]),
        (SHEARED.replace(second=Listed((1, 1, 0, 0), ((0, 2), (1, 2), (0, 2), (1, 2)))), ["frequencies"]),
        (SHEARED.replace(second=Listed((1, 1, 0, 0), ((0, 4), (1, 4), (2, 4), (3, 4)))), []),
    ],
)
def test_second_members_are_compared_as_numbers(other: RotarySpec, names: list[str]) -> None:
    assert list(differences(model(SHEARED), model(other))) == names


def test_what_is_not_built_is_not_judged() -> None:
    tally, name = Tally(), next(name for name, why in reasons().items() if "not built" in why)
    tally.add([Outcome(name, "", "not built"), Outcome("llama", "", "equal"), Outcome("llama", "x", "not seen")])
    assert str(tally) == "2 types, 3 configs: 1 not built, 1 equal, 1 not seen; 50.0 % of 2 that were judged are equal"


@pytest.mark.parametrize("layers", [36, 6])
def test_dory_is_read_as_its_class_saves_it(layers: int) -> None:
    from transformers import DoryConfig

    config = DoryConfig(num_hidden_layers=layers, n_input_layers=2, n_output_layers=2)
    saved = config.to_dict()
    assert saved["layer_types"][1::2] == ["mlp"] * layers
    assert [spec.base for spec in read_config(saved).layers] == [
        config.rope_parameters[kind]["rope_theta"] for kind in config.layer_types
    ]


def test_a_layer_of_dory_without_its_mlp_is_refused() -> None:
    words = ["sliding_attention", "mlp", "full_attention"]
    with pytest.raises(ValueError, match="layer 1 is 'mlp'"):
        read_config({"model_type": "dory", "num_hidden_layers": 3, "layer_types": words})


def test_a_wrong_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama's row for a model that turns neighbours, and one with another base."""
    monkeypatch.setitem(ROWS, "cohere", ROWS["llama"])
    assert {"layout", "num_heads"} & set(experiment(default_of("cohere")).why)


def test_changes_are_made_of_what_was_read() -> None:
    default = {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}, "layer_types": ["a", "b", "b"], "x": 2}
    read = ["rope_parameters", "rope_parameters.rope_type", "layer_types", "x"]
    made = dict(changes(default, read))
    assert [keys["layer_types"] for keys in made.values() if "layer_types" in keys] == [
        ["b", "b", "a"], ["a", "a", "a"], ["b", "b", "b"],
    ]  # fmt: skip
    ropes = [keys["rope_parameters"] for keys in made.values() if "rope_parameters" in keys]
    assert {rope["rope_type"] for rope in ropes} == {"default", "linear", "dynamic", "yarn", "llama3", "longrope"}
    assert ropes[0] == {"rope_theta": 200.0, "rope_type": "default"}
    assert not any("x" in keys for keys in made.values())


def test_arguments_are_of_types_that_are_there() -> None:
    from transformers import CONFIG_MAPPING

    assert set(arguments()) <= set(CONFIG_MAPPING)


def test_what_is_argued_has_a_reason() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == reasons()
    assert all(len(why) > 20 for one in reasons().values() for why in one.values()) and set(reasons()) <= set(ROWS)
    name, (what, *_) = next((name, list(one)) for name, one in reasons().items())
    assert argued(Outcome(name, "", "differs", {what: ""}))
    assert not argued(Outcome(name, "", "differs", {what: "", "frequencies": ""}))
    assert not argued(Outcome("llama", "", "differs", {what: ""})) and not argued(Outcome(name, "", "differs", {}))
