"""`literal_configs.json`: configs, each with what is read from it or why it is refused, in groups by what they show.

Expected values are the models' published ones, and those of the classes of transformers whose source is named.

- ``config``: ``sizes`` stands for those at the top of the file; ``part``: the part that is asked for.
- ``layers``: the word of a kind of layer, which layers are of it, and the fields of its spec that are no defaults
  (null: they do not rotate). ``heads``: of queries and keys; ``length``, ``softmax``, ``targets``, ``notes``, ``reads``
  (the part that was chosen); ``told``: what is said of keys.
- ``refused``: what the message says, as a pattern; ``reason`` and ``keys``: as in `Refused`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from phasor import ModelRotary, RotarySpec, read_config
from phasor.models.configs import NoRotary, Refused
from phasor.support.number_text import runs

FILE = json.loads(Path(__file__).with_name("literal_configs.json").read_text(encoding="utf-8"))
SIZES = FILE.pop("sizes")
READ = ("layers", "heads", "length", "softmax", "targets", "notes", "reads")


def read(case: dict[str, Any]) -> ModelRotary:
    config = dict(case["config"])
    return read_config({**SIZES.get(config.pop("sizes", None), {}), **config}, case.get("part"))


def said(model: ModelRotary, part: str | None) -> dict[str, Any]:
    """A reading as the file has it, without what is so in most of them."""
    at: dict[tuple[str, RotarySpec | None], list[int]] = {}
    for i, layer in enumerate(zip(model.layer_types, model.layers, strict=True)):
        at.setdefault(layer, []).append(i)
    found = {
        "layers": [[word, ", ".join(runs(numbers)), of_spec(spec)] for (word, spec), numbers in at.items()],
        "heads": [model.num_heads, model.num_kv_heads],
        "length": model.max_position,
        "softmax": model.softmax_factor if model.softmax_factor != 1 else None,
        "targets": list(model.targets) if model.targets != ("q", "k") else None,
        "notes": list(model.notes),
        "reads": model.part if part is None else None,
    }
    return {key: value for key, value in found.items() if value not in (None, [], "")}


def of_spec(spec: RotarySpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    plain = RotarySpec(head_dim=spec.head_dim).to_dict()
    data = json.loads(json.dumps(spec.to_dict()))
    return {key: value for key, value in data.items() if key == "head_dim" or value != plain[key]}


@pytest.mark.parametrize("cases", FILE.values(), ids=[why[:60] for why in FILE])
def test_configs_are_read_or_refused(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        print(case)
        judge(case)


def judge(case: dict[str, Any]) -> None:
    if "layers" in case:
        model = read(case)
        assert said(model, case.get("part")) == {key: case[key] for key in READ if key in case}
        assert {key: model.sources.get(key) for key in case.get("told", ())} == case.get("told", {})
        return
    with pytest.raises(ValueError, match=case["refused"] or None) as error:
        read(case)
    if case.get("reason") == "no rotary":
        assert isinstance(error.value, NoRotary)
    elif "reason" in case:
        assert isinstance(error.value, Refused)
        assert [error.value.reason.name, list(error.value.keys)] == [case["reason"], case["keys"]]


def test_every_reason_to_refuse_occurs_and_most_patterns_name_a_key() -> None:
    refused = [case for cases in FILE.values() for case in cases if "refused" in case]
    assert {case.get("reason") for case in refused} > {"UNREAD", "FOREIGN", "CONTRADICTION", "AMBIGUOUS", "BEYOND"}
    named = [case for case in refused if case["refused"] or case.get("keys")]
    assert len(named) == len(refused)
    assert all(re.compile(case["refused"]) for case in refused)
