"""The houses of DESIGN.md: a module imports only from lower floors. And importing phasor costs next to nothing."""

import ast
import os
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import limited
from house import PACKAGES, ROOT

SRC = ROOT / "src"

# What users import: names of the wings, and nothing of its own.
PUBLIC = (
    "axes checkpoints configs doctor facts golden kernels matrix onnx patching scaling span_heads temperature weights"
)

# The tables of DESIGN.md, section "The house". A wing is a file or a folder directly inside a package.
HOUSES = {
    "phasor": [
        "support",
        "rotary positions",
        "eye encodings",
        "models",
        "tools caches",
        "testing",
        f"cli {PUBLIC}",
        "__main__",
    ],
    "phasor_lab": ["processes", "atlas run_folder running", "fitting studying", "lab ner", "demo", "cli"],
    "phasor_serve": ["engines", "planner", "cli"],
}
FLOORS = {
    package: {wing: floor for floor, wings in enumerate(floors) for wing in wings.split()}
    for package, floors in HOUSES.items()
}
# Which packages each may import beside itself: phasor none, the others phasor.
BELOW = {package: {"phasor"} - {package} for package in HOUSES}

# Inside a wing of phasor the same holds for its files and folders, where they are many.
INSIDE = {
    "rotary": [
        "fixed_point layout",
        "phase",
        "frequencies stacked table_forms temperature",
        "scaling axes",
        "spec",
        "tables",
        "row_lengths",
        "rotation model_rotary",
        "kernels",
        "apply matrix",
    ],
    "eye": [
        "names tape tiny",
        "linear place",
        "attention matrices",
        "operator",
        "grid",
        "added bias frequencies layout likeness",
        "turning",
        "sites",
        "arithmetic axes call instead scale temperature turned_by",
        "experiments inputs observation spec",
        "agreement stretch",
        "observe",
    ],
    "encodings": [
        "base",
        "by_distance cape complex_embedding floater grouped learned none randomised",
        "alibi rotary shaw sinusoidal t5",
        "abacus bipe by_coordinates cope dape deberta fire fox high_frequency kerple pope sandwich",
        "stick_breaking tempered tisa transformer_xl tupe xpos",
        "fope interleaved liere path rope_mixed string_rotation",
        "attention heads",
    ],
    "models": [
        "weights",
        "reading",
        "prefixes without_rotation",
        "rules",
        "rows",
        "configs published_lengths",
        "rotary_of",
    ],
    "caches": ["lengths tree origin", "tokens", "ledger", "model_cache"],
    "tools": ["inspect checkpoints patch fuse", "golden", "onnx doctor"],
}

HEAVY = ["transformers", "tokenizers", "matplotlib", "typer", "rich", "onnx", "onnxscript", "triton"]


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_modules(path: Path, package: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, way to the module) for every import of `path` from inside `package`; () is the package itself."""
    folder = [package.name, *path.relative_to(package).parts[:-1]]
    for node in imports(path):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node.lineno, ()) for name in names if name[0] == package.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            if (node.module or "").split(".")[0] == package.name:
                yield node.lineno, ()
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1]
            target = tuple(base[1:] + (node.module.split(".") if node.module else []))
            if not base:
                yield node.lineno, ()
            else:
                inside = package.joinpath(*target)
                names = [alias.name for alias in node.names]
                yield from ((node.lineno, (*target, name) if is_module(inside, name) else target) for name in names)


def is_module(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


def imported_packages(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """(line, name) for every import of another package of this project."""
    for node in imports(path):
        level, module = getattr(node, "level", 0), getattr(node, "module", None)
        names = [module] if module else [alias.name for alias in node.names]
        tops = {name.split(".")[0] for name in names if not level}
        yield from ((node.lineno, top) for top in tops & (HOUSES.keys() - {package.name}))


def complaint(package: str, importer: tuple[str, ...], target: tuple[str, ...]) -> str | None:
    """Why `importer` may not import `target`; None when it may. The root's __init__ sees every floor."""
    if not target:
        return "imports inside the package are relative and name the module that defines the thing"
    if importer == ("__init__",):
        return None
    if importer[0] != target[0]:
        return above(FLOORS[package], "", importer[0], target[0])
    wing = importer[0]
    if package != "phasor" or wing not in INSIDE or len(target) < 2 or importer[1] in ("__init__", target[1]):
        return None
    floors = {room: floor for floor, rooms in enumerate(INSIDE[wing]) for room in rooms.split()}
    return above(floors, f"{wing}/", importer[1], target[1])


def above(floors: dict[str, int], place: str, importer: str, target: str) -> str | None:
    """Why a room may not import another one of its house or wing."""
    for room in (importer, target):
        if room not in floors:
            return f"{place}{room} stands on no floor; add it to DESIGN.md and to this file"
    if floors[target] < floors[importer] or target == importer:
        return None
    return f"{place}{importer} (floor {floors[importer]}) must not import {place}{target} (floor {floors[target]})"


def violations(package: Path) -> list[str]:
    """Every breach of the floors in the package at `package`, as `file:line: reason`."""
    breaches = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        importer = place.with_suffix("").parts
        if importer != ("__init__",) and importer[0] not in FLOORS[package.name]:
            breaches.append(f"{place}: {importer[0]} stands on no floor; add it to DESIGN.md and to this file")
            continue
        for line, target in imported_modules(path, package):
            if reason := complaint(package.name, importer, target):
                breaches.append(f"{place}:{line}: {reason}")
        for line, other in imported_packages(path, package):
            if other not in BELOW[package.name]:
                breaches.append(f"{place}:{line}: {package.name} must not import {other}")
    return breaches


def test_the_houses_are_the_packages():
    assert [Path(path).name for path in PACKAGES] == list(HOUSES)


@pytest.mark.parametrize("path", PACKAGES)
def test_every_module_imports_only_from_lower_floors(path):
    package = ROOT / path
    assert (package / "__init__.py").is_file()
    assert not (breaches := violations(package)), "\n".join(breaches)


@pytest.mark.parametrize("path, fewest", list(zip(PACKAGES, (250, 60, 15), strict=True)))
def test_no_files_import_each_other_in_a_circle(path, fewest):
    """Not for type checking either. A package's __init__ hands on names of its files, so it is no file of the graph."""
    package = ROOT / path
    files = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    graph: dict[str, set[str]] = {}
    for path in files:
        targets = {package.joinpath(*target).with_suffix(".py") for _, target in imported_modules(path, package)}
        graph[str(path)] = {str(target) for target in targets if target.is_file() and target != path}
    assert len(graph) > fewest and sum(map(len, graph.values())) > fewest
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_few_names_and_each_on_a_floor():
    for package in map(Path, PACKAGES):
        names = {path.stem for path in (ROOT / package).iterdir() if path.name not in ("py.typed", "__pycache__")}
        assert names == {*FLOORS[package.name], "__init__"} and len(names - set(PUBLIC.split())) <= 14
    for wing, floors in INSIDE.items():
        rooms = {path.stem for path in (SRC / "phasor" / wing).iterdir() if path.suffix in ("", ".py")}
        assert rooms - {"__init__", "__pycache__"} == set(" ".join(floors).split()), wing


def tree(folder: Path, place: str, source: str) -> Path:
    """A package with a few empty rooms, and `source` written at `place`."""
    package = folder / "phasor"
    rooms = [f"{wing}/{room}.py" for wing in INSIDE for floor in INSIDE[wing] for room in floor.split()]
    files = {
        f"{wing}/__init__.py": "" for wing in FLOORS["phasor"] if wing not in ("__main__", *PUBLIC.split())
    } | dict.fromkeys(rooms, "")
    for name, text in (files | {"__init__.py": "", place: source}).items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


INSIDE_ONLY = "imports inside the package are relative"


@pytest.mark.parametrize(
    "place, source, reason",
    [
        ("support/checks.py", "from ..rotary.spec import x", "support (floor 0) must not import rotary (floor 1)"),
        ("support/checks.py", "from .. import rotary", "support (floor 0) must not import rotary (floor 1)"),
        ("positions/rows.py", "from ..rotary import spec", "positions (floor 1) must not import rotary (floor 1)"),
        ("eye/tape.py", "from ..encodings import t5", "eye (floor 2) must not import encodings (floor 2)"),
        ("eye/tape.py", "from ..models import x", "eye (floor 2) must not import models (floor 3)"),
        ("tools/golden.py", "def f():\n    from ..cli import main", "golden.py:2: tools (floor 4) must not import cli"),
        ("rotary/phase.py", "from .spec import x", "rotary/phase (floor 1) must not import rotary/spec (floor 4)"),
        ("rotary/phase.py", "from . import spec", "rotary/phase (floor 1) must not import rotary/spec (floor 4)"),
        ("rotary/layout.py", "from .fixed_point import x", "must not import rotary/fixed_point (floor 0)"),
        ("rotary/scaling/deep/a.py", "from ...spec import x", "a.py:1: rotary/scaling (floor 3) must not import"),
        ("tools/onnx.py", "from .doctor import x", "tools/onnx (floor 2) must not import tools/doctor (floor 2)"),
        (
            "tools/doctor.py",
            "from ..tools.onnx import x",
            "tools/doctor (floor 2) must not import tools/onnx (floor 2)",
        ),
        ("rotary/spec.py", "import phasor.phase", f"spec.py:1: {INSIDE_ONLY}"),
        ("rotary/spec.py", "from phasor import phase", f"spec.py:1: {INSIDE_ONLY}"),
        ("__init__.py", "from phasor.rotary import x", f"__init__.py:1: {INSIDE_ONLY}"),
        ("__init__.py", "from phasor_serve import plan", "__init__.py:1: phasor must not import phasor_serve"),
        ("cli.py", "import torch, phasor_serve.engines", "cli.py:1: phasor must not import phasor_serve"),
        ("rotary/spec.py", "from .. import RotarySpec", f"spec.py:1: {INSIDE_ONLY} and name the module"),
        ("rotary/spec.py", "from ...outside import x", f"spec.py:1: {INSIDE_ONLY}"),
        ("cli/app.py", "from ..scaling import x", "cli (floor 6) must not import scaling (floor 6)"),
        ("utils.py", "", "utils.py: utils stands on no floor"),
        ("rotary/utils.py", "from .phase import x", "rotary/utils stands on no floor"),
    ],
)
def test_a_bad_import_is_found(tmp_path, place, source, reason):
    (breach,) = violations(tree(tmp_path, place, source))
    assert reason in breach


@pytest.mark.parametrize(
    "place, source",
    [
        ("rotary/spec.py", "import torch\nfrom .phase import x\nfrom .scaling.yarn import y\nfrom . import axes"),
        ("rotary/scaling/yarn.py", "from . import yarn\nfrom .. import phase\nfrom .linear import x"),
        ("encodings/attention/call.py", "from ..alibi import x\nfrom ...rotary.spec import y"),
        ("cli.py", "from .tools.onnx import x\nfrom .tools import doctor\nfrom .tools.golden.case import y"),
        ("tools/onnx/deep/a.py", "from ...golden.case import x\nfrom ....rotary.spec import y\nfrom .b import z"),
        ("__init__.py", "from .rotary.apply import x\nfrom .tools import inspect"),
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


# What only reads configs or moves bytes starts in a fifth of the time that torch takes to be imported.
WITHOUT_TORCH = {
    "import": "import phasor",
    "read a config": "import phasor; phasor.read_config({CONFIG})",
    "scaled": "import phasor; phasor.read_config({CONFIG} | {'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}})",
    "list of commands": "from phasor.cli.app import app_of; app_of()",
    "inspect --brief": "from phasor.tools.inspect.view import read_view, view_line; view_line(read_view({CONFIG}))",
    "convert": "import phasor.checkpoints, sys; sys.path.insert(0, {TESTS}); from checkpoints import synthetic; "
    "from pathlib import Path; source, target = Path({FOLDER}, 'source'), Path({FOLDER}, 'target'); "
    "synthetic.write(source, layers=1, hidden=32, heads=4, kv_heads=2, wide=64); "
    "phasor.checkpoints.convert(source, target, to='interleaved'); "
    "phasor.checkpoints.detect(source)",
}


@pytest.mark.parametrize("way", WITHOUT_TORCH)
def test_what_rotates_nothing_needs_no_torch(way, tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    code = WITHOUT_TORCH[way]
    for name, value in (("CONFIG", config), ("TESTS", str(SRC.parent / "tests")), ("FOLDER", str(tmp_path))):
        code = code.replace("{" + name + "}", repr(value))
    code = f"import sys; sys.modules['torch'] = sys.modules['transformers'] = None; {code}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))}
    limited.run([sys.executable, "-c", code], env=env, check=True)


# What is loaded before the first byte is copied is on top of the copy: numpy is loaded meanwhile; a bar is drawn, by
# rich, of what takes longer than a second.
STARTED = """
import sys
from phasor.cli import main
sys.argv = ["phasor", "convert", {source!r}, "--to", "interleaved", "--dry-run"]
try:
    main()
finally:
    print(*sorted({{"torch", "numpy", "rich", "phasor.cli.doctor"}} & sys.modules.keys()))
"""


def test_a_conversion_is_planned_with_little(tmp_path):
    from checkpoints import synthetic

    synthetic.write(tmp_path / "source", layers=1, hidden=32, heads=4, kv_heads=2, wide=64)
    code = STARTED.format(source=str(tmp_path / "source"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))}
    assert limited.run([sys.executable, "-c", code], env=env, check=True).stdout.splitlines()[-1] == ""
