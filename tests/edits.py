"""Edits of source text, each of them a mistake that tests must notice: candidates of a file, and some drawn by a seed.

Left out is what nobody computes with: docstrings, strings, annotations, what is raised and asserted, functions that
write text (`TEXT`) and files that draw (`DRAWN`); and `return x` -> `return None`, which every test notices.
"""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

TEXT = re.compile(r"__(str|repr|format)__|_?described?(_\w+)?|(\w*_)?lines?|_?caption")
DRAWN = {"figures.py", "plot.py", "html.py"}

COMPARISONS = {
    "==": ["!="],
    "!=": ["=="],
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
    "is": ["is not"],
    "is not": ["is"],
    "in": ["not in"],
    "not in": ["in"],
}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "%", "%": "//", "**": "*", "&": "|", "|": "&"}
OPERATOR = re.compile(r"\*\*|//|<<|>>|==|!=|<=|>=|not\s+in\b|is\s+not\b|is\b|in\b|and\b|or\b|[-+*/%&|^@<>]")
COMMENT = re.compile(r"#[^\n]*")

FUNCTIONS = {"min": "max", "any": "all"}
ATTRIBUTES = {
    "amin": "amax",
    "argmin": "argmax",
    "cummin": "cummax",
    "minimum": "maximum",
    "floor": "ceil",
    "cos": "sin",
    "float32": "float64",
    "float": "double",
    **FUNCTIONS,
}
FUNCTIONS = {**FUNCTIONS, **{b: a for a, b in FUNCTIONS.items()}, "sum": "max"}
ATTRIBUTES = {**ATTRIBUTES, **{b: a for a, b in ATTRIBUTES.items()}}

# The order of arguments does not matter to them, or any other order ends with an error.
ORDERLESS = {"min", "max", "gcd", "lcm", "equal", "isclose", "allclose", "isinstance", "issubclass", "cast", "hypot"}
ORDERLESS |= {"broadcast_shapes", "promote_types", "minimum", "maximum", "logical_and", "logical_or", "print"}
COSMETIC = {"help", "rich_help_panel", "show_default", "stacklevel", "hidden", "metavar"}


class Edit(NamedTuple):
    file: str  # below the project
    kind: str
    start: int  # bytes of the file
    end: int
    new: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def line(self, source: bytes) -> int:
        return source.count(b"\n", 0, self.start) + 1

    def lines(self, source: bytes) -> tuple[str, str]:
        """The first line that changes, before and after."""
        old, new = (text.decode().splitlines() for text in (source, self.applied(source)))
        before, after = next((a, b) for a, b in zip_longest(old, new, fillvalue="") if a != b)
        return before.strip(), after.strip()

    def diff(self, source: bytes) -> str:
        texts = (text.decode().splitlines(keepends=True) for text in (source, self.applied(source)))
        return "".join(unified_diff(*texts, f"a/{self.file}", f"b/{self.file}", n=2))

    def changes(self, source: bytes) -> bool:
        """Whether the file is still Python, and another program than before."""
        try:
            return ast.dump(ast.parse(self.applied(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def drawn(root: Path, room: str, count: int, seed: int) -> tuple[list[Edit], int]:
    """Edits of files below `room`, at most one for a line, all kinds in turn; and how many there are to draw from."""
    source = {path: path.read_bytes() for path in files(root / room)}
    every = [edit for path, text in source.items() for edit in edits(text, path.relative_to(root).as_posix())]
    of_kind = defaultdict(list)
    for edit in every:
        of_kind[edit.kind].append(edit)
    chance = random.Random(f"{seed} {room}")
    for kind in (kinds := sorted(of_kind)):
        chance.shuffle(of_kind[kind])
    chance.shuffle(kinds)
    chosen: dict[tuple[str, int], Edit] = {}
    while len(chosen) < count and any(of_kind.values()):
        for kind in kinds:
            while of_kind[kind]:
                edit = of_kind[kind].pop()
                text = source[root / edit.file]
                place = edit.file, edit.line(text)
                if place not in chosen and edit.changes(text):
                    chosen[place] = edit
                    break
    return sorted(list(chosen.values())[:count], key=lambda edit: (edit.file, edit.start)), len(every)


def files(room: Path) -> list[Path]:
    return [path for path in (sorted(room.rglob("*.py")) if room.is_dir() else [room]) if path.name not in DRAWN]


def edits(source: bytes, file: str) -> list[Edit]:
    """Every candidate, in the order of the text; one may still not be Python (`Edit.changes`)."""
    return sorted({Edit(file, *edit) for edit in Candidates(source).of(ast.parse(source))}, key=lambda e: e[1:])


Candidate = tuple[str, int, int, str]


class Candidates:
    """(kind, start, end, new text) for each place of a program that could be wrong."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.lines = [0, *(m.end() for m in re.finditer(rb"\n", source))]

    def of(self, node: ast.AST) -> Iterator[Candidate]:
        for kind in type(node).__mro__:
            if method := getattr(self, f"of_{kind.__name__}", None):
                yield from method(node)
                return
        yield from self.inside(node)

    def inside(self, *nodes: ast.AST | None) -> Iterator[Candidate]:
        for node in nodes:
            if node is not None:
                for child in ast.iter_child_nodes(node):
                    yield from self.of(child)

    def each(self, nodes: Iterable[ast.AST | None]) -> Iterator[Candidate]:
        for node in nodes:
            if node is not None:
                yield from self.of(node)

    def start(self, node: ast.AST) -> int:
        return self.lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self.lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def replaced(self, kind: str, node: ast.AST, new: str) -> Iterator[Candidate]:
        yield kind, self.start(node), self.end(node), new

    def operator(self, left: ast.AST, right: ast.AST) -> tuple[str, int, int]:
        """The sign between two operands, and where it stands."""
        start = self.end(left)
        between = self.source[start : self.start(right)].decode("latin-1")  # a character for every byte
        match = OPERATOR.search(COMMENT.sub(lambda comment: " " * len(comment[0]), between))
        assert match, between
        return " ".join(match[0].split()), start + match.start(), start + match.end()

    # What is left out.

    def nothing(self, node: ast.AST) -> Iterator[Candidate]:
        return iter(())

    of_JoinedStr = of_Raise = of_Assert = nothing

    def of_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Candidate]:
        if not TEXT.fullmatch(node.name):
            yield from self.forgotten(node)
            yield from self.of(node.args)
            yield from self.each(node.body)

    of_AsyncFunctionDef = of_FunctionDef

    def of_arguments(self, node: ast.arguments) -> Iterator[Candidate]:
        yield from self.each([*node.defaults, *node.kw_defaults])

    def of_ClassDef(self, node: ast.ClassDef) -> Iterator[Candidate]:
        yield from self.each(node.body)

    def of_AnnAssign(self, node: ast.AnnAssign) -> Iterator[Candidate]:
        yield from self.each([node.value])

    # Statements.

    def of_Expr(self, node: ast.Expr) -> Iterator[Candidate]:
        if isinstance(node.value, ast.Call):
            yield from self.replaced("call dropped", node, "pass")
        yield from self.inside(node)

    def of_AugAssign(self, node: ast.AugAssign) -> Iterator[Candidate]:
        start = self.end(node.target)
        sign = self.source[start : self.start(node.value)].decode("latin-1").split("=")[0].strip()
        if sign in ARITHMETIC and not is_text(node.value):
            at = self.source.index(sign.encode(), start)
            yield "arithmetic", at, at + len(sign), ARITHMETIC[sign]
        yield from self.each([node.target, node.value])

    def of_If(self, node: ast.If | ast.While | ast.IfExp) -> Iterator[Candidate]:
        if "TYPE_CHECKING" not in self.text(node.test):
            yield from self.negated(node.test)
            yield from self.inside(node)

    of_While = of_IfExp = of_If

    def of_comprehension(self, node: ast.comprehension) -> Iterator[Candidate]:
        for test in node.ifs:
            yield from self.negated(test)
        yield from self.inside(node)

    def negated(self, test: ast.expr) -> Iterator[Candidate]:
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            yield from self.replaced("not", test, f"(not ({self.text(test)}))")

    def forgotten(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Candidate]:
        """A cache that remembers by all arguments but one."""
        for decorator in node.decorator_list:
            if re.match(r"(functools\.)?(lru_)?cache\b", self.text(decorator)):
                for i, name in enumerate(argument.arg for argument in node.args.args):
                    others = f"(*a[:{i}], *a[{i + 1}:], *sorted((n, v) for n, v in k.items() if n != {name!r}))"
                    remembered = f"(lambda f, known={{}}: lambda *a, **k: known.setdefault({others}, f(*a, **k)))"
                    yield from self.replaced("cache", decorator, remembered)

    # Expressions.

    def of_Compare(self, node: ast.Compare) -> Iterator[Candidate]:
        for left, right in pairwise([node.left, *node.comparators]):
            sign, start, end = self.operator(left, right)
            for new in COMPARISONS[sign]:
                yield "comparison", start, end, new
        yield from self.inside(node)

    def of_BoolOp(self, node: ast.BoolOp) -> Iterator[Candidate]:
        for left, right in pairwise(node.values):
            sign, start, end = self.operator(left, right)
            yield "and, or", start, end, {"and": "or", "or": "and"}[sign]
        yield from self.inside(node)

    def of_UnaryOp(self, node: ast.UnaryOp) -> Iterator[Candidate]:
        start, operand = self.start(node), node.operand
        if isinstance(node.op, ast.Not):
            yield "not", start, start + len("not"), " "
        elif isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant) and isinstance(operand.value, int):
            yield from self.replaced("constant", node, str(-operand.value - 1))
            return
        elif isinstance(node.op, ast.USub):
            yield "arithmetic", start, start + 1, ""
        yield from self.inside(node)

    def of_BinOp(self, node: ast.BinOp) -> Iterator[Candidate]:
        sign, start, end = self.operator(node.left, node.right)
        if sign in ARITHMETIC and not is_text(node.left, node.right) and not (sign == "|" and is_type(node.left)):
            yield "arithmetic", start, end, ARITHMETIC[sign]
            if sign == "//":
                yield from self.replaced(
                    "arithmetic", node, f"(-(-({self.text(node.left)}) // ({self.text(node.right)})))"
                )
        yield from self.inside(node)

    def of_Constant(self, node: ast.Constant) -> Iterator[Candidate]:
        value = node.value
        if isinstance(value, bool):
            yield from self.replaced("constant", node, str(not value))
        elif isinstance(value, int):
            for new in {0: (1,), 1: (0, 2)}.get(value, (value + 1,)):
                yield from self.replaced("constant", node, str(new))
        elif isinstance(value, float) and value != 2 * value:
            yield from self.replaced("constant", node, repr(2 * value))

    def of_Slice(self, node: ast.Slice) -> Iterator[Candidate]:
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield from self.replaced("bound dropped", bound, "")
        yield from self.inside(node)

    def of_Name(self, node: ast.Name) -> Iterator[Candidate]:
        if node.id in FUNCTIONS and isinstance(node.ctx, ast.Load):
            yield from self.replaced("function", node, FUNCTIONS[node.id])

    def of_Attribute(self, node: ast.Attribute) -> Iterator[Candidate]:
        if node.attr in ATTRIBUTES and isinstance(node.ctx, ast.Load):
            yield "function", self.end(node) - len(node.attr), self.end(node), ATTRIBUTES[node.attr]
        yield from self.inside(node)

    def of_Dict(self, node: ast.Dict) -> Iterator[Candidate]:
        starts = [self.start(key or value) for key, value in zip(node.keys, node.values, strict=True)]
        entries = [(start, self.end(value)) for start, value in zip(starts, node.values, strict=True)]
        yield from self.dropped("entry dropped", entries, [key is not None for key in node.keys])
        yield from self.inside(node)

    def of_Call(self, node: ast.Call) -> Iterator[Candidate]:
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name == "warn":  # its words
            return
        for a, b in pairwise(node.args):
            starred = isinstance(a, ast.Starred) or isinstance(b, ast.Starred)
            if name not in ORDERLESS and not starred and self.text(a) != self.text(b):
                between = self.source[self.end(a) : self.start(b)].decode()
                yield "arguments swapped", self.start(a), self.end(b), self.text(b) + between + self.text(a)
        places = sorted((self.start(argument), self.end(argument)) for argument in [*node.args, *node.keywords])
        named = {
            self.start(k)
            for k in node.keywords
            if k.arg not in {None, *COSMETIC} and not is_text(k.value, containing=" ")
        }
        yield from self.dropped("argument dropped", places, [start in named for start, _ in places])
        yield from self.of(node.func)
        yield from self.each(node.args)
        yield from self.each(k.value for k in node.keywords if k.arg not in COSMETIC)

    def dropped(self, kind: str, places: Sequence[tuple[int, int]], wanted: Sequence[bool]) -> Iterator[Candidate]:
        """Each wanted element of a list without itself and one comma."""
        for i, (start, end) in enumerate(places):
            if not wanted[i]:
                continue
            if i + 1 < len(places):
                end = places[i + 1][0]
            elif i:
                start = places[i - 1][1]
            yield kind, start, end, ""


def is_text(*nodes: ast.AST, containing: str = "") -> bool:
    """Whether one of them is a string, of those written out only one with `containing` in it."""
    return any(
        isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and containing in node.value)
        for node in nodes
    )


def is_type(node: ast.expr) -> bool:
    """Whether `node | None` is the text of a type."""
    if isinstance(node, ast.BinOp):
        return is_type(node.left)
    name = getattr(node, "attr", getattr(node, "id", "None" if isinstance(node, ast.Constant) else "_"))
    return name in ("int", "float", "str", "bytes", "bool", "list", "dict", "tuple", "set") or name[0].isupper()
