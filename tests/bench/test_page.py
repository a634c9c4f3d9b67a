"""docs/performance.md and the README's figures are what the committed results give."""

import dataclasses
import re
import sys

import performance
import pytest
from timing import CASES, Goal, gpu, write

from .test_result import RECORD, ROW


def test_the_page_and_the_readme_are_what_the_results_give():
    runs = performance.records()
    stale = "is stale; run: python benchmarks/performance.py"
    assert performance.PAGE.read_text(encoding="utf-8") == performance.page(runs), f"docs/performance.md {stale}"
    readme = performance.README.read_text(encoding="utf-8")
    assert readme == performance.filled(readme, runs), f"README.md {stale}"


def test_every_figure_of_the_readme_about_speed_is_a_written_one():
    readme = performance.README.read_text(encoding="utf-8")
    section = re.search(r"^## What it costs\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)[1]
    by_hand = performance.filled(section, []).replace(performance.NONE_YET, "")
    assert not re.search(r"\d", by_hand)
    elsewhere = readme.replace(section, "")
    assert not re.search(r"times (as|the)\b[^.]*\b(fast|long|time)|\bfaster\b|\bslower\b", elsewhere)


def test_every_case_stands_on_the_page():
    text = performance.page([])
    for case in (*CASES, *gpu.CASES):
        (line,) = re.findall(rf"^\| `{re.escape(case.name)}` \|.*$", text, re.MULTILINE)
        assert case.about in line
    assert text.endswith(performance.NONE_YET)


def test_a_run_on_the_page():
    slow = dataclasses.replace(ROW, measured="packed", layout="interleaved", ratio=0.8)
    peer = dataclasses.replace(
        ROW, case="transformers", measured="transformers", unit="phasor", ratio=5.0, goal=Goal("at least", 4.5)
    )
    run = dataclasses.replace(RECORD, rows=(ROW, slow, peer, dataclasses.replace(peer, ratio=4.0)))
    text = performance.page([run])
    assert "## a processor, 2 cores" in text and "2026-01-02: torch 2.13.0" in text
    assert "2 of 4 goals met." in text
    # the worst of both, whichever side the goal is on
    assert "| `64 tokens` | **0.80** packed, interleaved |  |  |" in text
    assert "| `transformers` | **4.00** |  |  |" in text
    figures = performance.figures([run])
    assert "| `64 tokens` | **0.80** |  |  |" in figures and "| `transformers` | **4.00** |  |  |" in figures
    assert "Skipped: `vllm` (not here)." in text


def test_the_readme_keeps_what_stands_around_the_marks():
    text = "before\n<!-- speed -->\nold 1.23\n<!-- /speed -->\nafter\n"
    assert performance.filled(text, []) == text.replace("old 1.23\n", performance.NONE_YET)
    with pytest.raises(ValueError, match=r"README.md must hold the lines <!-- speed --> and <!-- /speed -->"):
        performance.filled("nothing", [])


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(performance, "RESULTS", tmp_path)
    return tmp_path


def test_results_that_mean_nothing_are_refused(results):
    write(dataclasses.replace(RECORD, quick=True), results / "a.json")
    with pytest.raises(ValueError, match=r"a.json was measured with --quick, at sizes that mean nothing"):
        performance.records()
    write(dataclasses.replace(RECORD, rows=(dataclasses.replace(ROW, case="gone"),)), results / "a.json")
    with pytest.raises(ValueError, match=r"a.json has rows of gone, no case any more; measure it again"):
        performance.records()


def test_check_says_what_is_stale_and_writes_nothing(results, tmp_path, monkeypatch):
    page, readme = tmp_path / "performance.md", tmp_path / "README.md"
    readme.write_text("<!-- speed -->\n<!-- /speed -->\n")
    for name, value in {"ROOT": tmp_path, "PAGE": page, "README": readme}.items():
        monkeypatch.setattr(performance, name, value)
    monkeypatch.setattr(sys, "argv", ["performance.py", "--check"])
    with pytest.raises(SystemExit, match=r"performance.md is stale; run: python benchmarks/performance.py"):
        performance.main()
    assert not page.exists()


def test_a_run_on_a_gpu_on_the_page():
    row = dataclasses.replace(ROW, case="vision", measured="phasor", memory="device")
    run = dataclasses.replace(RECORD, rows=(row,), device={"name": "a card", "copy_tb_per_s": 4.0})
    text = performance.page([run])
    assert "## a card, beside a processor" in text and "A copy reads and writes 4.00 TB/s." in text
    assert "| `vision` | 0.54 |" in text
    assert performance.figures([run]) == performance.NONE_YET  # the README's figures are those of a CPU
