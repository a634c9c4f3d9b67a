"""The one command line finds the commands of the other packages, and says what to install where one is missing."""

import tomllib
from itertools import chain

import pytest

from house import PACKAGES, ROOT
from phasor.cli.app import ELSEWHERE, GROUP, _installed
from phasor.cli.convert import _told

PROJECTS = [tomllib.loads((ROOT / path / "../../pyproject.toml").read_text())["project"] for path in PACKAGES[1:]]


def test_the_packages_are_of_one_version_and_pin_it():
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for project in PROJECTS:
        assert project["version"] == core["version"] and project["requires-python"] == core["requires-python"]
        needs = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
        pins = {need.partition("==")[2] for need in needs if need.startswith(("phasor-rope", "phasor-serve"))}
        assert pins == {core["version"]}
        extra = project["name"].removeprefix("phasor-")
        assert core["optional-dependencies"][extra] == [f"{project['name']}=={core['version']}"]


def test_every_command_of_another_package_is_one_that_the_core_can_name():
    places = {name: project["name"] for project in PROJECTS for name in project["entry-points"][GROUP]}
    assert places == {name: package for name, (package, _) in ELSEWHERE.items()}
    points = {name: place for project in PROJECTS for name, place in project["entry-points"][GROUP].items()}
    assert {name: point.value for name, point in _installed().items()} == points


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_missing_package_is_named(name, phasor, monkeypatch):
    monkeypatch.setattr("phasor.cli.app._installed", dict)
    package = ELSEWHERE[name][0]
    told = f"phasor: {name} is a command of {package}; install it with: pip install {package}\n"
    assert phasor(name, "anything", "--length", 3) == (2, "", told)


def test_the_list_names_what_can_be_installed(phasor, monkeypatch):
    assert "Not installed" not in phasor("--help")[1]
    monkeypatch.setattr("phasor.cli.app._installed", dict)
    code, out, _ = phasor("--help")
    assert code == 0 and "plan, engine: pip install phasor-serve" in out and "\n  plan " not in out


def test_a_long_conversion_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr("phasor.cli.progress.EVERY", 0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    told = _told(8 << 20)
    for count in (100, 3 << 20):
        told(count)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("3 of at most 8 MiB, ") and line.endswith(" s left")
