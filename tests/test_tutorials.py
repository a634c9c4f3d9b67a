"""docs/tutorials: their Python runs and prints what they say, their commands run and print the lines beneath them; and
the Python of each page runs alone, in a process that has imported nothing else.

Blocks of one page run in order, in one namespace and one folder, which holds the README's configs. Of what a command
prints a page may show any lines, in their order; a line that ends with ``...`` is the beginning of one.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import limited
from test_readme import CONFIGS, ROOT, blocks, run_python

pytest.importorskip("transformers")
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def run_console(body: str, phasor: Callable[..., tuple[int, str, str]]) -> None:
    said: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ phasor "):
            code, out, err = phasor(*line.split()[2:])
            assert code in (0, 1) and not err, f"{line}\n{err}"  # 1: something differs
            said = out.splitlines()
        elif line.strip():
            while said and not fits(line, said[0]):
                said.pop(0)
            assert said, f"the command does not print: {line}"


def fits(shown: str, line: str) -> bool:
    shown, line = shown.strip(), line.strip()
    return line.startswith(shown.removesuffix("...").rstrip()) if shown.endswith("...") else line == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phasor) -> None:
    monkeypatch.chdir(tmp_path)
    for name, config in {**CONFIGS, "other.json": CONFIGS["b.json"]}.items():
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
    names: dict = {"__name__": "tutorial"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console":
            run_console(block.body, phasor)
        elif block.language == "python":
            assert not (report := run_python(block, names, page.name)), report


RUN = """
import doctest, sys
page = doctest.DocTestParser().get_doctest(open("page.txt").read(), {"__name__": "page"}, "page", "page", 0)
sys.exit(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(page).failed)
"""
COMMAND = ">>> import subprocess; _ = subprocess.run({call!r}, capture_output=True)\n"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "README"], ids=lambda page: page.stem)
def test_a_tutorial_runs_alone(page: Path, tmp_path: Path) -> None:
    """As a reader runs it. Commands that write something are processes of their own: they import nothing for it."""
    for name, config in {**CONFIGS, "other.json": CONFIGS["b.json"]}.items():
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
    script = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            script.append(block.body)
        for line in block.body.splitlines() if block.language == "console" else ():
            if line.startswith("$ phasor ") and (" --out " in line or " --write " in line):
                script.append(COMMAND.format(call=[sys.executable, "-m", "phasor", *line.split()[2:]]))
    (tmp_path / "page.txt").write_text("\n".join(script), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = limited.run([sys.executable, "-c", RUN], cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "torch, phasor\n" in "".join(script), done.stdout + done.stderr


def test_a_tutorial_notices_what_a_command_does_not_print(phasor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIGS["config.json"]))
    run_console("$ phasor inspect config.json\nmodel        llama, 32 ...\n", phasor)
    with pytest.raises(AssertionError, match="does not print: model        qwen"):
        run_console("$ phasor inspect config.json\nmodel        qwen ...\n", phasor)
    with pytest.raises(AssertionError, match=r"absent\.json"):
        run_console("$ phasor inspect absent.json\n", phasor)
