"""Sizes that a config states, beside the shapes of the weights."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from ...patch.sites import callers
from ..model_folder import Level, ModelConfig, ModelFolder
from .finding import NOT_UNDERSTOOD, FolderFault

Shape = tuple[int, ...]
CAUSE = "config and weights differ in size"
SIZES = (
    "head_dim", "num_attention_heads", "num_key_value_heads", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
    "hidden_size", "intermediate_size", "vocab_size",
)  # fmt: skip
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


def settle_sizes(folder: ModelFolder, config: ModelConfig) -> tuple[ModelConfig, list[FolderFault]]:
    """The config with the one size changed that makes it fit all weights, if there is just one."""
    shapes = folder.shapes
    try:
        model = config.model
    except ValueError as error:
        return config, [FolderFault("config.json", str(error), NOT_UNDERSTOOD, "mend that key by hand")]
    wrong = misfits(model, shapes)
    if not wrong:
        return config, []
    first = wrong[0]
    what = f"{first.name} is {list(first.stored)}, and {list(first.expected)} by the config{_and_others(wrong)}"
    fitting = [c for c in _candidates(config, wrong) if not _still_wrong(c[0], shapes)]
    if len(fitting) == 1:
        changed, words = fitting[0]
        return changed, [FolderFault("config.json", what, CAUSE, f"set {words}, as the weights are", True)]
    ways = " or ".join(words for _, words in fitting)
    way_out = f"it could be {ways}: the weights fit all of them" if ways else "no single size makes them fit"
    return config, [FolderFault("config.json", what, CAUSE, f"{way_out}; set it by hand")]


def unread_weights(folder: ModelFolder, config: ModelConfig) -> Iterator[FolderFault]:
    """Weights of attentions that cannot be what they are named: integers, or a bias that the model does not read."""
    tensors = folder.tensors
    try:
        model = config.model
    except ValueError:  # told elsewhere
        return
    if getattr(model.config, "quantization_config", None) is not None:
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
            said = f"{name} {what}{_and_others(found)}"
            yield FolderFault(tensors[name].file.name, said, cause, BY_HAND)


def _and_others(found: Sequence[object]) -> str:
    return f" (and {len(found) - 1} others)" if len(found) > 1 else ""


def _still_wrong(config: ModelConfig, shapes: Mapping[str, Shape]) -> bool:
    try:
        return bool(misfits(config.model, shapes))
    except ValueError:
        return True


def _candidates(config: ModelConfig, wrong: list[Misfit]) -> Iterator[tuple[ModelConfig, str]]:
    """Configs in which one size is another: times what a weight is too large, or more by as much as it is."""
    seen = set()
    for path, level in config.levels:
        text: Any = config.model.config
        for step in path:
            text = getattr(text, step, None)
        for key in SIZES:
            value = level.get(key) or getattr(text, key, None)
            if not isinstance(value, int):
                continue
            for misfit in wrong:
                for expected, stored in zip(misfit.expected, misfit.stored, strict=False):
                    for new in _solved(value, expected, stored, getattr(text, "num_attention_heads", 1)):
                        if new != value and (path, key, new) not in seen:
                            seen.add((path, key, new))
                            changed = ModelConfig(_with(config.data, (*path, key), new))
                            yield changed, f"{'.'.join((*path, key))} {new}"


def _solved(value: int, expected: int, stored: int, heads: int) -> Iterator[int]:
    if expected and stored * value % expected == 0:
        yield stored * value // expected
    for share in {1, heads or 1}:
        if (stored - expected) % share == 0 and value + (stored - expected) // share > 0:
            yield value + (stored - expected) // share


def _with(config: Level, path: tuple[str, ...], value: int) -> Level:
    changed = copy.deepcopy(config)
    level = changed
    for step in path[:-1]:
        level = level[step]
    level[path[-1]] = value
    return changed
