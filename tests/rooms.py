"""Which tests belong to which room: `make test ROOM=tools/doctor` and `make mutants ROOM=tools/doctor` read this table.

    python tests/rooms.py rotary/kernels     the paths for pytest

A room is a folder or a file of src/phasor. The examples in its docstrings are always among its tests.
"""

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# Room: its tests, as patterns below tests/.
TESTS = {
    "support": "runs core/test_errors.py core/test_spec.py test_interrupt.py test_processes.py test_public_modules.py "
    "test_quiet.py",
    "support/processes": "lab/test_train.py",
    "support/tracing": "core/test_default_device.py core/test_launches.py",
    "rotary": "core encodings theory parallel",
    "rotary/kernels/native": "native",
    "rotary/kernels/triton": "gpu",
    "positions": "positions core/test_positions.py core/test_formats.py",
    "encodings": "encodings heads",
    "models": "configs models",
    "caches": "caches",
    "tools/patch": "integrations",
    "tools/doctor": "doctor",
    "tools/running": "fit study",
    "tools/fit": "fit",
    "tools/study": "study",
    "tools/golden": "golden",
    "tools/onnx": "exported",
    "tools/inspect": "inspect",
    "tools/checkpoints": "checkpoints",
    "serving": "engines planner",
    "apps/lab": "lab parallel",
    "apps/ner": "ner",
    "apps/run_folder": "runs",
    "apps/bench": "bench",
    "apps/explorer": "explorer",
    "apps/atlas": "atlas",
    "apps/demo": "test_readme.py inspect/test_demo.py",
    "testing": "doctor/test_testing.py",
    "cli": "*/test_cli.py */test_command.py */test_terminal.py test_interrupt.py test_output.py",
    "__main__": "*/test_cli.py",
}

# Folders that compare all rooms at once, by `make conformance`.
OF_NO_ROOM = {"conformance"}


class Room(NamedTuple):
    name: str
    source: str  # below the project
    tests: tuple[str, ...]  # paths below the project; the first is the source, for its examples


def room_named(name: str, root: Path = ROOT, table: dict[str, str] = TESTS) -> Room:
    """The tests of a room: those of its own row, of all rows below it, and of the nearest row above it.

    Raises ``ValueError`` for what is no folder or file of the package, and for what no row speaks of.
    """
    name = name.strip("/")
    package = root / "src" / "phasor"
    source = next((path for path in (package / name, package / f"{name}.py") if name and path.exists()), None)
    rows = [row for row in table if is_inside(row, name)]
    rows += sorted((row for row in table if row != name and is_inside(name, row)), key=len)[-1:]
    if source is None or not rows:
        raise ValueError(f"a room must be a folder or file of src/phasor, such as {', '.join(table)}; not {name!r}")
    patterns = [pattern for row in rows for pattern in table[row].split()]
    paths = [str(path.relative_to(root)) for pattern in patterns for path in sorted((root / "tests").glob(pattern))]
    inside = str(source.relative_to(root))
    return Room(name, inside, (inside, *dict.fromkeys(paths)))


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
