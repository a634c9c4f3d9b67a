"""A file of tests as somebody else's, run by pytest in a process of its own."""

from pathlib import Path

import pytest

import limited


def run_tests(python: str, folder: Path, source: str, *arguments: str) -> tuple[dict[str, int], pytest.LineMatcher]:
    """How many passed, failed or had errors, and the lines that were printed.

    The plugin is named: where phasor is installed pytest has it from the entry point.
    """
    (folder / "test_theirs.py").write_text(source, encoding="utf-8")
    (folder / "pytest.ini").touch()  # the root of theirs is this folder
    command = [python, "-m", "pytest", "-p", "phasor_pytest", "-p", "no:cacheprovider", *arguments]
    lines = limited.run(command, cwd=folder).stdout.splitlines()
    outcomes = pytest.RunResult.parse_summary_nouns(lines)
    outcomes.pop("warnings", 0)  # of modules that a fork has imported before
    return outcomes, pytest.LineMatcher(lines)
