"""Faults as people make them: each is found, and none is called right; what is odd and healthy is not accused."""

import pytest

pytest.importorskip("transformers")

from phasor import diagnose

from .wild import FAULTS, HEALTHY, both, llama, made, method, own, rotated, swapped

# One of each way in which a fault can hide, beside all of them in the slow tests.
QUICK = (
    "own method in one layer, layout swapped",
    "own method by einsum, of a scale of its own",
    "own class, nothing rotates",
    "attention wrapped, sin reversed",
    "layer hooked, tables rotate nothing",
    "own rotary module, first row for all",
    "rotary module hooked, tables in bfloat16",
    "projections hooked, rotated once more",
    "SmolLM 3 rotates the layer that should not",
)


def verdict_of(wild):
    with made(wild) as model:
        report = diagnose(model)
    print(report.summary())
    return report


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found(name):
    assert verdict_of(FAULTS[name]).verdict == "wrong"


@pytest.mark.parametrize(
    "name", ["own class", "own method by einsum", "adapters on q and k", "own method with tables of its own"]
)
def test_what_is_healthy_is_not_accused(name):
    assert verdict_of(HEALTHY[name]).verdict == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in QUICK])
def test_every_fault_is_found(name):
    assert verdict_of(FAULTS[name]).verdict == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_healthy_is_accused(name):
    assert verdict_of(HEALTHY[name]).verdict == "right"


def test_a_base_of_another_model_is_told_once_and_by_its_name():
    report = verdict_of(FAULTS["own rotary module, base of another model"])
    assert report.causes == ("base",) and {row.what for row in report.wrong} == {"rotation of q and k"}
    assert "500,000" in report.wrong[0].reason or "500000" in report.wrong[0].reason, report.wrong[0].reason
    assert report.wrong[0].position == 1.0 and report.wrong[0].pair == 1


HOW = {
    "layout": swapped,
    "not rotated": lambda q, k, cos, sin: (q, k),
    "k only": lambda q, k, cos, sin: (q, rotated(k, cos, sin)),
    "positions, only in some": lambda q, k, cos, sin: both(q, k, cos[:1], sin[:1]),
    "attention factor": lambda q, k, cos, sin: (rotated(q, cos, sin), 0.75 * rotated(k, cos, sin)),
}


@pytest.mark.parametrize("cause", HOW)
def test_a_method_of_the_instance_is_judged_by_its_cause(cause):
    """And not the function that its class would have called."""
    model = llama()
    method(model, own(HOW[cause]))
    assert any(cause in (row.cause or row.what) for row in diagnose(model).wrong)


def test_compiled_code_that_is_not_the_model_s_own_is_wrong():
    """A backend that changes what it compiles: only the compiled logits show it."""
    import torch

    def backend(graph, inputs):
        return lambda *args: tuple(x * 1.5 if x.is_floating_point() else x for x in graph(*args))

    torch._dynamo.reset()
    model = llama()
    model.compile(backend=backend)
    report = diagnose(model)
    assert [row.what for row in report.wrong] == ["compiled = eager"], str(report)
