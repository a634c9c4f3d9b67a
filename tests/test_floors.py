"""The floors of DESIGN.md: a module imports only from lower ones. And importing phasor costs next to nothing."""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import limited

SRC = Path(__file__).resolve().parents[1] / "src"

# The table of DESIGN.md, section "Floors". A unit is a file or a folder directly inside the package, or inside `apps`.
FLOORS = {
    unit: floor
    for floor, units in enumerate(
        [
            "interrupt lock checks errors names processes quiet tracing phase stacked layout forms frequencies "
            "schemes whole_files apps/__init__",
            "scaling axes temperature",
            "spec",
            "tables planes rotation positions weights",
            "kernels prefixes",
            "apply matrix",
            "encodings attention heads reading",
            "models",
            "configs",
            "engines inspect integrations golden bench onnx checkpoints apps/runs",
            "planner doctor testing apps/lab apps/ner",
            "apps/demo",
            "cli __main__",
        ]
    )
    for unit in units.split()
}

APPS = "apps"

# The only imports between two units of one floor.
SAME_FLOOR = {
    ("frequencies", "phase"),
    ("layout", "checks"),
    ("forms", "checks"),
    ("forms", "layout"),
    ("forms", "tracing"),
    ("planes", "tables"),
    ("stacked", "phase"),
    ("rotation", "planes"),
    ("rotation", "tables"),
    ("attention", "encodings"),
    ("onnx", "golden"),
    ("bench", "integrations"),
    ("testing", "doctor"),
    ("__main__", "cli"),
}

HEAVY = ["transformers", "tokenizers", "matplotlib", "typer", "rich", "onnx", "onnxscript", "triton"]


def imported_units(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """(line, unit) for every import of `path` from inside `package`; "" is the package itself, written in any way."""
    folder = [package.name, *path.relative_to(package).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node.lineno, "") for name in names if name[0] == package.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if (node.module or "").split(".")[0] == package.name:
                yield node.lineno, ""
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1]
            target = base + (node.module.split(".") if node.module else [])
            if not base:
                yield node.lineno, ""
            elif target[1:] not in ([], [APPS]):
                yield node.lineno, unit_of(target[1:])
            else:
                inside = package.joinpath(*target[1:])
                names = [alias.name for alias in node.names]
                yield from (
                    (node.lineno, unit_of([*target[1:], name]) if is_unit(inside, name) else "") for name in names
                )


def unit_of(parts: Sequence[str]) -> str:
    """The unit of a module inside the package, from the names on the way to it."""
    return "/".join(parts[: 1 + (parts[0] == APPS)])


def is_unit(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


def complaint(importer: str, target: str) -> str | None:
    """Why `importer` may not import `target`; None when it may. The root's __init__ (importer "") sees every floor."""
    if target == "":
        return "imports inside the package are relative and name the module that defines the thing"
    if target not in FLOORS:
        return f"{target} stands on no floor; add it to DESIGN.md and to FLOORS"
    if importer in ("", target) or (importer, target) in SAME_FLOOR or FLOORS[target] < FLOORS[importer]:
        return None
    return f"{importer} (floor {FLOORS[importer]}) must not import {target} (floor {FLOORS[target]})"


def violations(package: Path) -> list[str]:
    """Every breach of the floors in the package at `package`, as `file:line: reason`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        importer = "" if place == Path("__init__.py") else unit_of(place.with_suffix("").parts)
        if importer and importer not in FLOORS:
            found.append(f"{place}: {importer} stands on no floor; add it to DESIGN.md and to FLOORS")
            continue
        for line, target in imported_units(path, package):
            reason = complaint(importer, target)
            if reason:
                found.append(f"{place}:{line}: {reason}")
    return found


def test_every_module_imports_only_from_lower_floors():
    package = SRC / "phasor"
    assert (package / "__init__.py").is_file()
    assert not (found := violations(package)), "\n".join(found)


def tree(folder: Path, place: str, source: str) -> Path:
    """A package of empty modules, one per floor and a folder, with `source` written at `place`."""
    package = folder / "phasor"
    files = {f"{unit}.py": "" for unit in FLOORS if unit not in ("scaling", "encodings")}
    files |= {"__init__.py": "", "scaling/__init__.py": "", "scaling/yarn.py": "", "encodings/__init__.py": ""}
    for name, text in (files | {place: source}).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    "place, source, reason",
    [
        ("phase.py", "from .spec import RotarySpec", "phase.py:1: phase (floor 0) must not import spec (floor 2)"),
        ("phase.py", "from . import spec", "phase.py:1: phase (floor 0) must not import spec (floor 2)"),
        ("phase.py", "from .layout import x", "phase.py:1: phase (floor 0) must not import layout (floor 0)"),
        ("encodings/t5.py", "from ..attention import x", "encodings/t5.py:1: encodings (floor 6) must not import"),
        (
            "apply.py",
            "def f():\n    from .cli import main",
            "apply.py:2: apply (floor 5) must not import cli (floor 12)",
        ),
        ("scaling/yarn.py", "from .. import apply", "yarn.py:1: scaling (floor 1) must not import apply (floor 5)"),
        ("scaling/deep/a.py", "from ...spec import x", "a.py:1: scaling (floor 1) must not import spec (floor 2)"),
        ("scaling/__init__.py", "from ..spec import x", "scaling (floor 1) must not import spec (floor 2)"),
        ("spec.py", "import phasor.phase", "spec.py:1: imports inside the package are relative"),
        ("spec.py", "from phasor import phase", "spec.py:1: imports inside the package are relative"),
        ("__init__.py", "from phasor.phase import x", "__init__.py:1: imports inside the package are relative"),
        (
            "spec.py",
            "from . import RotarySpec",
            "spec.py:1: imports inside the package are relative and name the module",
        ),
        ("spec.py", "from ..outside import x", "spec.py:1: imports inside the package are relative"),
        ("utils.py", "", "utils.py: utils stands on no floor"),
        ("apps/ner.py", "from .lab import x", "ner.py:1: apps/ner (floor 10) must not import apps/lab (floor 10)"),
        ("apps/ner.py", "from . import lab", "ner.py:1: apps/ner (floor 10) must not import apps/lab (floor 10)"),
        ("apps/lab.py", "from ..apps.ner import x", "apps/lab (floor 10) must not import apps/ner (floor 10)"),
        ("apps/lab.py", "from .. import cli", "lab.py:1: apps/lab (floor 10) must not import cli (floor 12)"),
        ("spec.py", "from .apps.runs import x", "spec.py:1: spec (floor 2) must not import apps/runs (floor 9)"),
        ("apps/mail.py", "", "mail.py: apps/mail stands on no floor"),
        ("spec.py", "from .utils import x", "spec.py:1: utils stands on no floor"),
    ],
)
def test_a_bad_import_is_found(tmp_path, place, source, reason):
    (found,) = violations(tree(tmp_path, place, source))
    assert reason in found


@pytest.mark.parametrize(
    "place, source",
    [
        ("spec.py", "import torch\nfrom .phase import x\nfrom .scaling.yarn import y\nfrom . import axes"),
        ("scaling/__init__.py", "from .yarn import x\nfrom ..phase import y"),
        ("scaling/yarn.py", "from . import yarn\nfrom .. import phase\nfrom .linear import x"),
        ("attention/call.py", "from ..encodings.alibi import x"),
        ("cli.py", "from .apps.lab import x\nfrom .apps import demo\nfrom .apps.runs.lock import y"),
        ("apps/ner/deep/a.py", "from ...runs.lock import x\nfrom ....spec import y\nfrom .b import z"),
        ("apps/demo.py", "from .lab import x\nfrom ..inspect import y"),
        ("__init__.py", "from .apply import x\nfrom . import inspect"),
    ],
)
def test_a_good_import_is_left_alone(tmp_path, place, source):
    assert violations(tree(tmp_path, place, source)) == []


IMPORT_AND_REPORT = f"""
import sys
count = 0
def counting(frame, event, argument):
    global count
    count += 1
sys.setprofile(counting)
import torch
of_torch, count = count, 0
import phasor
sys.setprofile(None)
print(count / of_torch, *sorted(set({HEAVY}) & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def fresh_import() -> tuple[float, list[str]]:
    """What `import phasor` adds to `import torch`, as a share of its calls of functions; heavy modules loaded.

    In a new process. Calls, not seconds: they are as many on every machine, and the shares of both are alike.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, "-c", IMPORT_AND_REPORT]
    share, *heavy = limited.run(command, env=env, check=True).stdout.split()
    return float(share), heavy


def test_importing_phasor_loads_nothing_heavy(fresh_import):
    assert fresh_import[1] == []


def test_importing_phasor_calls_few_functions(fresh_import):
    assert 0 < fresh_import[0] <= 0.1
