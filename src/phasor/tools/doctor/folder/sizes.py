"""Sizes and number formats that a config states, beside the weights."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from ...patch.sites import callers
from ..model_folder import ModelFolder
from ..report import Check
from .faults import NOT_UNDERSTOOD, fault

Shape = tuple[int, ...]
CAUSE = "config and weights differ in size"
INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL")
BY_HAND = "convert the checkpoint again, or set the config that its weights were saved with"


class Misfit(NamedTuple):
    """One weight: its name, its shape by the config, and as it is."""

    name: str
    expected: Shape
    stored: Shape


def misfits(model: nn.Module, shapes: Mapping[str, Shape]) -> list[Misfit]:
    """Weights whose shape is not the model's, those of attentions first.

    Others may be stored packed or transposed: of them only those of unpacked weights, with other sizes in any order.
    """
    inside = tuple(f"{caller.path}." for caller in callers(model))
    packed = getattr(model.config, "quantization_config", None) is not None
    own = {name: tuple(p.shape) for name, p in model.named_parameters() if name in shapes}
    wrong = [Misfit(name, shape, shapes[name]) for name, shape in own.items() if shapes[name] != shape]
    others = [m for m in wrong if not m.name.startswith(inside) and sorted(m.expected) != sorted(m.stored)]
    return [m for m in wrong if m.name.startswith(inside)] + ([] if packed else others)


def differing_sizes(folder: ModelFolder) -> Iterator[Check]:
    """The first weight that the config does not fit, or why transformers builds no model of it."""
    try:
        wrong = misfits(folder.config.model, folder.shapes) if folder.shapes else []
    except ValueError as error:
        yield fault("config.json", str(error), NOT_UNDERSTOOD, "mend that key by hand")
        return
    for name, expected, stored in wrong[:1]:
        what = f"{name} is {list(stored)}, and {list(expected)} by the config{_and_others(wrong)}"
        yield fault("config.json", what, CAUSE, BY_HAND)


def unread_weights(folder: ModelFolder) -> Iterator[Check]:
    """Weights of attentions that cannot be what they are named: integers, or a bias that the model does not read."""
    tensors = folder.tensors
    if not tensors or getattr((model := folder.config.model).config, "quantization_config", None) is not None:
        return
    own = dict(model.named_parameters())
    inside = tuple(f"{caller.path}." for caller in callers(model))
    integers = [
        (n, f"is stored as {t.dtype}, without a quantization_config to read it by")
        for n, t in tensors.items()
        if n in own and own[n].is_floating_point() and t.dtype in INTEGERS
    ]
    biases = [
        (n, f"{list(t.shape)} is stored, and the model of this config has no such bias")
        for n, t in tensors.items()
        if n.startswith(inside) and n.endswith(".bias") and n not in own and f"{n.removesuffix('bias')}weight" in own
    ]
    for cause, found in (("weights of another dtype", integers), ("weights that are not read", biases)):
        for name, what in found[:1]:
            yield fault(tensors[name].file.name, f"{name} {what}{_and_others(found)}", cause, BY_HAND)


def _and_others(found: Sequence[object]) -> str:
    return f" (and {len(found) - 1} others)" if len(found) > 1 else ""
