"""`diagnose`: the examinations of a model, one after the other, each of what was observed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..patch.rebuilt import is_model
from ..patch.sites import has_config
from .against_config.attention import ROTATION, check_rotations
from .against_config.positions import check_positions
from .against_config.tables import check_tables
from .inputs import of_black_box
from .laws import all_laws, as_compiled, is_compiled
from .measurement import Trial
from .observation import Observation
from .preserve_state import undisturbed
from .report import Check, Diagnosis
from .running import BlackBox, encoder_of

# One thing that is looked at: of what was observed, and of the checks before it, which it may take as told.
Examination = Callable[[Observation, Sequence[Check]], Iterable[Check]]


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
            return Diagnosis(subject.name, tuple(all_laws(subject, of_black_box(inputs), [])))
        with torch.device("cpu"):  # whatever device the caller makes tensors on
            return Diagnosis(type(model).__name__, tuple(_examined(Observation(model, inputs, wrapper))))


def _examined(observed: Observation) -> list[Check]:
    """The checks of all examinations; each finds the model as it was."""
    examinations = ON_META if observed.on_meta else EXAMINATIONS
    if observed.nothing_rotates:
        examinations = WITHOUT_ROTATION
    checks: list[Check] = []
    for examination in examinations:
        with undisturbed(observed.model):
            checks += examination(observed, checks)
    return checks


def tables(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """What each module forms or keeps, at positions of the doctor's choice."""
    return check_tables(observed)


def rotations(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """What each attention does to its q and k in a real call, and by which tables."""
    return check_rotations(observed, before)


def unseen_layers(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """More layers that rotate than modules that are known to: others use code of their own."""
    layers = max((len(m.layers) - m.layers.count(None) for m in observed.rotary), default=0)
    seen = len(observed.calls.attentions)
    if seen < layers and not any(site.kind == "method" for site in observed.sites):
        says = f"{layers} layers rotate by the config, and {seen} modules call a function that does"
        yield Check(what=ROTATION, against="spec", verdict="not shown", reason=says, needed=True)


def positions(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """The positions that each module is given, in three calls."""
    return check_positions(observed)


def laws(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """What must hold for any relative encoding, whatever the config says."""
    return all_laws(observed.subject, observed.inputs.tokens, observed.specs, _rotates(before))


def compiled(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """Where `torch.compile` runs the model: that its code gives what the model's own does."""
    if is_compiled(observed.wrapper):
        yield as_compiled(Trial.of(observed.subject, observed.inputs.tokens, observed.specs), observed.wrapper)


def encoder(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """The laws of an encoder beside the decoder, which counts positions of its own."""
    if (beside := encoder_of(observed.subject)) is not None:
        path, subject = beside
        for check in all_laws(subject, observed.inputs.tokens, observed.specs, _rotates(before)):
            yield replace(check, where=path)


def nothing_rotates(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    yield Check(what=ROTATION, against="spec", verdict="not shown", reason=observed.nothing_rotates)


def nothing_runs(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    says = "the model is on the meta device; it is checked against the spec only"
    yield Check(what="all that runs the model", against="itself", verdict="not shown", reason=says, needed=True)


def _rotates(checks: Sequence[Check]) -> bool:
    """Whether q and k were seen to be rotated rightly somewhere."""
    return any(check.what == ROTATION and check.verdict == "right" for check in checks)


EXAMINATIONS: tuple[Examination, ...] = (tables, rotations, unseen_layers, positions, laws, compiled, encoder)
ON_META: tuple[Examination, ...] = (tables, rotations, nothing_runs)
WITHOUT_ROTATION: tuple[Examination, ...] = (tables, nothing_rotates)
