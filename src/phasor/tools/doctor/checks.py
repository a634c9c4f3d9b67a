"""`diagnose`: every check of one model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...models.reading.model import ModelRotary
from ...rotary.spec import RotarySpec
from ..patch.reading import ModelReading, specs_of
from ..patch.rebuilt import is_model
from ..patch.sites import (
    PatchSite,
    callers,
    has_config,
    nothing_rotates,
    rotary_modules,
    rotating_methods,
    stored_tables,
)
from .against_config.attentions import check_of_attention
from .against_config.modules import checks_of_module
from .against_config.observed import Calls, watched
from .against_config.positions import checks_of_positions
from .against_config.stored_tables import checks_of_held
from .against_config.tables_given import tables_of_calls, with_tables
from .compiled import as_compiled, is_compiled
from .encoder_decoder import encoder_of, subject_of
from .finite import not_finite
from .inputs import of_black_box, of_model
from .laws import LAWS, REGIMES, after_longer, asked, effect
from .measurement import Trial
from .preserve_state import undisturbed
from .report import Check, Diagnosis
from .subject import BlackBox, Subject


def diagnose(model: Any, inputs: Any = None) -> Diagnosis:
    """Whether the position encoding of a model is right, in the model as it runs, and if not, where and why.

    *Against the spec*: the tables of each rotary module, the positions that it is given, and what each attention does
    to its q and k in a real call, beside what the model's config says. *Against itself*, without any reference: a text
    moved, cached, cut in pieces, padded, packed with another, in a batch with longer ones, and under the plain
    implementation of attention must give the logits it gives alone, but for rounding. What an encoding with a length of
    its own (dynamic NTK, LongRoPE) does there is said to be inconsistent by design, and is no fault.

    ``model`` is a transformers model, on any device; on the meta device it is checked against the spec only. Or a
    function ``(tokens, positions) -> logits`` of ``[B, S]``, ``[B, S]`` and ``[B, S, vocabulary]``, which is checked
    against itself. ``inputs``: token ids ``[B, S]`` of at least 8 tokens, or a dictionary of keyword arguments (images
    too, so that the towers run); made-up ids by default. The model is left as it was, and no gradient is built.

    Raises ``ValueError`` for something that is no model, for a model without rotary embedding, for inputs that it does
    not take, and for a function that raises or returns no logits (with what it raised as the cause).

    Example::

        found = phasor.diagnose(model)
        print(found)
        assert found.sound, found.causes

    >>> import torch
    >>> def scores(tokens, positions):  # knows where a text stands
    ...     return (tokens * positions).unsqueeze(-1).float()
    >>> diagnose(scores).causes
    ('not shift of all positions',)
    """
    wrapper, model = model, getattr(model, "_orig_mod", model)  # what torch.compile wraps
    if not callable(model) or isinstance(model, type):
        raise ValueError(f"model must be a transformers model, or a function of tokens, got {type(model).__name__}")
    if isinstance(model, nn.Module) and not is_model(model) and any(is_model(m) for m in model.modules()):
        raise ValueError(f"model must be a transformers model, got {type(model).__name__}; give the model inside")
    # compiled code calls no hooks that were set after it was compiled, and compiles anew for every shape
    with undisturbed(model), torch.compiler.set_stance("force_eager"):
        if not has_config(model):
            subject = BlackBox(model)
            return Diagnosis(subject.name, tuple(_laws(subject, of_black_box(inputs), [])))
        with torch.device("cpu"):  # whatever device the caller makes tensors on
            return Diagnosis(type(model).__name__, tuple(_checks(model, inputs, wrapper)))


def _checks(model: nn.Module, inputs: Any, wrapper: Any) -> Iterator[Check]:
    rotary, attentions = rotary_modules(model), list(callers(model))
    if not (rotary or attentions or rotating_methods_of(model) or stored_tables(model)):
        raise ValueError(f"model must have a rotary embedding, and no module of this {type(model).__name__} has one")
    plan = ModelReading(model, "float32")
    of_tables = [check for path, module in rotary.items() for check in checks_of_module(plan, path, module)]
    for path, (module, name) in stored_tables(model).items():
        of_tables += checks_of_held(plan, path, module, name)
    yield from of_tables
    if reason := nothing_rotates(model):
        yield Check(what="rotation of q and k", against="spec", verdict="not shown", reason=reason)
        return
    specs = specs_of([m for m in plan.parts.values() if isinstance(m, ModelRotary)])
    subject = subject_of(model, plan.parts)
    meta = any(p.is_meta for p in model.parameters())
    model_inputs = of_model(model, inputs)
    with watched(model, [caller.module for caller in attentions]) as calls, undisturbed(model):
        if not meta:
            model_inputs.run(subject)
    attentions += _unknown_callers(model, attentions, calls)
    of_attention = [check_of_attention(plan, caller, list(rotary.values()), calls) for caller in attentions]
    if meta:
        yield from of_attention
        says = "the model is on the meta device; it is checked against the spec only"
        yield Check(what="all that runs the model", against="itself", verdict="not shown", reason=says, needed=True)
        return
    length = next((m.max_position for m in plan.parts.values() if isinstance(m, ModelRotary)), None)
    with undisturbed(model):
        of_positions = list(checks_of_positions(subject, rotary, model_inputs.tokens, length))
    with undisturbed(model):
        rows = tables_of_calls(subject, [caller.module for caller in attentions], model_inputs.tokens, specs, length)
    of_attention = list(with_tables(plan, of_attention, attentions, rows, [*of_tables, *of_positions]))
    yield from of_attention
    yield from _unseen_layers(plan, len(attentions))
    yield from of_positions
    rotates = any(check.verdict == "right" for check in of_attention)
    yield from _laws(subject, model_inputs.tokens, specs, rotates)
    if is_compiled(wrapper):
        with undisturbed(model):
            yield as_compiled(Trial.of(subject, model_inputs.tokens, specs), wrapper)
    if (beside := encoder_of(subject)) is not None:
        path, encoder = beside
        yield from (replace(check, where=path) for check in _laws(encoder, model_inputs.tokens, specs, rotates))


def _unknown_callers(model: nn.Module, known: list[PatchSite], calls: Calls) -> list[PatchSite]:
    """Modules of no known class that are given tables, and hold no other that is: somebody's own attention."""
    paths = {module: path for path, module in model.named_modules()}
    called = [paths[module] for module in calls.first]
    inner = {path for path in called if not any(other.startswith(f"{path}.") for other in called)}
    new = sorted(inner - {caller.path for caller in known})
    return [PatchSite(path, model.get_submodule(path), "functions") for path in new]


def _unseen_layers(plan: ModelReading, seen: int) -> Iterator[Check]:
    """More layers that rotate than modules that are known to: others use code of their own."""
    layers = max(
        (len(m.layers) - m.layers.count(None) for m in plan.parts.values() if isinstance(m, ModelRotary)), default=0
    )
    if seen < layers and not rotating_methods_of(plan.model):
        says = f"{layers} layers rotate by the config, and {seen} modules call a function that does"
        yield Check(what="rotation of q and k", against="spec", verdict="not shown", reason=says, needed=True)


def rotating_methods_of(model: nn.Module) -> bool:
    return any(True for _ in rotating_methods(model))


def _laws(subject: Subject, tokens: Tensor, specs: list[RotarySpec], rotates: bool = False) -> Iterator[Check]:
    """All laws from position 0 on; and around the length at which an encoding changes by design.

    Each law begins with the model as it was: frequencies that grew in one are not the next one's. That positions have
    an effect need not be seen in logits where q and k were seen to be rotated.
    """
    trial = Trial.of(subject, tokens, specs)
    threshold = trial.threshold

    def apart(law: Callable[[Trial], Check], trial: Trial) -> Check:
        with undisturbed(getattr(subject, "model", None)):
            return law(trial)

    moved = apart(effect, trial)
    yield replace(moved, needed=moved.needed and not rotates)
    if (fault := not_finite(trial)) is not None:
        yield fault
    laws = (*LAWS, after_longer) if threshold else LAWS
    yield from (apart(partial(asked, law), trial) for law in laws)
    if (start := threshold - tokens.shape[1] // 2) > 0:
        beyond = replace(trial, start=start)
        for law in REGIMES:
            check = apart(partial(asked, law), beyond)
            yield replace(check, what=f"{check.what}, around position {threshold}")
