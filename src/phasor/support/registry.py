"""Tables that others may add to: a scaling, axes, a kernel, a model, an engine, a format."""

from collections.abc import Iterable, MutableMapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

T = TypeVar("T")


def register(table: MutableMapping[str, T], kind: str, name: Any, entry: T) -> None:
    """Add ``entry`` to a table under a name that is free, for this process.

    Raises ``ValueError`` for something that is no name, and for one that is taken (by another entry: the same one
    may be added again, as a module that is imported twice does).

    >>> table = {"linear": float}
    >>> register(table, "scaling", "linear", int)
    Traceback (most recent call last):
    ValueError: the name of this scaling must be free, and 'linear' is taken; choose another name
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"the name of this {kind} must be a word, got {name!r}")
    if table.get(name, entry) is not entry:
        raise ValueError(f"the name of this {kind} must be free, and {name!r} is taken; choose another name")
    table[name] = entry


def import_all(package: str, folder: Iterable[str], first: Iterable[str] = ()) -> None:
    """Import each file of a package, so that what it registers is there; those of ``first`` before all others."""
    for name in dict.fromkeys((*first, *(file.name for file in iter_modules(folder)))):
        import_module(f"{package}.{name}")


def register_scheme(table: MutableMapping[str, Any], kind: str, cls: Any, base: type) -> None:
    """`register` by its ``name`` what a spec can hold, print, write down and compare: a frozen dataclass."""
    parameters = getattr(cls, "__dataclass_params__", None)
    if not isinstance(cls, type) or not issubclass(cls, base) or parameters is None or not parameters.frozen:
        raise ValueError(f"a {kind} must be a frozen dataclass that inherits from {base.__name__}, got {cls!r}")
    if abstract := sorted(getattr(cls, "__abstractmethods__", ())):
        raise ValueError(f"a {kind} must define {', '.join(abstract)}, and {cls.__name__} does not")
    register(table, kind, getattr(cls, "name", None), cls)
