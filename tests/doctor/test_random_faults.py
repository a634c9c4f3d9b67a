"""Random single faults that are visible are never called right, and what only looks odd is not accused."""

import pytest

pytest.importorskip("transformers")

import torch

from phasor import diagnose

from .random_faults import HIDDEN, KINDS, Fault, fault
from .random_measured import HARMLESS, VISIBLE, moved, of_healthy, visible
from .random_types import TYPES

# seed -> a call in which its fault is visible: each of a dimension in which a fault can hide
SAMPLE = {
    152: "short", 33: "batch of 4", 35: "batch of 4", 197: "batch of 4", 36: "long", 37: "short", 40: "chunks",
    41: "decoding after 40", 42: "decoding after 8", 45: "autocast", 46: "grad mode", 66: "after a long call",
    70: "gradients", 265: "repeated", 2111: "decoding after 40", 2137: "short", 2173: "short", 2228: "short",
    2396: "short", 50005: "long", 60058: "after a long call", 60118: "short", 62340: "short",
}  # fmt: skip
ODD = [("llama", "own rotation"), ("gptj", "rotation wrapped"), ("phi3 longrope", "positions by the mask")]


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_visible_fault_is_not_called_right(seed: int) -> None:
    with fault(seed).planted() as plant:
        found = diagnose(plant.model)
    assert found.verdict != "right", f"{fault(seed)}, {plant.style}: {found}"


@pytest.mark.slow
def test_the_faults_of_the_sample_are_visible() -> None:
    sizes = {seed: moved(fault(seed), call) for seed, call in SAMPLE.items()}
    assert {seed: size for seed, size in sizes.items() if not size > VISIBLE} == {}


@pytest.mark.parametrize("kind", HIDDEN)
def test_a_fault_that_hides_from_one_way_of_looking_is_named(kind: str) -> None:
    with Fault(0, "llama", kind, 2).planted() as plant:
        assert HIDDEN[kind].label in diagnose(plant.model).causes


@pytest.mark.parametrize(("family", "way"), ODD)
def test_what_only_looks_odd_is_right(family: str, way: str) -> None:
    said = of_healthy((family, way))
    assert said["verdict"] == "right", said


@pytest.mark.parametrize("kind", ["sign of k", "values turned too", "base"])
def test_a_planted_fault_ends_with_its_model(kind: str) -> None:
    """Also one in a function of transformers' file, or in its table of attention functions."""
    ids = torch.arange(3, 20)[None]
    for seed in range(3):
        one = Fault(seed, "llama", kind, 2)
        before = one.healthy()(ids).logits
        with one.planted() as plant:
            assert not torch.allclose(plant.model(ids).logits, before, atol=1e-3)
        assert torch.equal(one.healthy()(ids).logits, before)


def test_every_kind_has_a_type_and_every_seed_one_fault() -> None:
    assert all(any(kind.only(t) for t in TYPES.values()) for kind in KINDS.values())
    assert len(KINDS) >= 49 and len(TYPES) >= 30 and {fault(seed).kind for seed in range(len(KINDS))} == set(KINDS)
    assert fault(5) == fault(5)


@pytest.mark.slow
def test_no_visible_fault_is_called_right() -> None:
    """400 at random, two that once were, and every family with every odd way."""
    silent = []
    for seed in (*range(400), 2349, 3039):
        with fault(seed).planted() as plant:
            found = diagnose(plant.model)
        if found.verdict == "right" and (seen := visible(fault(seed))):
            silent.append((fault(seed), plant.style, seen))
    cases = [(family, way) for family, t in TYPES.items() for way in HARMLESS if t.causal or "mask" not in way]
    alarms = [said for said in map(of_healthy, cases) if said["verdict"] != "right"]
    assert not silent and not alarms
