"""A model as the eye sees it: in all calls of `phasor.observe`, or in one call."""

from typing import Any

from torch import nn

from ...eye import Observation, observe
from ...eye.call import call_of
from ...eye.inputs import made_up
from ...eye.sites import sites_of
from ...support.errors import first_line


def watch(model: nn.Module, inputs: Any = None, *, whole: bool) -> Observation | str:
    """What is seen, or why nothing is. ``whole``: with all calls of `phasor.observe`, which name what turns.

    ``inputs`` as in `phasor.observe`.
    """
    try:
        if whole:
            return observe(model, inputs)
        call = made_up(model) if inputs is None else call_of(model, inputs)
        return Observation(type(model).__name__, model, tuple(sites_of(call.tape())), {}, call=call)
    except Exception as error:  # a model's own code raises what it likes, and so do tensors that are not plain ones
        return f"{type(error).__name__}: {first_line(error)}" if not isinstance(error, ValueError) else str(error)


def attends(seen: Observation) -> bool:
    """Whether there is any attention, with a softmax or without."""
    return bool(seen.sites or seen.facts)
