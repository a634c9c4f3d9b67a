"""docs/lab.md over three seeds: every number of its tables, and every order that it tells, is of the report's results.

``results/tinyshakespeare.json`` is what `phasor lab report` wrote of the page's commands, without paths.
"""

import json
import re
from pathlib import Path

from house import ROOT

HERE = Path(__file__).parent
PAGE = (ROOT / "docs/lab.md").read_text(encoding="utf-8")
RESULTS = json.loads((HERE / "results/tinyshakespeare.json").read_text())["sections"]
ENCODINGS = ("sinusoidal", "rotary", "alibi")


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table of one section, by their first cell."""
    section = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    table = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {first: rest for first, *rest in cells[2:]}


def losses(section: str, name: str) -> dict[float, list[float]]:
    return dict(RESULTS[section]["curves"][name])


def spread(values: list[float]) -> str:
    return f"{sum(values) / len(values):.3f}<br>{min(values):.2f}–{max(values):.2f}"


def test_losses():
    shown = rows("Beyond the training length")
    assert shown == {name: list(map(spread, losses("loss_by_length", name).values())) for name in ENCODINGS}


def test_extension():
    shown = rows("Stretching a rotary model")
    assert shown == {
        name: list(map(spread, dict(curve).values())) for name, curve in RESULTS["extension"]["curves"].items()
    }


def test_three_seeds_of_each():
    assert RESULTS["loss_by_length"]["seeds"].count("3 seeds (0, 1, 2)") == 1
    every = [values for name in ENCODINGS for values in losses("loss_by_length", name).values()]
    assert {len(values) for values in every} == {3}


def test_the_orders_that_the_page_tells():
    sinusoidal, rotary, alibi = (losses("loss_by_length", name) for name in ENCODINGS)
    for length in (256, 512):
        assert all(a < b < c for a, b, c in zip(alibi[length], rotary[length], sinusoidal[length], strict=True))
    assert sum(map(float.__lt__, rotary[128], alibi[128])) == 1
    assert len({a < b for a, b in zip(rotary[1024], sinusoidal[1024], strict=True)}) == 2
    linear, none, ntk, yarn = (losses("extension", name) for name in ("linear", "none", "ntk", "yarn"))
    assert all(a > b > c > d for a, b, c, d in zip(linear[4], none[4], ntk[4], yarn[4], strict=True))
    assert sum(ntk[8]) > sum(yarn[8]) and sum(map(float.__lt__, ntk[8], yarn[8])) == 1
    assert all(map(float.__lt__, ntk[2], yarn[2]))
