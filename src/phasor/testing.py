"""Assertions for tests of models: what every position encoding must keep, and what a batch must have.

``model`` is a transformers model, or a function ``(tokens, positions) -> logits`` of ``[B, S]``, ``[B, S]`` and
``[B, S, vocabulary]``; ``inputs`` are token ids ``[B, S]`` of at least 8 tokens, by default made-up ones. An assertion
that fails says by how much, where it shows first and what it points to. One that cannot be checked fails as well: a
test that checks nothing must not pass. An encoding that is inconsistent by design (dynamic NTK, LongRoPE across its
threshold) fails too, unless ``by_design=True``. What rounding may do is allowed for by the number format. Models are
left as they were, and no gradient is built. All raise ``ValueError`` for something that is no model.
"""

from contextlib import nullcontext
from typing import Any

from torch import Tensor

from . import positions
from .models.configs import ModelRotary, read_parts
from .support.on_cpu import on_cpu
from .support.preserve_state import undisturbed
from .tools.doctor import Check, laws
from .tools.doctor.inputs import of_black_box, of_model
from .tools.doctor.laws import not_finite
from .tools.doctor.measurement import Trial
from .tools.doctor.quick_check import quick_check
from .tools.doctor.running import BlackBox, Decoding, subject_of
from .tools.patch.reading import specs_of
from .tools.patch.sites import has_config

__all__ = [
    "assert_attention_agrees",
    "assert_batch_invariant",
    "assert_cache_consistent",
    "assert_chunk_consistent",
    "assert_packing_invariant",
    "assert_padding_invariant",
    "assert_positions",
    "assert_relative",
    "quick_check",
]


def assert_relative(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """Scores depend on distances: all positions moved by 300 change no logits.

    It points to rotation of q or k alone, to a wrong sign, and to tables or products in half precision.

    >>> def scores(tokens, positions):  # knows where a text stands
    ...     return (tokens * positions).unsqueeze(-1).float()
    >>> assert_relative(scores)
    Traceback (most recent call last):
    AssertionError: shift of all positions: logits differ by 9.3e+03, first at position 0. scores depend on where ...
    """
    _assert_holds((laws.shift,), model, inputs, by_design)


def assert_cache_consistent(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """Half of a text at once and the rest token by token through a cache: the logits of one call.

    It points to positions that restart or move when the cache is read. Needs a model with a cache.

    Example::

        assert_cache_consistent(model)
    """
    _assert_holds((laws.cached,), model, inputs, by_design)


def assert_chunk_consistent(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """A prompt in three pieces through a cache: the logits of one call.

    Example::

        assert_chunk_consistent(model)
    """
    _assert_holds((laws.chunked,), model, inputs, by_design)


def assert_padding_invariant(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """Padding before a text, and behind it, with a mask and the same positions: the logits of the text alone.

    Example::

        assert_padding_invariant(model)
    """
    _assert_holds((laws.padded_left, laws.padded_right), model, inputs, by_design)


def assert_packing_invariant(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """A document packed behind another one, each with positions of its own: the logits that it gives alone.

    Example::

        assert_packing_invariant(model)
    """
    _assert_holds((laws.packed,), model, inputs, by_design)


def assert_batch_invariant(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """A text in a batch with a longer one: the logits that it gives alone.

    >>> import torch
    >>> def scores(tokens, positions):  # scaled by the longest text of the batch
    ...     return tokens.unsqueeze(-1) * torch.cos(positions / positions.max()).unsqueeze(-1)
    >>> assert_batch_invariant(scores)
    Traceback (most recent call last):
    AssertionError: alone = in a batch with longer rows: logits differ by ...
    """
    _assert_holds((laws.batched,), model, inputs, by_design)


def assert_attention_agrees(model: Any, inputs: Tensor | None = None, *, by_design: bool = False) -> None:
    """The chosen implementation of attention gives the logits of the plain (eager) one.

    Example::

        assert_attention_agrees(AutoModelForCausalLM.from_pretrained(folder, attn_implementation="flash_attention_2"))
    """
    _assert_holds((laws.implementation,), model, inputs, by_design)


def assert_positions(
    input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor | None = None, **more: Any
) -> None:
    """The positions of a batch, as a collator made them, are right: `phasor.positions.check` finds nothing.

    >>> import torch
    >>> assert_positions(torch.zeros(1, 3).long(), torch.tensor([[1, 2, 3]]))
    Traceback (most recent call last):
    AssertionError: row 0, token 0: off by one: position 1 where 0 is needed: the document starts at 1; ...
    """
    if mistakes := positions.check(input_ids, position_ids, attention_mask, **more).wrong:
        raise AssertionError(str(mistakes))


def _assert_holds(wanted: tuple[laws.Law, ...], model: Any, inputs: Tensor | None, by_design: bool) -> None:
    if not callable(model):
        raise ValueError(f"model must be a transformers model, or a function of tokens, got {type(model).__name__}")
    inside = on_cpu() if has_config(model) else nullcontext()  # a function may be at home elsewhere
    with undisturbed(model), inside:
        trial = _trial(model, inputs)
        infinite = not_finite(trial)
        for check in [infinite] if infinite else (law(trial) for law in wanted):
            if check.verdict != "right" or (check.by_design and not by_design):
                raise AssertionError(_told(check))


def _trial(model: Any, inputs: Tensor | None) -> Trial:
    if not has_config(model):
        return Trial.of(BlackBox(model), of_black_box(inputs), [])
    parts = read_parts(model.config)
    specs = specs_of([part for part in parts.values() if isinstance(part, ModelRotary)])
    subject, model_inputs = subject_of(model, parts), of_model(model, inputs)
    if isinstance(subject, Decoding):
        model_inputs.run(subject)
    return Trial.of(subject, model_inputs.tokens, specs)


def _told(check: Check) -> str:
    if check.verdict == "not shown":
        return f"{check.what}: cannot be checked: {check.reason}"
    size = "" if check.size is None else f"{check.apart().of} differ by {check.size:.2g}, "
    first = "" if check.position is None else f"first at position {check.position:g}"
    what = check.what if check.cause.startswith("not ") else check.cause
    return f"{what}: {size}{first}. {check.reason}" + (f"; {check.way_out}" if check.way_out else "")
