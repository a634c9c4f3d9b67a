"""What users import: files that an editor finds and mypy reads, with the names of ``__all__`` and no others."""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

import limited
import phasor

SRC = Path(__file__).resolve().parents[1] / "src"
# Written out: what users import must not vanish with an entry of a table.
FILES = [
    "axes", "checkpoints", "configs", "doctor", "facts", "golden", "kernels", "matrix", "onnx", "patching", "scaling",
    "span_heads", "temperature", "weights",
]  # fmt: skip
WINGS = ["caches", "encodings", "positions", "testing"]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"phasor.{name}")


def test_these_are_all():
    assert sorted(phasor.MODULES) == sorted(FILES + WINGS)
    assert sorted(phasor.NAMES) == sorted(phasor.__all__)
    assert set(phasor.__all__).isdisjoint(phasor.MODULES)  # a name is a function or a module, never both
    assert {*phasor.__all__, *phasor.MODULES, "__version__"} <= set(dir(phasor))


def test_they_are_few():
    """A new name takes the place of another one, or is argued here."""
    assert len(phasor.__all__) <= 26
    assert sum(len(module(name).__all__) for name in FILES) <= 90


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_names_that_it_says_and_no_others(name):
    words = {word for word in vars(module(name)) if word.isidentifier() and not word.startswith("__")}
    assert words == set(module(name).__all__)
    assert module(name).__all__ == sorted(set(module(name).__all__))
    tree = ast.parse((SRC / "phasor" / f"{name}.py").read_text(encoding="utf-8"))
    doc, *imports, names = tree.body
    assert ast.get_docstring(tree) and isinstance(doc, ast.Expr) and isinstance(names, ast.Assign)
    assert imports and all(isinstance(node, ast.ImportFrom) and node.level == 1 for node in imports)


@pytest.mark.parametrize("name", WINGS)
def test_a_wing_has_the_names_that_it_says(name):
    assert len(set(module(name).__all__)) == len(module(name).__all__)
    assert [word for word in module(name).__all__ if not hasattr(module(name), word)] == []


def test_a_fresh_process_needs_no_import_of_its_own():
    code = "import phasor; print(phasor.golden.check.__module__, 'torch' in __import__('sys').modules)"
    done = limited.run([sys.executable, "-c", f"import phasor, sys; print('torch' in sys.modules); {code}"], check=True)
    assert done.stdout.split() == ["False", "phasor.tools.golden.check", "True"]


def test_nothing_else_is_found():
    with pytest.raises(AttributeError, match="no attribute 'rows'"):
        _ = phasor.rows
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("phasor.rows")


SETTINGS = f"""
[mypy]
strict = true
mypy_path = {SRC}
[mypy-torch.*,numpy.*,transformers.*]
follow_imports = skip
[mypy-phasor.*]
ignore_errors = true
"""


SLIPS = ["phasor.rotat", "phasor.scaling.Yarn", "phasor.golden.torch", "phasor.attention.Mask"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy, as strict as it is, finds in two files of a user: one imports every name, one has slips."""
    folder = tmp_path_factory.mktemp("user")
    lines = ["import phasor", f"from phasor import {', '.join(phasor.__all__)}, __version__"]
    for name in FILES + WINGS:
        lines += [f"from phasor.{name} import {word} as {name}_{word}" for word in module(name).__all__]
        lines += [f"print(phasor.{name}.{word})" for word in module(name).__all__[:1]]
    lines += ["reveal_type(phasor.scaling.Linear)", "reveal_type(phasor.apply_rotary_qk)"]
    (folder / "settings.ini").write_text(SETTINGS)
    (folder / "names.py").write_text("\n".join(lines))
    (folder / "slips.py").write_text("\n".join(["import phasor", *SLIPS]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "settings.ini",
        "--hide-error-context",
        "names.py",
        "slips.py",
    ]
    return limited.run(command, cwd=folder).stdout.splitlines()


def test_a_checker_of_types_finds_every_name(found):
    first, second = (line for line in found if line.startswith("names.py"))  # and no error
    assert "-> phasor.rotary.scaling.linear.Linear" in first and "Any" not in first  # not taken for anything
    assert "rotation: phasor.rotary.rotation.Rotation" in second


def test_a_checker_of_types_finds_a_slip(found):
    slips = [line for line in found if line.startswith("slips.py")]
    assert [line.split(": ")[0] for line in slips] == [f"slips.py:{at}" for at in range(2, 6)], slips
    assert all("has no attribute" in line for line in slips) and found[-1].startswith("Found 4 errors in 1 file")
