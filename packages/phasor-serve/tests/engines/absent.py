"""Import an engine's package without what it needs besides torch and transformers: absent modules become empty ones."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any
from unittest.mock import MagicMock


class Empty(types.ModuleType):
    """A module in which every name exists: a class for capitalised names, else an object that takes everything."""

    __path__ = ()
    __file__ = "/nowhere/__init__.py"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _class(name) if name[:1].isupper() and not name.isupper() else MagicMock(name=name)
        setattr(self, name, made)
        return made


def _class(name: str) -> type:
    def schema(cls: type, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()

    members = {
        "__init__": lambda self, *args, **named: None,
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "__get_pydantic_core_schema__": classmethod(schema),
    }
    return type(name, (), members)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for what ``package`` imports and nobody has, and for those of its own ``parts`` that are not wanted.

    ``missing``: modules that shall stay missing, because the package asks for them to learn about the machine.
    """

    def __init__(self, package: str, missing: tuple[str, ...] = (), parts: tuple[str, ...] = ()) -> None:
        self.package, self.missing, self.parts = package, missing, parts
        self.made: set[str] = set()
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        unwanted = any(name == part or name.startswith(f"{part}.") for part in self.parts)
        if not unwanted and name.rpartition(".")[0] not in self.made:
            asked = _asking() == self.package or top == "torchvision"
            if not asked or top in self.missing or (top == self.package and not name.endswith("_C")):
                return None
            if top != self.package and self._elsewhere(name):
                return None
        self.made.add(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _elsewhere(self, name: str) -> bool:
        sys.meta_path.remove(self)
        try:
            return "." in name or importlib.util.find_spec(name) is not None
        finally:
            sys.meta_path.insert(0, self)

    def create_module(self, spec: Any) -> types.ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _asking() -> str:
    """The package whose code imports."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]
