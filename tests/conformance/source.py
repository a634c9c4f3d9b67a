"""Which classes of the installed transformers rotate: read from its source, so nothing has to be imported or built.

Every top-level name of a modeling file refers to others. A class rotates if it reaches, through them, a function or
method that applies a rotation.
"""

import ast
import gc
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

APPLIES = re.compile(
    r"apply_rot|apply_multidimensional_rope|rotate_(half|pairwise|every_two|queries_or_keys)|rotary_time"
)
FOLDERS_WITHOUT_MODELS = ("auto", "deprecated")
Name = tuple[str, str, str]  # folder, module, name


class References(ast.NodeVisitor):
    """Names and attributes that code uses when it runs: no annotations, no decorators, no `_init_weights`."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "_init_weights":  # tells the types of modules apart, and runs none
            for part in (*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.body):
                self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.bases, *node.body):
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if getattr(node.targets[0], "id", "") != "_can_record_outputs":
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.names.add(f".{node.attr}")
        self.visit(node.value)


class Source:
    """All modeling files: what every name refers to, and the config class of every class."""

    def __init__(self, root: Path) -> None:
        self.refers: dict[Name, set[str]] = {}
        self.imported: dict[Name, Name] = {}
        self.bases: dict[Name, list[str]] = {}
        self.configs: dict[Name, str] = {}
        for path in sorted(root.glob("*/modeling_*.py")):
            text = path.read_text(encoding="utf-8")
            if path.parent.name not in FOLDERS_WITHOUT_MODELS and APPLIES.search(text):
                self._read(path.parent.name, path, text)

    def _read(self, folder: str, path: Path, text: str) -> None:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module and "modeling_" in node.module:
                where = node.module.split(".")
                for alias in node.names:
                    mine = (folder, path.stem, alias.asname or alias.name)
                    self.imported[mine] = (where[-2] if len(where) > 1 else folder, where[-1], alias.name)
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            for name in names:
                found = References()
                found.visit(node)
                self.refers[folder, path.stem, name] = found.names
            if isinstance(node, ast.ClassDef):
                self._read_class((folder, path.stem, node.name), node)

    def _read_class(self, name: Name, node: ast.ClassDef) -> None:
        self.bases[name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and getattr(part.target, "id", "") == "config":
                self.configs[name] = ast.unparse(part.annotation)
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                for arg in part.args.args:
                    if arg.arg == "config" and arg.annotation and name not in self.configs:
                        self.configs[name] = ast.unparse(arg.annotation)

    def reached(self, name: Name) -> set[Name]:
        """Everything that ``name`` refers to, directly or through others; attributes with their dot."""
        seen: set[Name] = set()
        todo = [name]
        while todo:
            at = todo.pop()
            at = self.imported.get(at, at)
            if at not in seen:
                seen.add(at)
                todo += [(at[0], at[1], other) for other in self.refers.get(at, ())]
        return seen

    def config_names(self, name: Name) -> set[str]:
        """The config classes of a class, its own or its base's; a union has several."""
        name = self.imported.get(name, name)
        if name in self.configs:
            return set(self.configs[name].replace('"', "").split(" | "))
        return {c for base in self.bases.get(name, ()) for c in self.config_names((name[0], name[1], base))}


@cache
def read_source() -> Source:
    spec = find_spec("transformers")
    assert spec is not None and spec.origin
    gc.disable()  # a collector would look through all trees again and again, half of the time
    try:
        return Source(Path(spec.origin).parent / "models")
    finally:
        gc.enable()


@cache
def rotating() -> dict[str, tuple[Name, ...]]:
    """Config class -> every class built from it that rotates, in the order of the file."""
    source = read_source()
    found: dict[str, tuple[Name, ...]] = {}
    for name in source.bases:
        if any(APPLIES.search(other) for _, _, other in source.reached(name)):
            for config in source.config_names(name):
                found[config] = (*found.get(config, ()), name)
    return found
