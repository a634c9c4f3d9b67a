"""A model as the doctor observes it: its config as read, its modules, and what those are given in real calls.

What is judged by the config stands here first: such a judgement runs nothing but the one module or function that it is
about. Laws run the whole model, as their ``subject``.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ... import eye
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from ...support.preserve_state import hooked, undisturbed
from ..patch.reading import ModelReading, specs_of
from ..patch.sites import PatchSite, find, nothing_rotates
from .inputs import Inputs, of_model
from .running import NotChecked, Running, subject_of
from .stand_in_tables import tables_in
from .watching import Watched, watch, watched

CACHED = 8  # tokens of the first call
ELSEWHERE = 300  # where no declared length says what is far
CANNOT_RUN = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)


class Observation:
    """What is known of a transformers model before anything is judged.

    - ``wrapper``: what is around the model (`torch.compile`), or the model.
    - ``sites``: where it uses positions; ``modules`` form cos and sin, ``stored`` keep them, by path.
    - ``reading``: its config as read. The examination of tables notes there which ones each module forms.
    - ``rotary``: what each part of the config rotates; ``specs``: all of them; ``length``: the longest declared.
    - ``nothing_rotates``: why not, empty where something may; ``on_meta``: whether weights have no values.
    - ``unread``: whether no row reads its config; ``watched``: its attentions as the eye sees them in one call.
    - ``subject``: how it is run, on ``inputs``; ``calls``: what real calls gave, made when it is first asked for.
    """

    def __init__(
        self, model: nn.Module, inputs: Any = None, wrapper: Any = None, seen: eye.Observation | None = None
    ) -> None:
        self.model, self.wrapper, self._inputs, self._seen = model, wrapper, inputs, seen
        self.sites = find(model)
        self.nothing_rotates = nothing_rotates(model)
        self.on_meta = any(p.is_meta for p in model.parameters())
        self.modules = {site.path: site.module for site in self.sites if site.kind == "tables"}
        self.stored = [site for site in self.sites if site.kind == "stored table"]
        self.reading = ModelReading(model, "float32")
        self.rotary = [part for part in self.reading.parts.values() if isinstance(part, ModelRotary)]
        self.specs = specs_of(self.rotary)
        self.length = self.rotary[0].max_position if self.rotary else None

    @property
    def unread(self) -> bool:
        parts = [part for part in self.reading.parts.values() if isinstance(part, str)]
        return not self.rotary and (not self.sites or any(part.startswith("not read") for part in parts))

    @cached_property
    def watched(self) -> Watched | str:
        if self._seen is not None:
            return watched(self._seen)
        if self.on_meta:
            return "the model is on the meta device; it is checked against the spec only"
        arguments = self._inputs if hasattr(self._inputs, "keys") else None
        return watch(self.model, arguments, whole=self.unread)

    @cached_property
    def subject(self) -> Running:
        return subject_of(self.model, self.reading.parts)

    @cached_property
    def inputs(self) -> Inputs:
        return of_model(self.model, self._inputs)

    @cached_property
    def calls(self) -> "RealCalls":
        """Each call finds the model as it was; none is made of a model on the meta device."""
        known, inputs = [site for site in self.sites if site.kind == "functions"], self.inputs
        if self.on_meta:
            return RealCalls(known)
        with undisturbed(self.model):
            arguments = first_arguments(self.subject, inputs, {site.module for site in known})
        with undisturbed(self.model):
            positions = positions_given(self.subject, self.modules, inputs.tokens, self.length)
        attentions = [*known, *_unknown_callers(self.model, known, arguments)]
        with undisturbed(self.model):
            modules = [site.module for site in attentions]
            tables = tables_given(self.subject, modules, inputs.tokens, self.specs, self.length)
        return RealCalls(attentions, arguments, positions, tables)


@dataclass(frozen=True)
class PositionRun:
    """The positions that rotary modules were ``given``, ``[rows, S]`` with the number of the model's call, and those of
    each call that are ``meant``; or why the model could not be run so."""

    what: str
    meant: list[Tensor]
    given: dict[nn.Module, list[tuple[int, Tensor]]]
    why_not: str


@dataclass(frozen=True)
class CallRow:
    """One row of a call: the ``positions [S]`` that the model was given, and the tables that an attention was given.

    ``last``: the largest position of the call.
    """

    positions: Tensor
    tables: Any
    last: int


@dataclass(frozen=True)
class RealCalls:
    """What real calls of a model gave.

    - ``attentions``: modules that call a known function to rotate, and others that are given tables.
    - ``arguments``: those of each module's first call; ``tables``: what each attention was given, row by row.
    - ``positions``: counted by the model, given to it, and after a cache.
    """

    attentions: list[PatchSite]
    arguments: dict[nn.Module, dict[str, Any]] = field(default_factory=dict)
    positions: tuple[PositionRun, ...] = ()
    tables: dict[nn.Module, list[CallRow]] = field(default_factory=dict)


def named_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call by name; None for a module that does not name them."""
    try:
        signature = inspect.signature(module.forward)
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    if any(kinds[name] is inspect.Parameter.VAR_POSITIONAL and value for name, value in bound.items()):
        return None
    others = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    more: dict[str, Any] = bound.pop(others[0], {}) if others else {}
    return {**bound, **more}


def first_arguments(subject: Running, inputs: Inputs, modules: set[nn.Module]) -> dict[nn.Module, dict[str, Any]]:
    """The arguments of the first call of each of ``modules``, and of all others that are given tables."""
    first: dict[nn.Module, dict[str, Any]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = None if module in first else named_arguments(module, args, kwargs)
        if arguments is not None and (module in modules or tables_in(arguments, module) is not None):
            first[module] = arguments

    with hooked(m.register_forward_pre_hook(note, with_kwargs=True) for m in subject.model.modules()):
        inputs.run(subject)
    return first


def _unknown_callers(
    model: nn.Module, known: list[PatchSite], called: dict[nn.Module, dict[str, Any]]
) -> list[PatchSite]:
    """Modules of no known class that are given tables, and hold no other that is: somebody's own attention."""
    of_module = {module: path for path, module in model.named_modules()}
    paths = [of_module[module] for module in called]
    inner = {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}
    new = sorted(inner - {caller.path for caller in known})
    return [PatchSite(path, model.get_submodule(path), "functions") for path in new]


def positions_given(
    subject: Running, rotary: dict[str, nn.Module], tokens: Tensor, length: int | None
) -> tuple[PositionRun, ...]:
    """What rotary modules are given in three runs of the model; ``length``: what the config declares."""
    row = tokens[:1]
    count = torch.arange(row.shape[1], device=row.device)
    far = count + max(0, (length or ELSEWHERE) - row.shape[1] // 2)
    first = min(CACHED, row.shape[1] - 2)
    pieces = [n for n in (first, 1, 1, row.shape[1] - first - 2) if n > 0]
    runs: tuple[tuple[str, Callable[[], Any], list[Tensor]], ...] = (
        ("positions counted by the model", lambda: subject.run(row, None), [count]),
        ("positions given to the model", lambda: subject.run(row, far[None]), [far]),
        ("positions after a cache", lambda: subject.in_pieces(row, count[None], pieces), list(count.split(pieces))),
    )
    return tuple(PositionRun(what, meant, *_positions_in(subject, rotary, run)) for what, run, meant in runs)


def _positions_in(
    subject: Running, rotary: dict[str, nn.Module], run: Callable[[], Any]
) -> tuple[dict[nn.Module, list[tuple[int, Tensor]]], str]:
    given: dict[nn.Module, list[tuple[int, Tensor]]] = {}
    calls = [-1]

    def counts(module: nn.Module, args: tuple[Any, ...]) -> None:
        calls[0] += 1

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        at = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
        if isinstance(at, Tensor) and not at.is_floating_point():
            given.setdefault(module, []).append((calls[0], at.reshape(-1, at.shape[-1])))

    notes = (module.register_forward_pre_hook(note, with_kwargs=True) for module in rotary.values())
    with hooked((subject.model.register_forward_pre_hook(counts), *notes)):
        try:
            run()
        except NotChecked as reason:
            return {}, str(reason)
        except CANNOT_RUN as error:
            return {}, f"the model cannot be run so: {error!s:.120}"
    return given, ""


def tables_given(
    subject: Running, attentions: Sequence[nn.Module], tokens: Tensor, specs: Sequence[RotarySpec], length: int | None
) -> dict[nn.Module, list[CallRow]]:
    """What each attention is given in calls near and far, whose rows have different positions.

    Nothing for a model that takes no positions, or that cannot be run so.
    """
    if type(subject) is not Running or "position_ids" not in subject.takes:
        return {}
    tokens = tokens[:2]
    count = torch.arange(tokens.shape[1], device=tokens.device)
    far = count + max(1, (length or ELSEWHERE) - tokens.shape[1])
    scalings = [spec.scaling for spec in specs if spec.length_dependent and spec.scaling is not None]
    calls = [(count, count + 1), (far - 1, far)] if scalings else [(count, far)]  # a regime is that of a whole call
    if not all(scaling.two_regimes for scaling in scalings):
        calls = calls[:1]  # what grew in a long call stays
    rows: dict[nn.Module, list[CallRow]] = {}
    for positions in calls:
        last = max(int(at.max()) for at in positions)
        for module, tables in _tables_in_call(subject, attentions, tokens, torch.stack(positions)).items():
            rows.setdefault(module, []).extend(CallRow(at, _row(tables, i), last) for i, at in enumerate(positions))
    return rows


def _tables_in_call(
    subject: Running, attentions: Sequence[nn.Module], tokens: Tensor, positions: Tensor
) -> dict[nn.Module, Any]:
    given: dict[nn.Module, Any] = {}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tables = tables_in(named_arguments(module, args, kwargs) or {}, module)
        if tables is not None:
            given.setdefault(module, tables)

    with hooked(module.register_forward_pre_hook(note, with_kwargs=True) for module in attentions):
        try:
            subject.run(tokens, positions)
        except (NotChecked, *CANNOT_RUN):
            return {}
    return given


def _row(tables: Any, row: int) -> Any:
    """The tables of one row of the batch, or those that all rows share."""
    if not isinstance(tables, Tensor):
        return tuple(_row(table, row) for table in tables)
    if tables.ndim <= 2:
        return tables
    return tables[row : row + 1] if len(tables) > row else tables[:1]
