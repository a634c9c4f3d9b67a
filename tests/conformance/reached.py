"""The files of this project that one of its files depends on: those that it imports, directly or through others."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = (ROOT / "src", ROOT / "tests", ROOT / "tests/configs")  # where modules are looked for
KERNELS = ROOT / "src/phasor/rotary/kernels"  # all give the bits of the reference, which their own tests prove


def reached(*starts: Path) -> set[Path]:
    """A package counts by the modules from which it has the names that are imported, as far as it only passes them on.

    Of the kernels the reference alone counts.

    >>> sorted(p.stem for p in reached(ROOT / "src/phasor/rotary/table_forms.py"))
    ['checks', 'layout', 'table_forms', 'tracing']
    """
    seen: set[Path] = set()
    todo = list(starts)
    while todo:
        path = todo.pop()
        if path not in seen and (KERNELS not in path.parents or path.name == "reference.py"):
            seen.add(path)
            todo += _imported(path)
    return seen


def _imported(path: Path) -> Iterator[Path]:
    if path.suffix != ".py":
        return
    if (data := path.with_suffix(".json")).is_file():  # what a module reads stands beside it, under its name
        yield data
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield from _found(_places(path, node), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _found([root.joinpath(*alias.name.split(".")) for root in ROOTS])


def _places(path: Path, node: ast.ImportFrom) -> list[Path]:
    """What stands after ``from``, without its ending."""
    names = node.module.split(".") if node.module else []
    return [root.joinpath(*names) for root in ([path.parents[node.level - 1]] if node.level else ROOTS)]


def _found(places: list[Path], name: str = "") -> Iterator[Path]:
    """The file of a module, or of the one from which a package has a name; none for another project's."""
    for place in places:
        inside, whole = place / name, place / "__init__.py"
        if name and (own := _file(inside)):
            yield own
        elif name and whole.is_file() and (node := _passed_on(whole, name)):
            yield from _found(_places(whole, node), name)
        elif file := _file(place):
            yield file


def _file(place: Path) -> Path | None:
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _passed_on(package: Path, name: str) -> ast.ImportFrom | None:
    imports = [node for node in ast.walk(_tree(package)) if isinstance(node, ast.ImportFrom)]
    return next((node for node in imports if any((a.asname or a.name) == name for a in node.names)), None)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
