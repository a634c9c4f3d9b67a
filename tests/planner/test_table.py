"""Thirty configs, four lengths, every engine: each cell proven, or refused with a reason; some live."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor.engines import ENGINES
from phasor.planner import Plan, plan

from .test_traps import CLEAN

STRETCH = (1, 2, 4, 8)
SOME = ("Qwen__Qwen3-8B", "google__gemma-3-27b-it", "openai__gpt-oss-120b", "meta-llama__Meta-Llama-3.1-8B")


def length_of(data: dict[str, Any]) -> int:
    text = data.get("text_config", data)
    return int(text.get("max_position_embeddings") or 131072)


def cell(path: Path, stretch: int, engine: str) -> Plan | str:
    """A plan, or why there is no rotation for that length."""
    data = json.loads(path.read_text())
    try:
        return plan(data, length=stretch * length_of(data), engine=engine)
    except ValueError as error:
        return str(error)


def check(found: Plan | str) -> None:
    if isinstance(found, str):
        assert "LongRoPE" in found or "known" in found, found
        return
    assert (found.settings is None) == bool(found.refused)
    if found.settings is None:
        assert len(found.refused) > 20
        return
    assert found.reading is not None
    assert found.reading.length is None or found.reading.length >= found.length
    assert found.reading.model.softmax_factor == pytest.approx(found.wanted.softmax_factor, rel=1e-6)
    for mine, theirs in zip(found.wanted.layers, found.reading.model.layers, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            close = {"rtol": 1e-6, "atol": 0.0}
            torch.testing.assert_close(mine.inv_freq(found.length), theirs.inv_freq(found.length), **close)
            assert theirs.attention_factor(found.length) == pytest.approx(mine.attention_factor(found.length), rel=1e-6)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("engine", ENGINES)
def test_some_cells(shared_data: Path, name: str, engine: str) -> None:
    for stretch in (1, 4):
        check(cell(shared_data / f"configs/full/{name}.json", stretch, engine))


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_every_cell(shared_data: Path, name: str) -> None:
    for engine in ENGINES:
        for stretch in STRETCH:
            check(cell(shared_data / f"configs/full/{name}.json", stretch, engine))


LIVE = [pytest.param(name, marks=() if name in SOME[:2] else pytest.mark.slow) for name in CLEAN]


@pytest.mark.parametrize("name", LIVE)
def test_transformers_itself(shared_data: Path, name: str) -> None:
    """The patched config.json, in transformers' own rotary module."""
    pytest.importorskip("transformers")
    from tests.planner.theirs import rotations

    made = cell(shared_data / f"configs/full/{name}.json", 4, "transformers")
    if isinstance(made, str) or made.settings is None:
        pytest.skip(f"no settings: {made if isinstance(made, str) else made.refused}")
    assert made.settings.config is not None
    try:
        theirs = rotations(made.settings.config)
    except ValueError as error:
        pytest.skip(f"transformers has no class for it: {error}")
    if not theirs:
        pytest.skip("its module holds no frequencies (Llama 4 keeps complex ones)")
    for spec in made.wanted.with_angles("float32").distinct:
        ours = spec.inv_freq(made.length)
        assert any(
            ours.shape == other.shape and torch.allclose(ours, other.double(), rtol=1e-6, atol=0)
            and factor == pytest.approx(spec.attention_factor(made.length), rel=1e-6)
            for other, factor in theirs
        )  # fmt: skip
