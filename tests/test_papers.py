"""What outsiders look for says what is so: CONTRIBUTING.md, CITATION.cff, CI and the pinned versions."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_targets_and_paths_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / ".github/workflows/ci.yml").read_text()
    for target in re.findall(r"^(?:.*`|\s*(?:- run: )?)make ([a-z]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    for path in re.findall(r"(?:src|tests|\.ci)/[\w/.]*\w", text):
        assert (ROOT / path).exists(), path
    for wing in (path.parent.name for path in (ROOT / "src/phasor").glob("*/__init__.py")):
        assert f"`{wing}`" in text, wing


def test_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['version']}\n" in text and f"\nlicense: {PROJECT['license']}\n" in text


def test_ci_runs_on_every_python_and_installs_pinned_versions():
    linux = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["linux"]
    known = [line.split()[-1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert linux["strategy"]["matrix"]["python"] == known and linux["steps"][-1] == {"run": ".ci/run"}
    installs = re.findall(r"\$\(PIP\) install (.*)", MAKEFILE)
    assert installs and all(arguments.startswith("-c constraints.txt ") for arguments in installs)
