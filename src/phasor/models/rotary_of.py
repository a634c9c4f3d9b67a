"""The rotary encoding of whatever a tool is given: read, observed, or a model that is yet to be looked at."""

from typing import Any

from torch import nn

from ..eye import Observation, observe
from ..rotary.model_rotary import ModelRotary
from .configs import read_config
from .reading.refusal import Refused

# Types whose classes multiply the queries by the usual scale before they turn, and state 1 for the scores.
SCALES_QUERIES = ("esm",)


def rotary_of(source: Any, part: str | None = None, inputs: Any = None) -> ModelRotary:
    """What ``source`` rotates, layer by layer; its ``sources`` say how that is known.

    - A `ModelRotary` is taken as it is, and so is an `Observation`, of which ``part`` may name one list of layers.
    - The config of a model, and a config as `read_config` takes it, is read by the row of its type.
    - A torch module without a config, or with one of a type that no row knows, is observed on ``inputs``.

    Raises ``ValueError`` for what rotates nothing, and for a model of which the encoding was not shown.

    >>> from ..rotary.spec import RotarySpec
    >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("a",), num_heads=1)
    >>> rotary_of(toy) is toy
    True
    """
    if isinstance(source, ModelRotary):
        if part is not None:
            raise ValueError(f"part belongs to a config; a ModelRotary is one part already, got part={part!r}")
        return source
    if isinstance(source, Observation):
        return _observed(source, part)
    if not isinstance(source, nn.Module):
        return read_config(source, part=part)
    config = getattr(source, "config", None)
    if not callable(getattr(config, "to_dict", None)):
        return _observed(observe(source, inputs), part)
    try:
        return read_config(config, part=part)
    except Refused as error:
        if not of_unknown_type(error) or part is not None:
            raise
        seen = observe(source, inputs)
        if seen.rotary is None:
            raise ValueError(f"{error}; nor was it shown on the model: {_why(seen)}") from error
        return seen.rotary


def of_unknown_type(error: Refused) -> bool:
    """Whether a config was refused because no row reads its type, and not for what it says."""
    return any(key.rpartition(".")[2] == "model_type" for key in error.keys)


def _observed(seen: Observation, part: str | None) -> ModelRotary:
    if part is not None and part not in seen.parts:
        raise ValueError(f"part must be one of the lists of layers that rotate, {sorted(seen.parts)}, got {part!r}")
    rotary = seen.rotary if part is None else seen.parts[part]
    if rotary is None:
        raise ValueError(f"{seen.subject} must rotate q and k in a way that was shown: {_why(seen)}")
    return rotary


def _why(seen: Observation) -> str:
    return "; ".join(seen.missing) or "; ".join(map(str, seen.facts)) or "nothing turns in it"
