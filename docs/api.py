"""Write docs/api/: every public name of phasor with its signature and docstring, one page per module.

python docs/api.py            writes the pages
"""

import ast
import importlib
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "api"
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "packages/phasor-lab/src", "packages/phasor-serve/src")]

PLACES = (
    "phasor", "phasor.axes", "phasor.scaling", "phasor.temperature", "phasor.positions", "phasor.matrix",
    "phasor.encodings", "phasor.span_heads", "phasor.kernels", "phasor.configs", "phasor.facts",
    "phasor.golden", "phasor.onnx", "phasor.patching", "phasor.weights", "phasor.checkpoints", "phasor.doctor",
    "phasor.caches", "phasor.testing",
    "phasor_lab", "phasor_lab.studying", "phasor_lab.fitting", "phasor_lab.lab", "phasor_lab.ner",
    "phasor_serve", "phasor_serve.engines", "phasor_serve.planner",
)  # fmt: skip
BY_HAND = "Written by `python docs/api.py` from the docstrings, whose examples are tests; not edited by hand."
WIDTH = 100  # of a signature in one line


@cache
def modules() -> dict[str, ModuleType]:
    return {place: importlib.import_module(place) for place in PLACES}


@cache
def named() -> frozenset[int]:
    """What has an entry."""
    return frozenset(id(thing) for module in modules().values() for thing in public(module).values())


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    homes: dict[int, str] = {}
    texts = {f"{place}.md": _page(place, module, homes) for place, module in modules().items()}
    rows = [f"- [{place}]({place}.md): {_prose(module.__doc__)}" for place, module in modules().items()]
    rows = [row.split("\n\n")[0].replace("\n", " ") for row in rows]
    return {
        "README.md": f"# API reference\n\nWhat may be imported, by module. {BY_HAND}\n\n" + "\n".join(rows) + "\n",
        **texts,
    }


def public(module: ModuleType) -> dict[str, Any]:
    """The names of its ``__all__``; else the functions and classes that are made in it."""
    own = [
        n for n, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__ and n[0] != "_"
    ]
    names = sorted(getattr(module, "__all__", own), key=lambda name: (name.lower(), name))
    return {name: getattr(module, name) for name in names}


def _page(place: str, module: ModuleType, homes: dict[int, str]) -> str:
    """``homes``: what has an entry already -> its place; a second one names the first."""
    parts, named = [f"# {place}", BY_HAND, _prose(module.__doc__)], public(module)
    inner = [f"[{name}]({place}.{name}.md)" for name in named if f"{place}.{name}" in PLACES]
    parts += [f"Pages of their own: {', '.join(inner)}."] if inner else []
    for name, thing in named.items():
        plain = inspect.unwrap(thing) if callable(thing) else thing
        if isinstance(thing, ModuleType):
            continue
        if home := homes.get(id(plain)):
            parts += [f"## {name}", f"The same as in [{home}]({home}.md#{name.lower()})."]
        elif inspect.isclass(plain) or inspect.isfunction(plain):
            homes[id(plain)] = place
            parts += _entry(name, plain)
        else:
            parts += [f"## {name}", _value(thing)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield from (f"## {name}", _signature(name, thing), _prose(thing.__doc__))
    for method, value in _methods(thing) if inspect.isclass(thing) else ():
        plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not method.startswith("_") and inspect.isfunction(plain) and plain.__doc__:
            how = "A property." if isinstance(value, property) else _signature(method, plain)
            yield from (f"### {name}.{method}", how, _prose(plain.__doc__))


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    """Its own ones, and those of bases that have no entry."""
    hidden = [kind for kind in thing.__mro__[1:] if kind.__module__.startswith("phasor") and id(kind) not in named()]
    yield from {k: v for kind in (*hidden[::-1], thing) for k, v in vars(kind).items()}.items()


def _value(thing: Any) -> str:
    """What is neither a class nor a function."""
    several = thing if isinstance(thing, dict | tuple | list | frozenset) else ()
    words = [getattr(word, "name", word) for word in getattr(thing, "__args__", several)]
    if words and all(isinstance(word, str) for word in words):
        return f"One of {', '.join(f'`{word}`' for word in words)}."
    if get_origin(thing) is not None:
        return f"The type `{_type(thing)}`."
    return f"`{thing!r}`" if isinstance(thing, int | float | str) else _prose(type(thing).__doc__)


def _type(thing: Any) -> str:
    """A type as it is written: ``int | tuple[int, int]``."""
    arguments = [_type(argument) for argument in get_args(thing)]
    if get_origin(thing) in (Union, UnionType):
        return " | ".join(arguments)
    name = "None" if thing is NoneType else getattr(get_origin(thing) or thing, "__name__", repr(thing))
    return f"{name}[{', '.join(arguments)}]" if arguments else name


def _signature(name: str, thing: Any) -> str:
    """As its author wrote it: the parameters of a function or of ``__init__``, or the fields of a dataclass."""
    tree, back = _tree(thing), ""
    if isinstance(tree, ast.ClassDef):
        made = next(
            (c for c in thing.__mro__[:-1] if "__init__" in vars(c) and inspect.isfunction(vars(c)["__init__"])), None
        )
        parts = _fields(thing) if is_dataclass(thing) else _parameters(_tree(made.__init__).args) if made else []
    else:
        parts, back = _parameters(tree.args), f" -> {ast.unparse(tree.returns)}" if tree.returns else ""
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){back}"
    return f"```python\n{line}\n```"


def _tree(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _fields(thing: type) -> list[str]:
    found: dict[str, str] = {}
    for kind in thing.__mro__[::-1]:
        if is_dataclass(kind):
            for line in _tree(kind).body:
                if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation):
                    default = "" if line.value is None else f" = {ast.unparse(line.value)}"
                    found[ast.unparse(line.target)] = f": {ast.unparse(line.annotation)}{default}"
    return [name + rest for name, rest in found.items()]


def _parameters(args: ast.arguments) -> list[str]:
    first = [*args.posonlyargs, *args.args]
    pairs = list(zip_longest(first[::-1], args.defaults[::-1]))[::-1]
    found = [_parameter(*pair) for pair in pairs]
    if args.posonlyargs:
        found.insert(len(args.posonlyargs), "/")
    if args.vararg or args.kwonlyargs:
        found.append("*" + (ast.unparse(args.vararg) if args.vararg else ""))
    found += [_parameter(*pair) for pair in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    found += [f"**{ast.unparse(args.kwarg)}"] if args.kwarg else []
    return [part for part in found if part not in ("self", "cls")]


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if arg.annotation else "="
    return ast.unparse(arg) + ("" if default is None else equals + ast.unparse(default))


def _prose(doc: str | None) -> str:
    """A docstring as Markdown: examples are fenced, and names are code."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc or ""))
    found: list[str] = []
    for block in blocks:
        text, mark, example = block.partition(">>>")
        if found and found[-1].endswith("::") and block.startswith("    "):
            found[-1] = found[-1][:-1]
            found.append(f"```python\n{textwrap.dedent(block)}\n```")
            continue
        if text.strip() or not mark:
            found.append(text.rstrip().replace("``", "`"))
        if mark:
            found.append(f"```python\n>>>{example}\n```")
    return "\n\n".join(found)


def main() -> None:
    texts = pages()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"wrote {len(texts)} pages to {FOLDER.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
