"""Thousands of configs with a random mistake in them are read as transformers reads them, or refused with a reason."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers")

from computed import computed
from mutate import Mutant, mutant
from outcomes import STEPS, Outcome, TooLong, judged, outcome
from vocabulary import WORDS, known, stated

from conformance.conftest import INSTALLED, VERSION
from conformance.test_operators import MISREAD
from conformance.walk import default_config, model_types, quiet
from phasor import read_parts

pytestmark = pytest.mark.skipif(INSTALLED != VERSION, reason=f"the oracle is transformers {VERSION}")

BAD = ("DISAGREE", "CRASH", "SLOW")
Bases = dict[str, dict[str, Any]]


def _dbrx(m: Mutant, found: Outcome) -> bool:
    inside = m.data.get("attn_config")
    return m.data.get("model_type") == "dbrx" and isinstance(inside, dict) and "frequency" in found.why


def _flat_llava(m: Mutant, found: Outcome) -> bool:
    return m.data.get("model_type") == "llava" and found.part == "" and "text_config" not in m.data


def _tables_of_another_width(m: Mutant, found: Outcome) -> bool:
    of_these = re.search("minimax_m3|mistral4|glm4_moe_lite", m.data["model_type"])
    return of_these is not None and "frequencies, theirs" in found.why


# Where both differ and phasor is right: the reason -> whether a mutant and its outcome are of this kind.
ARGUED: dict[str, Callable[[Mutant, Outcome], bool]] = {
    "dbrx: attn_config.rope_theta does not reach its rotary module": _dbrx,
    "llava: a flat composite config is replaced by a default text config": _flat_llava,
    "minimax_m3, mistral4, glm4_moe_lite: tables of another width than what rotates; their code fails on them": (
        _tables_of_another_width
    ),
}


@pytest.fixture(scope="module")
def real(shared_data: Path) -> Bases:
    """The configs of published models."""
    paths = sorted((shared_data / "configs").glob("*/*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in paths}


@pytest.fixture(scope="module")
def partial() -> Bases:
    """Default configs of all model types, twice, in which each key about rotation or size stands or is left out."""
    found = {}
    for name in model_types():
        for number in range(2):
            config = json.loads(json.dumps(default_config(name).to_dict(), default=str))
            found[f"{name} {number}"] = _some_of(config, Random(f"{name} {number}"))
    return found


def _some_of(config: dict[str, Any], random: Random) -> dict[str, Any]:
    found = {}
    for key, value in config.items():
        if isinstance(value, dict) and (key.endswith("_config") or key in ("encoder", "decoder")):
            found[key] = _some_of(value, random)
        elif key == "model_type" or (WORDS.search(key) and value is not None and random.random() < 0.5):
            found[key] = value
    return found


def agree(numbers: Iterable[int], bases: Bases, values: dict[str, list[Any]]) -> None:
    """Every mutant with one of these numbers; prints how many ended how."""
    count: Counter[str] = Counter()
    bad = []
    for number in numbers:
        made = mutant(number, bases, values)
        found = outcome(made.data)
        why = next((why for why, fits in ARGUED.items() if found.kind == "DISAGREE" and fits(made, found)), "")
        count[f"argued: {why}" if why else found.kind] += 1
        if found.kind in BAD and not why:
            bad.append(f"{number} {made.name}: {made.done}: {found.kind} {found.part} {found.why}")
    print(f"\n{count}")
    assert not bad, f"{len(bad)} of {count.total()}:\n" + "\n".join(bad)
    assert count["EQUAL"] >= 0.2 * count.total()  # a reader that refuses all would agree as well


def test_100_mutants_of_real_configs(real: Bases) -> None:
    agree(range(100), real, stated(real.values()))


@pytest.mark.slow
def test_3000_mutants_of_real_configs(real: Bases) -> None:
    agree(range(3000), real, known(real.values()))


@pytest.mark.slow
def test_3000_mutants_of_partial_default_configs(partial: Bases) -> None:
    agree(range(3000), partial, known(partial.values()))


def test_real_configs_as_they_are(real: Bases) -> None:
    found = {name: outcome(data) for name, data in real.items()}
    assert {name: one for name, one in found.items() if one.kind in BAD and name not in MISREAD} == {}
    assert sum(one.kind == "EQUAL" for one in found.values()) > 90


def test_a_mutant_is_a_function_of_its_number() -> None:
    base = {"llama": {"model_type": "llama", "rope_theta": 5e5, "hidden_size": 64, "num_attention_heads": 4}}
    before = json.dumps(base)
    made = [mutant(number, base, {"rotary_pct": [0.25]}) for number in range(40)]
    assert made == [mutant(number, base, {"rotary_pct": [0.25]}) for number in range(40)]
    assert len({one.done for one in made}) > 25 and json.dumps(base) == before
    assert all(one.data != base["llama"] for one in made)


TOY = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
MROPE = {**TOY, "model_type": "qwen2_vl_text", "num_key_value_heads": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 1e4}
OTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what phasor is given, what transformers is given
    "frequency": (TOY, {**TOY, "rope_theta": 10001.0}),
    "head_dim": (TOY, {**TOY, "head_dim": 64}),
    "frequencies, theirs": (
        {**TOY, "model_type": "phi", "partial_rotary_factor": 0.5},
        {**TOY, "model_type": "phi", "partial_rotary_factor": 0.25},
    ),
    "num_kv_heads": (TOY, {**TOY, "num_key_value_heads": 2}),
    "layers 2, theirs 3": (TOY, {**TOY, "num_hidden_layers": 3}),
    "attention factor": (
        {**TOY, "rope_parameters": YARN},
        {**TOY, "rope_parameters": {**YARN, "attention_factor": 1.0}},
    ),
    "tokens: frequencies": (
        {**TOY, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}},
        {**TOY, "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4}},
    ),
    "does not rotate for transformers": (
        {**TOY, "model_type": "smollm3", "no_rope_layers": [1, 1]},
        {**TOY, "model_type": "smollm3", "no_rope_layers": [1, 0]},
    ),
    "rotated q and k differ": (
        {**MROPE, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        {**MROPE, "rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}},
    ),
    "transformers rotates here": ({"model_type": "t5"}, TOY),
}  # fmt: skip


@pytest.mark.parametrize("words", OTHER)
def test_another_reading_is_noticed(words: str) -> None:
    mine, theirs = OTHER[words]
    with quiet():
        found = judged(mine, read_parts(mine), computed(theirs))
        assert found.kind == "DISAGREE" and words in found.why, found
        assert outcome(theirs).kind == "EQUAL"


def test_a_module_that_no_layer_uses_is_no_rotation() -> None:
    """BeamConfig makes its last layer full attention, and BeamModel gives such layers no cos and sin."""
    with quiet():
        assert outcome({"model_type": "beam", "num_hidden_layers": 1}).kind != "DISAGREE"
        assert outcome({"model_type": "beam", "num_hidden_layers": 2}).kind == "EQUAL"


def test_crashes_and_slow_readers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: Any) -> Any:
        return 1 / 0

    def refuses(data: Any) -> Any:
        raise ValueError("two\nlines")

    def counts(data: Any) -> Any:
        for _ in range(2 * STEPS):
            pass

    def hangs(data: Any) -> Any:
        raise TooLong  # as the clock does

    for reader, kind in ((fails, "CRASH"), (refuses, "CRASH"), (counts, "SLOW"), (hangs, "SLOW")):
        monkeypatch.setattr("outcomes.read_config", reader)
        assert outcome(TOY).kind == kind
    monkeypatch.undo()
    assert outcome(TOY).kind == "EQUAL"
