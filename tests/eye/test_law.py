"""The law can be broken: an eye that tells the truth keeps it, and one that errs in any way does not."""

from dataclasses import replace

import pytest
import torch

from eye.law import Operator, SeenSite, View, contradictions, of_truth, standing, unread
from eye.truth import PARTS, Turn
from eye.zoo import ZOO
from phasor import RotarySpec
from phasor.rotary.model_rotary import ModelRotary


def told(case, change=lambda operator: operator):
    """What an eye would say that knew the truth, with a ``change`` of every operator."""

    def operator(truth):
        if not isinstance(truth, Turn):
            return None
        return change(Operator(list(truth.pairs), list(truth.passing), truth.angles(), truth.scales().clone()))

    sites = [SeenSite(s.where, {part: operator(getattr(s, part)) for part in PARTS}) for s in case.truth.sites]
    return View(sites, None, ["it is said what was not shown"])


def turned_on(operator):
    return replace(operator, angles=operator.angles + 0.5)


def louder(operator):
    return replace(operator, scale=operator.scale * 2)


def one_token_on(operator):
    return replace(operator, angles=operator.angles.roll(1, -1))


def other_pairs(operator):
    a, b = operator.pairs[0]
    return replace(operator, pairs=[(b, a), *operator.pairs[1:]])


def one_pair_passes(operator):
    return replace(
        operator,
        pairs=operator.pairs[1:],
        passing=[*operator.passing, *operator.pairs[0]],
        angles=operator.angles[:, 1:],
        scale=operator.scale[:, 1:],
    )


TURNING = [name for name, case in ZOO.items() if case.truth.turns]


def test_an_eye_that_knows_the_truth_keeps_the_law():
    for name, case in ZOO.items():
        view = told(case)
        assert contradictions(case, view) == [], name
        assert all(".q" in what or ".k" in what for what in unread(case, view)), name


STANDING = {"standing planes", "turned by the number of the head"}  # the same at every token


@pytest.mark.parametrize(
    "change",
    [
        turned_on,
        one_token_on,
        other_pairs,
        *(pytest.param(c, marks=pytest.mark.slow) for c in (louder, one_pair_passes)),
    ],
)
def test_an_eye_that_errs_breaks_it(change):
    stands = STANDING if change is one_token_on else set()
    assert {name for name in TURNING if not contradictions(ZOO[name], told(ZOO[name], change))} == stands


def test_silence_is_kept_only_where_it_is_said():
    for name in TURNING:
        sites = ZOO[name].truth.sites
        silent = View([SeenSite(s.where, dict.fromkeys(PARTS)) for s in sites], None, [])
        stands = all(standing(of_truth(t)) for s in sites if isinstance(t := s.q, Turn))
        assert bool(contradictions(ZOO[name], silent)) is not stands, name
        assert contradictions(ZOO[name], replace(silent, missing=["q and k"])) == [], name


@pytest.mark.parametrize("name", [name for name, case in ZOO.items() if not case.truth.turns and case.truth.sites])
def test_what_does_not_turn_may_not_be_called_a_rotation(name):
    case = ZOO[name]
    operator = Operator([(0, 4)], [], torch.ones(1, 1, 7), torch.ones(1, 1, 7))
    seen = View([SeenSite(case.truth.sites[0].where, dict.fromkeys(PARTS) | {"q": operator})], None, ["the rest"])
    assert contradictions(case, seen)


def model_rotary(*specs):
    return ModelRotary(model_type="", layers=specs, layer_types=("attention",) * len(specs), num_heads=4)


PLAIN = RotarySpec(head_dim=8)
RIGHT = {
    "llama": (PLAIN, PLAIN),
    "nanochat": (PLAIN.replace(reverse=True),) * 2,
    "permuted": (PLAIN.replace(interleaved=True, permuted=True),) * 2,
    "neox": (PLAIN.replace(rotary_dim=4),) * 2,
    "latent keys": (RotarySpec(head_dim=12, rotary_dim=4, trailing=True),) * 2,
    "positions divided by 4": (PLAIN.replace(frequencies=tuple(10.0**-i / 4 for i in range(4))),) * 2,
    "every fourth layer without": (PLAIN, PLAIN, PLAIN, None),
    "bases of local and global layers": (PLAIN.replace(base=100.0), PLAIN.replace(base=100.0), PLAIN),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_model_rotary_is_held_to_the_truth(name):
    def said(*specs):
        return contradictions(ZOO[name], replace(told(ZOO[name]), rotary=model_rotary(*specs)))

    first, *rest = RIGHT[name]
    assert said(first, *rest) == []
    assert said(first.replace(base=9000.0, frequencies=None), *rest)
    assert said(first.replace(reverse=not first.reverse), *rest)
    assert said(first.replace(interleaved=not first.interleaved, permuted=False), *rest)
    assert said(None, *rest)


def test_a_model_rotary_that_cannot_say_it_is_a_contradiction():
    view = replace(told(ZOO["keys backwards"]), rotary=model_rotary(PLAIN, PLAIN))
    assert contradictions(ZOO["keys backwards"], view)
