"""How many lines a folder may have, and words the pages by hand, as DESIGN.md says; and parameters a function."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = (ROOT / "DESIGN.md").read_text(encoding="utf-8").partition("## Budgets")[2].partition("\n## ")[0]
BUDGETS = {
    place: int(most.replace(",", "")) for place, most in re.findall(r"^\| `([^`]+)` \| ([\d,]+) \|", TABLE, re.M)
}
MOST_PARAMETERS = 12
BY_NAME = {
    # Public calls: all beyond the tensors is given by name, and no caller gives many of them at once.
    "apply/normed.apply_qk_norm_rotary": 14,
    "apply/cached.apply_rotary_to_cache": 18,
    "apply/latent.apply_rotary_to_latent_cache": 14,
    "attention/call.attention": 14,
    "checking/check.check": 16,
    "apply/short_ways.into_cache": 14,  # once a token and layer: tuples that join some of them take 0.4 us of 6
    # Commands: typer reads the options of a command from its parameters.
    "lab/train.train": 14,
    "ner/train.train": 14,
    "cli/plan.plan": 17,
}
MADE = ("performance.md", "models.md", "atlas.md")  # pages that a program writes
TABLES = re.compile(r"<!-- (generated|speed).*?(<!-- /speed -->|\Z)", re.S)  # and parts of others


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(folder.rglob("*.py")))


def words(folder: Path) -> int:
    pages = [ROOT / name for name in ("README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += [page for page in sorted(folder.rglob("*.md")) if page.name not in MADE and page.parent.name != "api"]
    return sum(len(TABLES.sub("", page.read_text(encoding="utf-8")).split()) for page in pages)


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
    needed = folders | {"src/phasor", "tests", "benchmarks", "evidence", "docs"}
    assert needed <= set(BUDGETS), f"no budget in DESIGN.md: {sorted(needed - set(BUDGETS))}"


def parameters(path: Path) -> list[tuple[int, str]]:
    """How many each function of a file has."""
    found = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    ]
    return [
        (
            len(list(filter(None, [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]))),
            getattr(f, "name", "lambda"),
        )
        for f in found
        for a in [f.args]
    ]


def test_no_function_has_more_parameters_than_a_reader_keeps_apart() -> None:
    """What belongs together becomes a tuple with names; a kernel in Triton takes them too."""
    sources = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    found = {
        f"{path.parent.name}/{path.stem}.{name}": n
        for path in sources
        for n, name in parameters(path)
        if n > MOST_PARAMETERS
    }
    assert found == BY_NAME
