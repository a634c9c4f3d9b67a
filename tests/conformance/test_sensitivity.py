"""No key changes the tables of a model's own code without phasor noticing, and none changes phasor's alone."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers")

from found_data import found_data

from .changes_of_keys import levels
from .kept import SWEEPS, kept, sliced
from .reached import ROOT, reached
from .sensitivity import Found, base_of, sweep
from .test_operators import FAST
from .walk import model_types, turning_places

SLICES = 48  # one test for all types would take longer than a single test may
FEW = 2  # types of the slice that every run of the tests has


@pytest.fixture(scope="module")
def data() -> Path | None:
    """Real configs have keys that no class knows; without them those of the classes are tried."""
    return found_data()


def told(found: Found) -> dict[str, Any]:
    return {**asdict(found), "counts": dict(found.counts), "reads": sorted(found.reads)}


def test_results_are_kept_for_the_code_that_they_are_of() -> None:
    """A change of a row, of the reader or of the arithmetic makes a new sweep necessary, one of the rest does not."""
    files = {
        path.relative_to(ROOT / "src/phasor").as_posix()
        for path in reached(ROOT / SWEEPS["keys"])
        if "src" in path.parts
    }
    assert {
        "models/configs.py",
        "models/rows.json",
        "models/rules/after.py",
        "models/reading/rope.py",
        "rotary/scaling/yarn.py",
        "rotary/spec.py",
        "rotary/tables.py",
    } <= files
    assert not [file for file in files if file.startswith(("cli", "tools", "rotary/kernels/triton"))]


def test_a_part_that_does_not_say_what_it_is_has_its_keys_tried() -> None:
    """Evolla's protein encoder has no model type."""
    base = base_of("evolla")
    assert base is not None and base.data["protein_encoder_config"] == {}
    assert ("protein_encoder_config",) in [
        level.path for level in levels("evolla", turning_places("evolla"), base.data)
    ]


@pytest.mark.parametrize("model_type", Random("a slice").sample(FAST, FEW))
def test_a_slice_of_the_types(model_type: str, data: Path | None) -> None:
    found = sweep(model_type, data, values=(1,))
    assert found.silent == []
    assert found.not_compared or found.counts["same"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("start", range(SLICES))
def test_every_key_of_every_type(start: int, data: Path | None) -> None:
    found = {
        name: kept("keys", name, lambda name=name: told(sweep(name, data)))
        for name in sliced(model_types(), start, SLICES)
    }
    for name, one in found.items():
        print(f"{name:40} {one['counts'] or one['not_compared']}", flush=True)
    assert [f"{name}: {line}" for name, one in found.items() for line in one["silent"]] == []


@pytest.mark.slow
def test_the_sweep_is_whole(data: Path | None) -> None:
    """Counts over all types; needs the tests above."""
    all_found = {name: kept("keys", name, lambda name=name: told(sweep(name, data))) for name in model_types()}
    counts: Counter[str] = sum((Counter(one["counts"]) for one in all_found.values()), Counter())
    print(f"\n{len(all_found)} types, {counts.total()} changes of configs: {dict(counts)}")
    print("\n".join(f"not compared: {n}: {one['not_compared']}" for n, one in all_found.items() if one["not_compared"]))
    assert sum(bool(one["reads"]) for one in all_found.values()) > 300
