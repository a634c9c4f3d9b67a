"""The law of keys, for every type, level, key and value: read as the model's code reads it, accounted for, or refused.

Of default configs of every type, and of published ones: `law` says what is done to them.

pytest -m slow -s tests/configs/test_law_of_keys.py     20,000 mutants, 5,000 of published configs, and the refusals
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers")

from computed import computed
from law import ABSENT, VALUES, Mutant, mutant, one_letter_off, unaccounted
from outcomes import BAD, Outcome, outcome, owner, read_and_judged
from refusals import false_reason, judged_refusal
from vocabulary import collected, kept

from conformance.conftest import INSTALLED, VERSION
from conformance.test_operators import MISREAD
from conformance.walk import quiet
from phasor import ModelRotary, read_config, read_parts
from phasor.configs import Reason, Refused

pytestmark = pytest.mark.skipif(INSTALLED != VERSION, reason=f"the oracle is transformers {VERSION}")


Configs = dict[str, dict[str, Any]]


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
def real(shared_data: Path) -> Configs:
    """The configs of published models."""
    paths = sorted((shared_data / "configs").glob("*/*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in paths}


def holds(mutants: Iterable[Mutant], *, refusals: bool = False) -> None:
    """The law for each of these; prints how many ended how."""
    count: Counter[str] = Counter()
    bad, judged, false = [], 0, []
    for one in mutants:
        with quiet():
            parts, found = read_and_judged(one.data)
        why = next((why for why, fits in ARGUED.items() if found.kind == "DISAGREE" and fits(one, found)), "")
        count[f"argued: {why}" if why else found.kind] += 1
        said = f"{one.number} {one.name}: {one.done}: "
        if found.kind in BAD and not why:
            bad.append(f"{said}{found.kind} {found.part} {found.why}")
        elif isinstance(parts, dict) and (path := unaccounted(one, parts)):
            bad.append(f"{said}{path} was read over without a word")
        if refusals and one.of_one_value and isinstance(parts, dict):
            reason, wrong = judged_refusal(one.data, parts)
            judged += bool(reason)
            false += [f"{said}{reason}: {wrong}"] if wrong and reason else []
    print(f"\n{count}; {judged} refusals judged, {len(false)} false\n" + "\n".join(false))
    assert not bad, f"{len(bad)} of {count.total()}:\n" + "\n".join(bad)
    assert count["EQUAL"] >= 0.3 * count.total()  # a reader that refuses all would agree as well
    assert len(false) <= 0.01 * judged, "\n".join(false)


def test_60_mutants() -> None:
    holds(made(range(60)), refusals=True)


def made(numbers: Iterable[int], bases: Configs | None = None) -> Iterator[Mutant]:
    for number in numbers:
        with quiet():
            yield mutant(number, bases)


def test_25_mutants_of_real_configs(real: Configs) -> None:
    holds(made(range(25), real))


@pytest.mark.slow
def test_5000_mutants_of_real_configs(real: Configs) -> None:
    holds(made(range(5_000), real))


def test_real_configs_as_they_are(real: Configs) -> None:
    found = {name: outcome(data) for name, data in real.items()}
    assert {name: one for name, one in found.items() if one.kind in BAD and name not in MISREAD} == {}
    assert sum(one.kind == "EQUAL" for one in found.values()) > 90


@pytest.mark.slow
def test_20000_mutants() -> None:
    holds(made(range(20_000)))


@pytest.mark.slow
def test_the_refusals_of_6000_mutants() -> None:
    holds(made(range(6_000)), refusals=True)


@pytest.mark.slow
def test_the_words_that_are_kept_are_those_of_this_version() -> None:
    assert collected() == kept(), "stale; run in tests/configs: python vocabulary.py"


def test_all_values_occur() -> None:
    """And the same number makes the same mutant."""
    first = [*made(range(120))]
    assert first == [*made(range(120))]
    assert len({one.done for one in first}) > 90
    for value in VALUES:
        said = "left out" if value is ABSENT else f"= {value!r}"
        assert any(one.done.endswith(said) for one in first), said
    assert any(one.done.count(".") > 1 for one in first)  # deep inside


@pytest.mark.parametrize("word", ["truncate", "rope_theta", "a"])
def test_a_slip_is_one_letter_off(word: str) -> None:
    for number in range(50):
        assert abs(len(one_letter_off(Random(number), word)) - len(word)) <= 1


LLAMA = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 2}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}


def test_a_key_that_is_in_no_account_is_noticed() -> None:
    data = {**LLAMA, "rope_parameters": {**LINEAR, "no_effect": False}}
    one, parts = Mutant(0, "llama", data, "rope_parameters.no_effect = False"), read_parts(data)
    assert unaccounted(one, parts) == ""
    model = parts[""]
    assert isinstance(model, ModelRotary)
    silent = {key: said for key, said in model.sources.items() if "no_effect" not in key}
    assert unaccounted(one, {"": replace(model, sources=silent)}) == "rope_parameters.no_effect"


def judged(data: dict[str, Any], reason: Reason, *keys: str) -> str:
    with quiet():
        theirs = computed(data)
        found, _ = owner(data, "", theirs)
        assert found is not None
        return false_reason(data, Refused(f"{keys[0]} must be another", reason, *keys), found, theirs)


@pytest.mark.parametrize(
    ("reason", "keys", "more", "true"),
    [
        (Reason.UNREAD, ["foo"], {"foo": 1}, True),
        (Reason.UNREAD, ["rope_theta"], {"rope_theta": 5e5}, False),
        (Reason.FOREIGN, ["rotary_pct"], {"rotary_pct": 0.5}, True),
        (Reason.FOREIGN, ["head_dim"], {"head_dim": 64}, False),
        (Reason.CONTRADICTION, ["rope_scaling", "rope_parameters"],
         {"rope_scaling": LINEAR, "rope_parameters": {**LINEAR, "factor": 2.0}}, True),
        (Reason.CONTRADICTION, ["foo", "bar"], {"foo": 1, "bar": 2}, False),
        (Reason.AMBIGUOUS, ["original_max_position_embeddings"], {}, True),
        (Reason.AMBIGUOUS, ["head_dim"], {"head_dim": 64}, False),
        (Reason.BEYOND, ["head_dim"], {"head_dim": 64}, False),
        (Reason.VALUE, ["rope_parameters.factor"], {"rope_parameters": {**LINEAR, "factor": True}}, True),
        (Reason.VALUE, ["rope_theta"], {"rope_theta": 5e5}, False),
        (Reason.VALUE, ["layer_types"], {}, False),
    ],
)  # fmt: skip
def test_the_second_oracle_tells_true_reasons_from_false_ones(
    reason: Reason, keys: list[str], more: dict[str, Any], true: bool
) -> None:
    assert (judged({**LLAMA, **more}, reason, *keys) == "") == true


def test_a_refusal_is_judged_only_where_transformers_has_tables() -> None:
    unread = {**LLAMA, "rotary_pct": 0.5}
    assert judged_refusal(unread, read_parts(unread)) == ("FOREIGN", "")
    for data in ({**LLAMA, "rope_parameters": {"rope_type": "nonsense"}}, LLAMA):
        assert judged_refusal(data, read_parts(data)) == ("", "")


def test_the_law_sees_what_the_reader_passes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule of near-misses a slip that is off is read, and the account says that it has no effect."""
    data = {**LLAMA, "rope_parameters": {**LINEAR, "facto": False}}
    with pytest.raises(Refused, match="factor"):
        read_config(data)
    monkeypatch.setattr("phasor.models.reading.keys.slip_of", lambda name, known: "")
    assert "no effect" in read_config(data).sources["rope_parameters.facto"]
