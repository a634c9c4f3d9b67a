"""What outsiders look for says what is so: CONTRIBUTING.md, CITATION.cff, the hooks, CI, the rules for editors."""

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from rooms import room_named

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORMATS = ("*.py", "*.md", "*.c", "*.h", "*.html", "*.toml", "*.yml", "*.yaml")


def test_contributing_names_targets_files_and_rooms_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"\bmake ([a-z]+)", text))
    assert targets >= {"test", "check"} and all(f"\n{target}: " in MAKEFILE for target in targets)
    for path in re.findall(r"`((?:src|tests|\.ci)/[^`]+)`", text):
        assert (ROOT / path).exists(), path
    rooms = re.findall(r"ROOM=([\w/]+)", text)
    assert rooms and all(room_named(room) for room in rooms)
    for wing in (path.name for path in (ROOT / "src/phasor").iterdir() if (path / "__init__.py").exists()):
        assert f"`{wing}`" in text, wing


def test_contributing_is_one_screen():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 45


def test_citation_is_of_this_version():
    project = PROJECT["project"]
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in text and f"\nlicense: {project['license']}\n" in text
    assert project["authors"][0]["name"] in text


def test_clean_names_folders_that_exist():
    """Those that hold sources; what is made and thrown away need not be there."""
    places = re.search(r"find (.*?) -name __pycache__", MAKEFILE)[1].split()
    assert places and all((ROOT / place).is_dir() for place in places)


def test_ci_runs_what_every_change_must_pass_on_every_python():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    known = [line.split()[-1] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == known
    assert jobs["linux"]["steps"][-1] == {"run": ".ci/run"} and (ROOT / ".ci/run").stat().st_mode & 0o111
    commands = [step["run"] for step in jobs["macos"]["steps"] if "run" in step]
    (room,) = re.findall(r"make test ROOM=(\S+)", "\n".join(commands))
    assert room_named(room) and "VENV ?= .venv\n" in MAKEFILE and "STAMP := $(VENV)/installed\n" in MAKEFILE
    assert "make .venv/installed" in commands
    for job in jobs.values():
        assert job["steps"][0]["uses"].startswith("actions/checkout@") and job["timeout-minutes"] >= 28


def test_make_installs_the_pinned_versions():
    installs = re.findall(r"\$\(PIP\) install (.*)", MAKEFILE)
    assert installs and all(arguments.startswith("-c constraints.txt ") for arguments in installs)


def hooks() -> dict[str, dict]:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # nothing is fetched
    return {hook["id"]: hook for hook in repository["hooks"]}


def test_hooks_run_the_tools_of_the_environment():
    programs = [hook["entry"].split()[0] for hook in hooks().values() if hook["language"] == "system"]
    tools = PROJECT["project"]["optional-dependencies"]["dev"]
    assert {program.removeprefix(".venv/bin/") for program in programs} == {"ruff", "mypy"} <= set(tools)


@pytest.mark.parametrize(
    "name, bad, good",
    [
        ("trailing-space", ["a \nb\n", "a\t\n"], "a\n\nb\n"),
        ("last-line", ["a", "a\nb"], "a\n\nb\n"),
        ("conflicts", ["a\n<<<<<<< HEAD\n", ">>>>>>> b\n"], "a <<<<<<<\n======\n"),
    ],
)
def test_hooks_of_text_find_what_they_are_for(name, bad, good):
    """As pre-commit searches: each line, or with --multiline the whole text."""
    hook = hooks()[name]
    whole = hook.get("args") == ["--multiline"]
    pattern = re.compile(hook["entry"], re.MULTILINE | re.DOTALL if whole else 0)

    def match(text: str) -> bool:
        return any(pattern.search(part) for part in ([text] if whole else text.splitlines(keepends=True)))

    assert all(match(text) for text in bad) and not match(good)
    excluded = re.compile(hook.get("exclude", "^$"))
    texts = [path for kind in FORMATS for path in ROOT.glob(kind)]
    for folder in ("src", "packages", "tests", "docs", "benchmarks"):
        texts += [path for kind in FORMATS for path in (ROOT / folder).rglob(kind)]
    names = [str(path.relative_to(ROOT)) for path in texts if match(path.read_text())]
    assert len(texts) > 400 and [name for name in names if not excluded.search(name)] == []


def test_editors_know_the_width_of_a_line():
    rules = ConfigParser(delimiters="=")
    rules.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    assert rules["*"]["max_line_length"] == str(PROJECT["tool"]["ruff"]["line-length"])
    assert rules["Makefile"]["indent_style"] == "tab"
