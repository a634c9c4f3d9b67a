"""`diagnose`: the examinations of a model, one after the other, each of what was observed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ... import eye
from ...support.on_cpu import on_cpu
from ...support.preserve_state import undisturbed
from ..patch.rebuilt import is_model
from ..patch.sites import has_config
from .against_class import against_class
from .against_config.tables import check_tables
from .backward import check_backward
from .check_instead import check_instead
from .check_ways import check_ways
from .inputs import of_black_box
from .laws import all_laws, check_compiled, check_logits
from .observation import NO_VALUES, Observation
from .operators import check_operators, of_unread
from .report import ROTATION, Check, Diagnosis
from .running import BlackBox, Misuse
from .watching import attends, watch

# One thing that is looked at: of what was observed, and of the checks before it, which it may take as told.
Examination = Callable[[Observation, Sequence[Check]], Iterable[Check]]


def diagnose(model: Any, inputs: Any = None) -> Diagnosis:
    """Whether the position encoding of a model is right, in the model as it runs, and if not, where and why.

    *Against the spec*: the tables of each rotary module, the positions that it is given, and what each attention does
    to its q and k in a real call, beside what the model's config says. *Against itself*: q and k of a text that is
    cached, cut in pieces, padded, in a batch, far away, or read after a longer one must turn as in one plain call; and
    the plain implementation of attention must give the same logits, but for rounding. A function of which nothing but
    logits is seen must keep the laws of relative encodings.

    *By what is seen*: one call is recorded, and the operators on q and k are read off it, whatever the code is called.
    So a model whose config no row reads, and a module without a config, are judged against themselves.

    ``model`` is a transformers model, on any device; on the meta device it is checked against the spec only. Or
    another torch module, an `Observation` in place of its model, or a function ``(tokens, positions) -> logits`` of
    ``[B, S]``, ``[B, S]`` and ``[B, S, vocabulary]``, which is checked against itself. ``inputs``: token ids ``[B,
    S]`` of at least 8 tokens, or a dictionary of keyword arguments (images too, so that the towers run); made-up ids
    by default. The model is left as it was, and no gradient is built.

    Raises ``ValueError`` for something that is no model, for one without rotary embedding that cannot be watched, for
    inputs that it does not take, and for a function that raises or returns no logits (with what it raised as the
    cause).

    Example::

        diagnosis = phasor.diagnose(model)
        print(diagnosis)
        assert diagnosis.sound, diagnosis.causes

    >>> import torch
    >>> def scores(tokens, positions):  # knows where a text stands
    ...     return (tokens * positions).unsqueeze(-1).float()
    >>> diagnose(scores).causes
    ('not shift of all positions',)
    """
    seen = model if isinstance(model, eye.Observation) else None
    wrapper = model = model if seen is None else seen.model
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if not callable(model) or isinstance(model, type):
        raise ValueError(f"model must be a transformers model, or a function of tokens, got {type(model).__name__}")
    if isinstance(model, nn.Module) and not is_model(model) and any(is_model(m) for m in model.modules()):
        raise ValueError(f"model must be a transformers model, got {type(model).__name__}; give the model inside")
    if not has_config(model):
        with undisturbed(model), torch.compiler.set_stance("force_eager"):
            return _of_function(model, inputs, seen)
    with on_cpu():
        return examined(Observation(model, inputs, wrapper, seen))


def examined(observed: Observation) -> Diagnosis:
    """`diagnose` of a model that is observed."""
    model = observed.model
    # compiled code calls no hooks that were set after it was compiled, and compiles anew for every shape
    with undisturbed(model), torch.compiler.set_stance("force_eager"), on_cpu():
        return Diagnosis(type(model).__name__, tuple(_examined(observed)))


def _of_function(model: Any, inputs: Any, seen: eye.Observation | None) -> Diagnosis:
    """Of a function of tokens and positions, or a module without a config, whose attentions are looked at as well."""
    subject, checks = BlackBox(model), list[Check]()
    name = type(model).__name__ if isinstance(model, nn.Module) else subject.name
    if isinstance(model, nn.Module) and not any(p.is_meta for p in model.parameters()):
        found = watch(model, inputs, whole=True) if seen is None else seen
        if not isinstance(found, str) and attends(found):
            checks = against_class(found, of_unread(found))
    try:
        if checks and inputs is not None and not isinstance(inputs, Tensor):
            raise Misuse("its inputs are more than tokens")
        turns = any(check.what == ROTATION and check.verdict == "right" for check in checks)
        laws = list(all_laws(subject, of_black_box(inputs), turns))
    except ValueError as reason:
        if not checks:
            raise
        laws = [Check(what="laws of its logits", against="itself", verdict="not shown", reason=str(reason))]
    return Diagnosis(name, (*checks, *laws))


def _examined(observed: Observation) -> list[Check]:
    """The checks of all examinations; each finds the model as it was."""
    if not observed.sites and isinstance(observed.watched, str):
        why = "has one" if observed.on_meta else f"is named so; nor could it be watched: {observed.watched}"
        raise ValueError(
            f"model must have a rotary embedding, and no module of this {type(observed.model).__name__} {why}"
        )
    examinations = _chosen(observed)
    checks: list[Check] = []
    for examination in examinations:
        with undisturbed(observed.model):
            checks = [*checks, *examination(observed, checks)]
    return checks


def _chosen(observed: Observation) -> "tuple[Examination, ...]":
    if observed.nothing_rotates:
        return WITHOUT_ROTATION
    if observed.on_meta:
        return ON_META
    if observed.still:
        return INSTEAD
    return UNREAD if observed.unread else EXAMINATIONS


def nothing_rotates(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    yield Check(what=ROTATION, against="spec", verdict="not shown", reason=observed.nothing_rotates)


def nothing_runs(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    yield Check(what="all that runs the model", against="itself", verdict="not shown", reason=NO_VALUES, needed=True)


def contradicts_itself(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """Of a config that says two things: its class runs by one of them, and nothing shows that it is the right one."""
    if says := observed.contradiction:
        yield Check(what="config", against="spec", verdict="not shown", reason=says, needed=True)


EXAMINATIONS: tuple[Examination, ...] = (
    check_tables,  # what each module forms or keeps, at positions of the doctor's choice
    check_ways,  # what each attention is seen to do to its q and k, in every way of calling
    check_operators,  # and those that no text reaches
    check_backward,  # the gradients of all that
    check_logits,  # what operators do not show
    check_compiled,
)
INSTEAD: tuple[Examination, ...] = (check_operators, check_instead, check_logits, check_compiled)
UNREAD: tuple[Examination, ...] = (
    contradicts_itself, check_operators, check_ways, check_backward, check_logits, check_compiled,
)  # fmt: skip
ON_META: tuple[Examination, ...] = (check_tables, nothing_runs)
WITHOUT_ROTATION: tuple[Examination, ...] = (check_tables, nothing_rotates)
