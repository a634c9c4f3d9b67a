"""docs/tutorials: their Python runs and prints what they say, their commands run and print the lines beneath them; each
page alone, in a process that has imported nothing else of phasor.

Blocks of one page run in order, in one namespace and one folder, which holds the README's configs. Of what a command
prints a page may show any lines, in their order; a line that ends with ``...`` is the beginning of one.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import limited
from blocks import CONFIGS, ROOT
from forks import forking
from tutorial import run_console

pytest.importorskip("transformers")
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# What is not phasor and takes seconds: every page would import it for itself.
OF_OTHERS = ("transformers.models.llama.modeling_llama", "transformers.models.qwen3.modeling_qwen3")

Run = Callable[[Path], "limited.subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def readers_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forking(tmp_path_factory.mktemp("readers"), ("torch", "phasor", *OF_OTHERS)) as executable:
        yield executable


@pytest.fixture
def run(readers_python: Path, forking_python: Path, tmp_path: Path) -> Run:
    """A page in a process of its own."""
    for name, config in {**CONFIGS, "other.json": CONFIGS["b.json"]}.items():
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
    return lambda page: limited.run([readers_python, "-m", "tutorial", page, forking_python], cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial(page: Path, run: Run) -> None:
    done = run(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.stem == "README" or "torch, phasor\n" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "body, words",
    [
        ("```python\n>>> 1 + 1\n3\n\n```\n", "Expected:\n    3"),
        ("```python\n>>> phasor.golden.check\n\n```\n", "name 'phasor' is not defined"),
        ("```python\n>>> import phasor\n>>> phasor.absent\n\n```\n", "module 'phasor' has no attribute 'absent'"),
        ("```console\n$ phasor inspect config.json\nmodel  qwen ...\n```\n", "does not print: model  qwen"),
    ],
)
def test_a_page_that_is_wrong(body: str, words: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(body, encoding="utf-8")
    done = run(tmp_path / "page.md")
    assert done.returncode == 1 and words in done.stdout + done.stderr


def test_a_tutorial_notices_what_a_command_does_not_print(phasor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIGS["config.json"]))
    run_console("$ phasor inspect config.json\nmodel        llama, 32 ...\n", phasor)
    with pytest.raises(AssertionError, match="does not print: model        qwen"):
        run_console("$ phasor inspect config.json\nmodel        qwen ...\n", phasor)
    with pytest.raises(AssertionError, match=r"absent\.json"):
        run_console("$ phasor inspect absent.json\n", phasor)
