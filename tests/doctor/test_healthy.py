"""Tiny models of every type of the conformance suite, as their library makes them: the doctor raises no alarm."""

import random
from collections import Counter

import pytest

pytest.importorskip("transformers")

from conformance import walk
from conformance.kept import kept, sliced

from .healthy import FAULTS, NOT_COVERED, Told, told

SLICES = 24
# Drawn from all types, as the last test proves; listing all of them takes longer than these. Two need more than a
# second each, and are among all of them alone.
DRAWN = (
    "dia_decoder",
    "qwen3_omni_moe_talker_code_predictor",
    "timesfm2_5",
    "sam3_lite_text",
    "pe_audio_encoder",
    "glm_ocr_text",
    "granite4_vision",
    "wav2vec2-bert",
)


@pytest.mark.parametrize("model_type", [name for name in DRAWN if name not in ("sam3_lite_text", "granite4_vision")])
def test_no_alarm_in_types_that_were_drawn(model_type: str) -> None:
    found = Told(**told(model_type))
    assert found.covered and found.wrong(model_type) == ""


@pytest.mark.parametrize(
    "model_type",
    [
        pytest.param("moshi", id="attention calls its rotary module"),
        pytest.param("zaya", id="q and k of several tokens mixed, then normed"),
        pytest.param("seamless_m4t", id="a text model without rotation beside a rotated tower"),
        pytest.param("jetmoe", id="queries of experts, in the order of the experts"),
        pytest.param("phimoe", id="experts chosen by another rule in training"),
        pytest.param("muse_spark_text", id="queries with a factor of their own, behind their norm"),
        pytest.param("mistral4", id="queries with a temperature that grows far away"),
        pytest.param("paligemma", id="positions from 1 where it counts tokens, and from 0 where it is given them"),
    ],
)
def test_no_alarm_in_what_looks_like_a_fault(model_type: str) -> None:
    assert Told(**told(model_type)).wrong(model_type) == ""


def of(model_type: str) -> Told:
    found = kept("doctor", model_type, lambda: told(model_type))
    return Told(**{name: value for name, value in found.items() if name != "of"})


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_no_alarm_in_any_type(start: int) -> None:
    found = {name: of(name) for name in sliced(walk.model_types(), start, SLICES)}
    for name, one in found.items():
        done = sum(verdict != "not shown" for verdict in one.verdicts.values())
        print(f"{name:40} {done:2} kinds of check; {', '.join(one.faults) or one.why[:100] or 'sound'}", flush=True)
    assert {name: wrong for name, one in found.items() if (wrong := one.wrong(name))} == {}


@pytest.mark.slow
def test_every_type_is_covered_or_named() -> None:
    """Prints how many types each kind of check was made in."""
    types = sorted(walk.model_types())
    assert tuple(random.Random(14).sample(types, len(DRAWN))) == DRAWN
    assert {*NOT_COVERED, *FAULTS} <= set(types)
    found = {name: of(name) for name in types}
    covered = {name for name, one in found.items() if one.covered}
    faulty = {name for name, one in found.items() if one.faults}
    print(f"\n{len(types)} types: {len(covered - faulty)} without an alarm, {len(faulty)} faulty, ", end="")
    print(f"{len(types) - len(covered)} not covered")
    for what in dict.fromkeys(name for one in found.values() for name in one.verdicts):
        counts = Counter(one.verdicts.get(what, "no such check") for one in found.values())
        print(f"{what:32} " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    assert set(types) - covered == set(NOT_COVERED)
    assert faulty == set(FAULTS)
