"""`quick_check`: the least that a training run should not start without."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from ...models.reading.model import ModelRotary
from ..patch.reading import ModelReading, specs_of
from ..patch.sites import has_config, nothing_rotates, rotary_modules, stored_tables
from .against_config.modules import checks_of_module
from .encoder_decoder import Decoding, subject_of
from .finite import not_finite
from .inputs import of_model
from .laws import asked, shift
from .measurement import Trial
from .preserve_state import undisturbed
from .report import Check, Diagnosis

TOKENS = 8  # of each of two rows


def quick_check(model: nn.Module) -> Diagnosis:
    """For the start of a training run, right where the model is ready: its tables, and three runs of a tiny batch.

    The tables of each rotary module are compared with what the config says, which finds garbage after ``to_empty`` and
    meta initialisation, frequencies cast to half precision, and a config that was changed too late; all positions moved
    by the same number must change no logits. The cost is that of 48 tokens, whatever the model (of 160 for one whose
    logits hang on every rounding, where that is measured first). Returns what it looked at, and raises
    ``AssertionError`` if anything is a fault, and if nothing could be checked: then nothing is proven. What was not
    checked beside something else stands in the result. `phasor.diagnose` looks at everything. Under FSDP call it on all
    processes. Raises ``ValueError`` for anything but a transformers model with a rotary embedding.

    Example::

        print(phasor.testing.quick_check(model))
        trainer.train()
    """
    if not has_config(model):
        raise ValueError(
            f"model must be a transformers model, got {type(model).__name__}; of a wrapper give the inside"
        )
    if not (rotary_modules(model) or stored_tables(model)):
        raise ValueError(f"model must have a rotary embedding, and no module of this {type(model).__name__} has one")
    with undisturbed(model), torch.device("cpu"):
        diagnosis = Diagnosis(type(model).__name__, tuple(_quickly(model)))
    if diagnosis.faults:
        raise AssertionError(str(diagnosis))
    if not diagnosis.sound:
        raise AssertionError(f"nothing could be checked, so nothing is proven\n{diagnosis}")
    return diagnosis


def _quickly(model: nn.Module) -> Iterator[Check]:
    plan = ModelReading(model, "float32")
    for path, module in rotary_modules(model).items():
        yield from checks_of_module(plan, path, module)
    for path, (module, name) in stored_tables(model).items():
        from .against_config.stored_tables import (
            checks_of_held,  # which imports much, for the few models that keep tables
        )

        yield from checks_of_held(plan, path, module, name)
    blank = Check(what="shift of all positions", against="itself", verdict="not shown")
    if any(parameter.is_meta for parameter in model.parameters()):
        yield replace(blank, reason="the model is on the meta device; it is checked against the spec only")
    elif reason := nothing_rotates(model):
        yield replace(blank, reason=reason)
    else:
        specs = specs_of([part for part in plan.parts.values() if isinstance(part, ModelRotary)])
        subject, inputs = subject_of(model, plan.parts), of_model(model, None)
        if isinstance(subject, Decoding):
            inputs.run(subject)
        trial = Trial.of(subject, inputs.tokens[:, :TOKENS], specs)
        yield not_finite(trial) or asked(shift, trial)
