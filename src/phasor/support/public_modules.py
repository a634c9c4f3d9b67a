"""Short public paths of modules in the wings: ``phasor.scaling`` is ``phasor.rotary.scaling``, the same object."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = __name__.split(".")[0]

# Public path -> where the module lives. `phasor.attention` is a function, too; see `_Package`.
PUBLIC = {
    "attention": "encodings.attention",
    "axes": "rotary.axes",
    "checkpoints": "tools.checkpoints",
    "configs": "models.configs",
    "doctor": "tools.doctor",
    "golden": "tools.golden",
    "heads": "encodings.heads",
    "inspect": "tools.inspect",
    "integrations": "tools.patch",
    "kernels": "rotary.kernels",
    "matrix": "rotary.matrix",
    "onnx": "tools.onnx",
    "prefixes": "models.prefixes",
    "scaling": "rotary.scaling",
    "temperature": "rotary.temperature",
    "weights": "models.weights",
}


def public_module(name: str) -> ModuleType:
    """The module behind ``phasor.<name>``; it is imported if it was not."""
    return import_module(f".{PUBLIC[name]}", PACKAGE)


class _Finder:
    """Makes ``import phasor.scaling`` and ``from phasor.scaling import YaRN`` work like any other import.

    A finder and a loader by what it has: the classes of ``importlib.abc`` take longer to import than the rest of us.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if package == PACKAGE and rest in PUBLIC:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """As any other module is made."""

    def exec_module(self, module: ModuleType) -> None:
        # Python takes what stands in sys.modules afterwards, so the module keeps its own name and is loaded once.
        sys.modules[module.__name__] = public_module(module.__name__.partition(".")[2])


class _Package(ModuleType):
    """The package, in which ``attention`` stays the function: an import of the module would put that in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "attention" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


def install() -> None:
    """Called once, by phasor's ``__init__``. In front: an empty folder of that name must not be found first."""
    sys.meta_path.insert(0, _Finder())
    sys.modules[PACKAGE].__class__ = _Package
