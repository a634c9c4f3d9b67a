"""`quick_check`: the least that a training run should not start without."""

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from ...support.on_cpu import on_cpu
from ...support.preserve_state import undisturbed
from ..patch.sites import has_config, rotary_modules, stored_tables
from .against_config.tables import check_tables
from .check_ways import check_ways
from .laws import not_finite, shift
from .measurement import Trial
from .observation import NO_VALUES, Observation
from .report import ROTATION, Check, Diagnosis
from .running import Decoding

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
    with undisturbed(model), on_cpu():
        diagnosis = Diagnosis(type(model).__name__, tuple(_quickly(Observation(model))))
    if diagnosis.wrong:
        raise AssertionError(str(diagnosis))
    if not diagnosis.sound:
        raise AssertionError(f"nothing could be checked, so nothing is proven\n{diagnosis}")
    return diagnosis


def _quickly(observed: Observation) -> Iterator[Check]:
    yield from check_tables(observed)
    blank = Check(what="shift of all positions", against="itself", verdict="not shown")
    if observed.on_meta:
        yield replace(blank, reason=NO_VALUES)
    elif observed.nothing_rotates:
        yield replace(blank, reason=observed.nothing_rotates)
    else:
        subject, inputs = observed.subject, observed.inputs
        if isinstance(subject, Decoding):
            inputs.run(subject)
        trial = Trial.of(subject, inputs.tokens[:, :TOKENS], observed.specs)
        moved = not_finite(trial) or shift(trial)
        if moved.verdict == "wrong" and moved.what == blank.what:  # then its operators say whether q and k do that
            found = list(check_ways(observed, ()))
            yield from found
            if any(c.verdict == "wrong" or (c.what == ROTATION and c.verdict == "right") for c in found):
                moved = replace(blank, reason=f"{moved.reason}; what q and k do is told above")
        yield moved
