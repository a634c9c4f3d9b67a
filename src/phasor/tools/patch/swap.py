"""One module instance gets methods of its own: its class becomes a subclass of what it was, and nothing else changes.

The instance keeps its identity, its tensors, hooks, name and place in the model; other instances keep their class.
Copies and pickles of it are patched too, because the subclass is rebuilt from the plain data it was made from:
a recipe, which is a frozen dataclass with ``methods(cls)``.
"""

import ast
import inspect
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import nn


def patched_class(cls: Any, *recipes: Any) -> type[nn.Module]:
    """The subclass of ``cls`` with the methods of its ``recipes``, under the name of ``cls``; the same one every time.

    Equal layers share it, so compiled code that guards by class compiles once.
    """
    if (cls, recipes) not in _CLASSES:
        _CLASSES[cls, recipes] = _subclass(cls, recipes)
    return _CLASSES[cls, recipes]


_CLASSES: dict[tuple[Any, tuple[Any, ...]], type[nn.Module]] = {}


def _subclass(cls: type[nn.Module], recipes: tuple[Any, ...]) -> type[nn.Module]:
    def reduce(self: nn.Module, protocol: Any) -> Any:
        usual: Any = cls.__reduce_ex__(self, 2)
        return (_empty, (cls, *recipes), *usual[2:])

    about = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": reduce,
        "_phasor_original": cls,
    }
    methods = {name: method for recipe in recipes for name, method in recipe.methods(cls).items()}
    return type(cls.__name__, (cls,), about | methods)


def _empty(cls: type[nn.Module], *recipes: Any) -> nn.Module:
    patched = patched_class(cls, *recipes)
    return patched.__new__(patched)


def original_class(module: nn.Module) -> type[nn.Module] | None:
    """The class that a patched module had; None for a module as its library made it.

    Raises ``ValueError`` if another library has put a class of its own on top of the patched one.
    """
    cls = type(module)
    original: type[nn.Module] | None = getattr(cls, "_phasor_original", None)
    if original is not None and not is_patched(module):
        raise ValueError(
            f"model has a patched {original.__name__} under a class made by {cls.__module__}; undo that one first"
        )
    return original


def is_patched(module: nn.Module) -> bool:
    """Whether its class is one that a patch made, with none of another library on top, as parametrizations put it."""
    return "_phasor_original" in vars(type(module))


def owners(model: nn.Module) -> dict[str, Any]:
    """What the methods that run in a model belong to, by path: its modules, and the objects that these keep in order
    to call them, as diffusers' attention processors are.

    >>> list(owners(nn.Sequential(nn.ReLU())))
    ['', '0']
    """
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        found[path] = module
        for name, value in vars(module).items():
            cls = type(value)
            called = any(isinstance(vars(base).get("__call__"), FunctionType) for base in cls.__mro__)
            if called and cls.__hash__ is not None and not isinstance(value, nn.Module):
                found[f"{path}.{name}".lstrip(".")] = value
    return found


def members(cls: type) -> dict[str, Any]:
    """What a class and those above it define, by name, below what all modules have."""
    return {n: value for base in reversed(cls.__mro__) if base is not nn.Module for n, value in vars(base).items()}


def globals_of(function: Any) -> dict[str, Any]:
    """What a function, the functions inside it and the functions it decorates look up globally, by name."""
    values: dict[str, Any] = {}
    function = getattr(function, "__func__", function)
    while isinstance(function, FunctionType):
        values |= {n: function.__globals__[n] for n in _names(function.__code__) if n in function.__globals__}
        function = getattr(function, "__wrapped__", None)
    return values


def with_globals(function: FunctionType, changes: dict[str, Any], code: CodeType | None = None) -> FunctionType:
    """A copy of a function that finds ``changes`` under these global names; decorators are copied around it.

    ``code``: what it runs in the place of its own.
    What is put under other names later is not seen by the copy. Its globals have no ``__name__``: a compiler that finds
    one guards on that module's globals instead of these.
    """
    code = code or function.__code__
    scope = {k: v for k, v in function.__globals__.items() if k != "__name__"} | changes
    if not changes.keys() & _names(code):
        scope = function.__globals__
    cells, attributes = [], dict(vars(function))
    for cell in function.__closure__ or ():
        if _decorated(function, cell):
            attributes["__wrapped__"] = with_globals(cell.cell_contents, changes)
            cell = CellType(attributes["__wrapped__"])
        cells.append(cell)
    copy = FunctionType(code, scope, function.__name__, function.__defaults__, tuple(cells) or None)
    copy.__kwdefaults__, copy.__dict__ = function.__kwdefaults__, attributes
    copy.__qualname__, copy.__doc__, copy.__module__ = function.__qualname__, function.__doc__, function.__module__
    copy.__annotations__ = function.__annotations__
    return copy


WRAPS = "_phasor_wraps_"  # before a name: the global that is given what a method binds to it


@cache
def wrapping(function: FunctionType, names: tuple[str, ...]) -> CodeType | None:
    """The code of a method in which these local names, of functions that it defines or imports, are wrapped: each is
    given to the global `WRAPS` + name, and stands for what that returns.

    The whole file is compiled, because what it imports decides how methods are called. None where that does not give
    the code that runs.
    """
    try:
        tree = ast.parse("".join(inspect.findsource(function)[0]))
    except (OSError, SyntaxError):
        return None
    own = function.__code__
    if own.co_freevars or _compiled(tree, own) != own:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == own.co_name:
            _Wrapped(names).generic_visit(node)
    return _compiled(tree, own)


def _compiled(tree: ast.Module, own: CodeType) -> CodeType | None:
    """The code that stands where a function's own code does."""
    inside = [compile(tree, own.co_filename, "exec", dont_inherit=True)]
    for code in inside:
        inside += [c for c in code.co_consts if isinstance(c, CodeType)]
    return next((c for c in inside if (c.co_qualname, c.co_firstlineno) == (own.co_qualname, own.co_firstlineno)), None)


class _Wrapped(ast.NodeTransformer):
    """After each definition or import of one of these names inside: ``name = _phasor_wraps_name(name)``."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._bound(node, [node.name])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        return self._bound(node, [alias.asname or alias.name for alias in node.names])

    def _bound(self, node: ast.stmt, bound: list[str]) -> list[ast.stmt]:
        lines = (f"{name} = {WRAPS}{name}({name})" for name in bound if name in self.names)
        return [node, *(ast.increment_lineno(ast.parse(line), node.lineno - 1).body[0] for line in lines)]


def _decorated(function: FunctionType, cell: CellType) -> bool:
    """Whether the cell of a decorator's function holds what it decorates."""
    inner = getattr(function, "__wrapped__", None)
    try:
        return isinstance(inner, FunctionType) and cell.cell_contents is inner
    except ValueError:  # an empty cell
        return False


def _names(code: CodeType) -> set[str]:
    inside = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*(_names(c) for c in inside))
