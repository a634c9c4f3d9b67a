"""Modules are imported from where users know them, whatever wing they live in."""

import importlib
import sys

import pytest

import limited
import phasor
from phasor.support.public_modules import PUBLIC

# Written out: what users import must not vanish with an entry of the table.
NAMES = [
    "attention", "axes", "checkpoints", "configs", "doctor", "golden", "heads", "inspect", "integrations",
    "kernels", "matrix", "onnx", "prefixes", "scaling", "temperature", "weights",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_public_module_is_the_one_of_its_wing(name):
    assert importlib.import_module(f"phasor.{name}") is importlib.import_module(f"phasor.{PUBLIC[name]}")
    assert name == "attention" or getattr(phasor, name) is sys.modules[f"phasor.{name}"]


def test_attention_is_the_function_and_its_module_can_be_imported_from():
    from phasor.attention import KVCache, Mask

    assert callable(phasor.attention) and KVCache is phasor.KVCache
    assert Mask.__module__ == "phasor.encodings.attention.mask"


def test_nothing_else_is_found():
    assert sorted(PUBLIC) == NAMES
    for name in ("rows", "scaling.rows", "tools.golden.rows"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"phasor.{name}")
    with pytest.raises(AttributeError, match="no attribute 'rows'"):
        _ = phasor.rows


def test_a_fresh_process_needs_no_import_of_its_own():
    code = "import phasor; print(phasor.golden.check.__module__, 'golden' in dir(phasor))"
    assert limited.run([sys.executable, "-c", code], check=True).stdout.split() == [
        "phasor.tools.golden.check",
        "True",
    ]


def test_an_empty_folder_of_that_name_is_not_taken_for_it(tmp_path):
    """What an older checkout leaves behind: a folder of bytecode without a module."""
    (tmp_path / "golden" / "__pycache__").mkdir(parents=True)
    code = f"import phasor; phasor.__path__.insert(0, {str(tmp_path)!r}); from phasor.golden import write"
    limited.run([sys.executable, "-c", code], check=True)
