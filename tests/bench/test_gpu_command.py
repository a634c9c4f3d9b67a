"""`make gpu` stops in time, says what it left, and goes on from its file."""

import dataclasses
import importlib.util
import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import typer
from timing import read
from timing.gpu import CASES, HostClock
from typer.testing import CliRunner

from blocks import ROOT

from .test_result import RECORD, ROW


@pytest.fixture
def command(monkeypatch):
    """It with a clock of 40 seconds for each look, on a card that takes no time."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    spec = importlib.util.spec_from_file_location("gpu_command", ROOT / "benchmarks" / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def timed(names, **options):
        rows = tuple(dataclasses.replace(ROW, case=name) for name in names)
        return dataclasses.replace(RECORD, rows=rows, skipped={}, device={"name": "a card"})

    good = {"calls": 2, "seen": {"same bits": 2}, "wrong": []}
    monkeypatch.setattr(module, "ON_CARD", True)
    monkeypatch.setattr(module, "CudaClock", HostClock)
    monkeypatch.setattr(module, "run", timed)
    monkeypatch.setattr(module, "laws", lambda seconds, device: {"law: tables": good})
    monkeypatch.setattr(module, "named_tests", lambda seconds: good)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=partial(next, itertools.count(0, 40))))
    app = typer.Typer()
    app.command()(module.gpu)
    return module, lambda *given: CliRunner().invoke(app, [*map(str, given)])


def test_what_was_cut_off_goes_on(command, tmp_path):
    module, call = command
    out = tmp_path / "gpu.json"
    first = call("--minutes", 5, "--json", out)
    assert first.exit_code == 0, first.output
    cut = read(out)
    left = [name for name, why in cut.skipped.items() if why == module.NO_TIME]
    assert left == [case.name for case in CASES[-len(left) :]] and 0 < len(left) < len(CASES)
    assert list(cut.bits) == ["law: tables", "tests/gpu"]
    assert call("--minutes", 60, "--json", out).exit_code == 0
    whole = read(out)
    assert [row.case for row in whole.rows] == [case.name for case in CASES]
    assert whole.skipped == {} and whole.bits == cut.bits


def test_a_wrong_bit_is_the_exit_status_and_is_tried_again(command, tmp_path, monkeypatch):
    module, call = command
    out, bad = tmp_path / "gpu.json", {"calls": 1, "seen": {}, "wrong": ["tables 3: another bit"]}
    monkeypatch.setattr(module, "laws", lambda seconds, device: {"law: tables": bad})
    assert call("--minutes", 60, "--json", out).exit_code == 1
    assert call("--minutes", 60, "--json", out).exit_code == 1
    monkeypatch.setattr(module, "laws", lambda seconds, device: {"law: tables": {**bad, "wrong": []}})
    assert call("--minutes", 60, "--json", out).exit_code == 0
