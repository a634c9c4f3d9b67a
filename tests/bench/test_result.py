"""Results as files: what was written is read, and nothing else is."""

import dataclasses
import json

import pytest
from timing import Goal, Record, Timing, read, write
from timing.result import line, worst_first

ROW = Timing(
    "64 tokens", "float32", "halves", "reused", 1, "tables", "copy_", 21.5, 40.0, 0.5375, (0.5, 0.625), "quartiles",
    Goal("at most", 0.75),
)  # fmt: skip
BARE = dataclasses.replace(ROW, spread=None, spread_of="", goal=None)
RECORD = Record(
    command="phasor bench", date="2026-01-02", cpu="a processor", cores=2, threads=1, rounds=30, quick=False,
    python="3.11.7", torch="2.13.0", phasor="0.1.0", kernel="auto", kernels={"eager": "plain"}, rows=(ROW, BARE),
    skipped={"vllm": "not here"},
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    write(RECORD, tmp_path / "run.json")
    return tmp_path / "run.json"


def test_round_trip(path):
    assert read(path) == RECORD
    assert read(path).rows[0].met is True and read(path).rows[1].met is None


def test_a_row_stands_on_a_line_and_says_everything(path):
    lines = path.read_text().splitlines()
    (line,) = (line for line in lines if '"at most"' in line)
    assert json.loads(line.strip().rstrip(",")) == {
        "case": "64 tokens", "dtype": "float32", "layout": "halves", "memory": "reused", "threads": 1,
        "measured": "tables", "unit": "copy_", "us": 21.5, "unit_us": 40.0, "ratio": 0.5375, "spread": [0.5, 0.625],
        "spread_of": "quartiles", "goal": {"rule": "at most", "bound": 0.75},
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"date"', '"day"'),
        lambda text: text.replace('"ratio"', '"share"'),
        lambda text: text.replace('"at most"', '"below"'),
        lambda text: text.replace('"cores": 2', '"cores": 2, "cores": 4'),
    ],
)
def test_anything_else_is_refused(path, change):
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=r"run\.json must be what benchmarks/bench.py --json writes, and is not"):
        read(path)


def test_what_is_farthest_beyond_its_goal_comes_first():
    slow = dataclasses.replace(ROW, case="given", ratio=1.5)
    peer = dataclasses.replace(ROW, case="peer", ratio=2.0, goal=Goal("at least", 6.0))  # three times, slow is twice
    assert worst_first([ROW, BARE, slow, peer]) == [peer, slow, ROW]


def test_a_line_says_the_ratio_the_goal_and_the_limit():
    row = dataclasses.replace(ROW, case="64 tokens", measured="packed, in place", unit="copy_")
    said = line(row).split("  ")
    assert [word.strip() for word in said if word.strip()][-4:] == [
        "0.54",
        "0.50..0.62",
        "at most 0.75",
        "limit 40.0 us",
    ]
