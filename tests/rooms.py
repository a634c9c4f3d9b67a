"""Which tests belong to which room: `make test ROOM=tools/doctor` and `make mutants ROOM=tools/doctor` read this table.

    python tests/rooms.py rotary/kernels     the paths for pytest

A room is a folder or a file of src/phasor, or of another package with its name: phasor_serve/planner. The examples in
its docstrings are always among its tests.
"""

import ast
import os
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("src/phasor", "packages/phasor-lab/src/phasor_lab", "packages/phasor-serve/src/phasor_serve")
FOLDERS = ("tests", "packages/phasor-lab/tests", "packages/phasor-serve/tests")
PYTHONPATH = os.pathsep.join(str((ROOT / package).parent) for package in PACKAGES)  # of processes that tests start

# Room: its tests, as patterns below one of these folders.
TESTS = {
    "support": "support core/test_errors.py core/test_spec.py test_interrupt.py test_processes.py "
    "test_public_modules.py test_transformers_log.py",
    "support/processes": "lab/test_train.py",
    "support/tracing": "core/test_default_device.py core/test_launches.py",
    "rotary": "core encodings theory parallel",
    "rotary/kernels/native": "native",
    "rotary/kernels/triton": "gpu",
    "positions": "positions core/test_positions.py core/test_formats.py",
    "encodings": "encodings heads",
    "eye": "eye",
    "models": "configs models",
    "caches": "caches",
    "tools/patch": "integrations",
    "tools/doctor": "doctor",
    "tools/golden": "golden",
    "tools/onnx": "exported",
    "tools/inspect": "inspect",
    "tools/checkpoints": "checkpoints",
    "testing": "doctor/test_testing.py",
    "cli": "*/test_cli.py */test_command.py */test_terminal.py test_interrupt.py test_output.py",
    "__main__": "*/test_cli.py",
    "phasor_lab/lab": "lab parallel",
    "phasor_lab/ner": "ner",
    "phasor_lab/run_folder": "runs",
    "phasor_lab/running": "fit study",
    "phasor_lab/fitting": "fit",
    "phasor_lab/studying": "study",
    "phasor_lab/atlas": "atlas",
    "phasor_lab/demo": "test_demo.py",
    "phasor_lab/cli": "*/test_cli.py test_interrupt.py test_output.py",
    "phasor_serve": "engines planner explorer",
}

# Folders of what is in no package: benchmarks/timing; and what compares all rooms at once, by `make conformance`.
OF_NO_ROOM = {"bench", "conformance"}

NEAREST = 6  # files of tests beside a file's own examples


class Room(NamedTuple):
    name: str
    source: str  # below the project
    tests: tuple[str, ...]  # paths below the project; the first is the source, for its examples


def room_named(name: str, root: Path = ROOT, table: dict[str, str] = TESTS) -> Room:
    """The tests of a room: those of its own row, of all rows below it, and of the nearest row above it.

    Raises ``ValueError`` for what is no folder or file of the package, and for what no row speaks of.
    """
    name = name.strip("/")
    places = [root / "src/phasor", *((root / package).parent for package in PACKAGES[1:])]
    paths = [path for place in places for path in (place / name, place / f"{name}.py")]
    source = next((path for path in paths if name and path.exists()), None)
    rows = [row for row in table if is_inside(row, name)]
    rows += sorted((row for row in table if row != name and is_inside(name, row)), key=len)[-1:]
    if source is None or not rows:
        raise ValueError(f"a room must be a folder or file of src/phasor, such as {', '.join(table)}; not {name!r}")
    patterns = [pattern for row in rows for pattern in table[row].split()]
    found = [path for pattern in patterns for folder in FOLDERS for path in sorted((root / folder).glob(pattern))]
    inside = str(source.relative_to(root))
    return Room(name, inside, (inside, *dict.fromkeys(str(path.relative_to(root)) for path in found)))


def nearest(room: Room, file: str, root: Path = ROOT) -> tuple[str, ...]:
    """Where a mistake in one file of a room is noticed first: its own examples, then up to `NEAREST` files of tests.

    These import the file or what it defines, or bear its name or its folder's; those that say most of it come first.
    """
    path = root / file
    defined = [getattr(node, "name", "") for node in ast.parse(path.read_bytes()).body]
    about = {*path.with_suffix("").parts[-2:], *defined} - {"", "__init__", "phasor"}
    places = [root / place for place in room.tests[1:]]
    tests = [test for place in places for test in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]
    shared = {test: len(about & (imported(test) | words_of_path(test.relative_to(root)))) for test in tests}
    near = sorted((test for test in tests if shared[test]), key=lambda test: -shared[test])[:NEAREST]
    return (file, *(str(test.relative_to(root)) for test in near))


def imported(test: Path) -> set[str]:
    """The words of all its imports: of `from phasor_lab.lab import train`, phasor, apps, lab and train."""
    nodes = [node for node in ast.walk(ast.parse(test.read_bytes())) if isinstance(node, ast.Import | ast.ImportFrom)]
    paths = [getattr(node, "module", None) or "" for node in nodes]
    paths += [name.name for node in nodes for name in node.names]
    return {word for path in paths for word in path.split(".")}


def words_of_path(test: Path) -> set[str]:
    """Folders and words of a name, and the whole of it: of lab/test_run_folder.py, lab, run, folder and run_folder."""
    name = test.stem.removeprefix("test_")
    return {*test.parent.parts, name, *name.split("_")}


def is_inside(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")


def main(names: list[str]) -> int:
    try:
        print(*dict.fromkeys(path for name in names for path in room_named(name).tests))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
