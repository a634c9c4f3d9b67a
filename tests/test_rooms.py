"""tests/rooms.py knows every folder of the sources and of the tests."""

from pathlib import Path

import pytest

import limited
from rooms import FOLDERS, NEAREST, OF_NO_ROOM, PACKAGES, ROOT, TESTS, Room, main, nearest, room_named


def folders(below: Path) -> list[Path]:
    return [path.parent for path in below.rglob("*.py")]


def test_every_source_folder_has_tests():
    for package in PACKAGES:
        base = ROOT / package if package == "src/phasor" else (ROOT / package).parent
        paths = [*folders(ROOT / package), *(ROOT / package).glob("*.py")]
        for name in {path.relative_to(base).as_posix() for path in paths if path.name != "__init__.py"} - {"."}:
            room = room_named(name.removesuffix(".py"))
            assert len(room.tests) > 1 and (ROOT / room.source).exists(), name
            assert room.source == room.tests[0] == (base / name).relative_to(ROOT).as_posix()


def test_every_folder_of_tests_is_named_and_every_pattern_is_of_something():
    named = {pattern for patterns in TESTS.values() for pattern in patterns.split()}
    places = [ROOT / folder for folder in FOLDERS]
    there = [path.name for place in places for path in place.iterdir() if any(path.glob("**/*.py"))]
    assert sorted(there) == sorted({n for n in named if any((place / n).is_dir() for place in places)} | OF_NO_ROOM)
    assert [pattern for pattern in named if not any(any(place.glob(pattern)) for place in places)] == []
    assert all(room_named(room) for room in TESTS)


def test_a_room_has_the_tests_of_its_own_of_those_below_and_of_the_next_above(tmp_path):
    for name in ("src/phasor/wing/room/corner.py", "src/phasor/other.py", "tests/a/x.py", "tests/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests/c").mkdir()
    table = {"wing": "a", "wing/room": "test_b.py", "wing/room/corner": "c"}

    def tests(name):
        return room_named(name, tmp_path, table).tests

    assert tests("wing/") == ("src/phasor/wing", "tests/a", "tests/test_b.py", "tests/c")
    assert tests("wing/room") == ("src/phasor/wing/room", "tests/test_b.py", "tests/c", "tests/a")
    assert tests("wing/room/corner") == ("src/phasor/wing/room/corner.py", "tests/c", "tests/test_b.py")
    for name in ("", "/", "other", "wing/absent", "winged"):
        with pytest.raises(ValueError, match="a room must be a folder or file of src/phasor, such as wing"):
            room_named(name, tmp_path, table)


def test_any_two_folders_of_tests_can_be_in_one_call(forking_python):
    """Modules outside packages share one space of names, where those called conftest are not looked for."""
    folders = [
        folder for folder in (ROOT / "tests").iterdir() if folder.is_dir() and not (folder / "__init__.py").exists()
    ]
    names = [path.name for folder in (ROOT / "tests", *folders) for path in folder.glob("*.py")]
    assert {name for name in names if names.count(name) > 1} == {"conftest.py"}
    bare = [str(folder) for folder in folders if (folder / "conftest.py").exists()]
    command = [
        str(forking_python),
        "-m",
        "pytest",
        "-qq",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        *bare,
    ]
    done = limited.run(command, cwd=ROOT)
    assert len(bare) > 1 and done.returncode == 0, done.stdout[-1000:]


def test_the_nearest_tests_import_a_file_or_bear_its_name(tmp_path):
    files = {
        "src/phasor/wing/corner.py": "def edge(): ...\nclass Side: ...\n",
        "tests/a/test_all.py": "from phasor import edge, Side\n",
        "tests/a/test_corner.py": "import torch\n",
        "tests/a/test_else.py": "import torch\n",
        "tests/a/helper.py": "from phasor.wing.corner import edge\n",
        "tests/test_most.py": "def test_inside():\n    from phasor.wing.corner import edge\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    room = Room("wing", "src/phasor/wing", ("src/phasor/wing", "tests/a", "tests/test_most.py"))
    near = ["tests/test_most.py", "tests/a/test_all.py", "tests/a/test_corner.py"]
    assert nearest(room, "src/phasor/wing/corner.py", tmp_path) == ("src/phasor/wing/corner.py", *near)
    for i in range(NEAREST):
        (tmp_path / f"tests/a/test_edge_{i}.py").write_text("")
    assert nearest(room, "src/phasor/wing/corner.py", tmp_path)[1:4] == (*near,)
    assert len(nearest(room, "src/phasor/wing/corner.py", tmp_path)) == 1 + NEAREST


def test_paths_for_pytest(capsys):
    assert main(["encodings"]) == 0
    assert capsys.readouterr().out == "src/phasor/encodings tests/encodings tests/heads\n"
    assert main(["nowhere"]) == 2
    assert "not 'nowhere'" in capsys.readouterr().err
