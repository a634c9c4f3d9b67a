"""CONTRIBUTING.md and CITATION.cff say what is so."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_contributing_names_targets_and_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z]+)", text))
    assert targets >= {"test", "check"} and all(f"\n{target}: " in makefile for target in targets)
    for path in re.findall(r"`((?:src|tests|\.ci)/[^`]+)`", text):
        assert (ROOT / path).exists(), path


def test_citation_is_of_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in text and f"\nlicense: {project['license']}\n" in text
    assert project["authors"][0]["name"] in text


def test_clean_names_folders_that_exist():
    """Those that hold sources; what is made and thrown away need not be there."""
    places = re.search(r"find (.*?) -name __pycache__", (ROOT / "Makefile").read_text())[1].split()
    assert places and all((ROOT / place).is_dir() for place in places)
