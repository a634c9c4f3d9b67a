"""The functions by which a module rotates, on random heads and the right tables: whether one agrees with the spec."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ....rotary.spec import RotarySpec
from ...patch.compare import (
    INCOMPARABLE,
    fits,
    parameters_of,
    positions_for,
    random_arguments,
    shaped,
)
from ...patch.reading import ModelReading, implied_tables
from ...patch.rotate_function import RotateFunction
from ...patch.sites import PatchSite, nearest
from ...patch.tables import Tables
from .rotary_module import expected
from .rotated_heads import RIGHT, Heads, Outcome, outcome

DTYPES = (torch.float32,)


@dataclass(frozen=True)
class Functions:
    """Whether one of the functions ``agrees``; whether any could be compared; what the first does to q and k."""

    agrees: bool = False
    compared: bool = False
    size: float | None = None
    q: Outcome = RIGHT
    k: Outcome = RIGHT


def of_functions(
    reading: ModelReading, caller: PatchSite, specs: Sequence[RotarySpec], ran: frozenset[CodeType]
) -> Functions:
    """Of the functions that a module called, whose code is in ``ran``; where no call was seen, of all that it names."""
    near = nearest(caller.path, list(reading.tables))
    known = tuple(dict.fromkeys(t for path in near for t in reading.tables[path]))
    functions = Functions()
    called = [f for f in caller.functions.values() if getattr(f, "__code__", None) in ran]
    for function in called if ran else caller.functions.values():
        tables = known or implied_tables(function, specs)
        compared = reading.compared(function, tables, specs, DTYPES) if tables else (None, INCOMPARABLE)
        rotate, agreement = compared
        if rotate is None:
            continue
        if agreement.close:
            return Functions(agrees=True, compared=True, size=agreement.size)
        if agreement != INCOMPARABLE and not functions.compared:
            functions = _named(function, rotate, tables[0], specs)
    return functions


def _named(
    function: Callable[..., Any], rotate: RotateFunction, tables: Tables, specs: Sequence[RotarySpec]
) -> Functions:
    """What a function does to random heads instead."""
    spec = next((s for s in specs if s.layout == rotate.layout), specs[0])
    if spec.second is not None:
        return Functions(compared=True)
    tables = replace(tables, spec=tables.spec.replace(learned=False))
    positions = next(positions_for(tables.spec, torch.device("cpu")))
    cos, sin = expected(tables.spec, positions.squeeze(1))
    names = [n.removesuffix("=None") for n in parameters_of(function)[0] if n not in ("unsqueeze_dim", "**kwargs")]
    random = torch.Generator().manual_seed(0)
    for width in dict.fromkeys((spec.head_dim, spec.rotary_dim)):
        layout = spec.layout
        if width != spec.head_dim:
            layout = replace(layout, head_dim=width, trailing=False)
        for at in [p for p, last in shaped(tables.spec, positions) if last == tables.coordinates_last]:
            for args, more in random_arguments(rotate, tables, at, width, torch.float32, torch.float32, random):
                try:
                    theirs = function(*args, **more)
                except (RuntimeError, IndexError, TypeError, ValueError):
                    continue
                if not fits((args, more), theirs):
                    continue
                arguments = dict(zip(names, args, strict=False))  # a leftover that nothing reads is not given
                results = theirs if isinstance(theirs, tuple | list) else (theirs,)
                heads = [x for n, x in arguments.items() if n in HEADS]
                return _outcomes(heads, results, cos, -sin if spec.reverse else sin, layout)
    return Functions(compared=True)


HEADS = ("q", "k", "x", "xq", "xk", "query", "key", "tensor", "query_layer", "key_layer")


def _outcomes(heads: list[Tensor], results: Any, cos: Tensor, sin: Tensor, layout: Any) -> Functions:
    outcomes = []
    for before, after in zip(heads, results, strict=False):
        a, b = (x.reshape(-1, *x.shape[-3:])[0] for x in (before, after))
        if a.shape[0] == len(cos):  # tokens before heads
            a, b = a.transpose(0, 1), b.transpose(0, 1)
        if a.shape[1] != len(cos):
            return Functions(compared=True)
        outcomes.append(outcome(Heads(a, b, cos, sin, layout)))
    return Functions(compared=True, q=outcomes[0], k=outcomes[-1])
