"""DESIGN.md says how many lines each folder may have, and how many words the pages that are written by hand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = (ROOT / "DESIGN.md").read_text(encoding="utf-8").partition("## Budgets")[2].partition("\n## ")[0]
BUDGETS = {
    place: int(most.replace(",", "")) for place, most in re.findall(r"^\| `([^`]+)` \| ([\d,]+) \|", TABLE, re.M)
}
MADE = ("performance.md", "models.md")  # pages that a program writes


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(folder.rglob("*.py")))


def words(folder: Path) -> int:
    pages = [ROOT / name for name in ("README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += [page for page in sorted(folder.rglob("*.md")) if page.name not in MADE and page.parent.name != "api"]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


@pytest.mark.parametrize("place", sorted(BUDGETS))
def test_a_folder_is_not_larger_than_its_budget(place: str) -> None:
    """Whoever needs more raises the number in the commit that says what it buys, or removes something else."""
    folder = ROOT / place
    assert folder.is_dir(), f"DESIGN.md has a budget for {place}, which is not there"
    size = words(folder) if place == "docs" else lines(folder)
    assert size <= BUDGETS[place], f"{place} has {size}, and its budget in DESIGN.md is {BUDGETS[place]}"


def test_every_folder_has_a_budget() -> None:
    inside = [*(ROOT / "src/phasor").iterdir(), *(ROOT / "src/phasor/tools").iterdir(), *ROOT.glob("packages/*/src/*")]
    folders = {path.relative_to(ROOT).as_posix() for path in inside if (path / "__init__.py").is_file()}
    folders |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("packages/*/tests")}
    needed = folders | {"src/phasor", "tests", "benchmarks", "docs"}
    assert needed <= set(BUDGETS), f"no budget in DESIGN.md: {sorted(needed - set(BUDGETS))}"
