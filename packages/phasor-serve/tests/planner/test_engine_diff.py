"""`phasor engine`: what an engine rotates and what the model's own code does, in groups of equal layers."""

import json
from typing import Any

import pytest

from engines.cases import configs
from phasor.rotary.spec import RotarySpec
from phasor_serve.planner.engine_diff import _group, compare_engine, comparison_lines

QWEN = configs()["Qwen/Qwen3-8B"]


def test_equal_rotations() -> None:
    (group,) = compare_engine(QWEN, "vllm")["layers"]
    assert group["same"] is True
    assert group["own"] == group["engine"]
    assert "neither rotates" not in group["says"]
    assert group["layers"] == list(range(QWEN["num_hidden_layers"]))


def test_other_frequencies() -> None:
    flags = "--hf-overrides " + repr(json.dumps({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}))
    comparison = compare_engine(QWEN, "vllm", flags)
    (group,) = comparison["layers"]
    assert group["same"] is False
    assert "10000" in group["engine"]
    text = "\n".join(comparison_lines(comparison))
    assert f"own code  {group['own']}" in text
    assert f"engine    {group['engine']}" in text
    assert "40,960" in text


SPEC = RotarySpec(head_dim=8)


@pytest.mark.parametrize(
    "model, engine, says, same",
    [
        (None, None, "neither rotates", True),
        (SPEC, None, "only one of both rotates", False),
        (None, SPEC, "only one of both rotates", False),
    ],
)
def test_layers_that_do_not_rotate(model: Any, engine: Any, says: str, same: bool) -> None:
    group = _group(model, engine, 100)
    assert (group["says"], group["same"]) == ([says], same)
    assert [group[side] == "no rotation" for side in ("own", "engine")] == [model is None, engine is None]


def test_a_softmax_factor_is_shown_where_it_differs() -> None:
    comparison = compare_engine(QWEN, "vllm")
    assert not [line for line in comparison_lines(comparison) if "softmax" in line]
    lines = comparison_lines({**comparison, "softmax": [1.0, 1.5], "rules": ["a", "b"], "warnings": ["c"]})
    (line,) = [line for line in lines if "softmax" in line]
    assert "times 1 by the model's own code  |  times 1.5 by the engine" in line
    assert [line.split() for line in lines[-3:]] == [["rule", "a"], ["b"], ["beware", "c"]]
