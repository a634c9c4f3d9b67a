"""What transformers itself computes from a config: its config object, and the rotary modules of its own code."""

import copy
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

from torch import Tensor, nn

from conformance.theirs import code_of
from conformance.walk import ARGUMENTS, places, quiet, rotates


class Ladder(NamedTuple):
    """Frequencies and the factor on cos and sin, as a module keeps them; ``word``: its name for the type of layer."""

    inv_freq: Tensor
    factor: float
    word: str
    module: nn.Module


class Turning(NamedTuple):
    """A config object of transformers whose model rotates, and the modules that form its cos and sin.

    ``modules``: base -> modules, where the layers have bases of their own; else under None. ``refusal``: what a module
    raised.
    """

    config: Any
    modules: dict[float | None, list[nn.Module]]
    refusal: str = ""

    def of(self, layer: int) -> list[nn.Module]:
        bases = getattr(self.config, "layer_rope_theta", None)
        return self.modules.get(bases[layer] if bases else None, [])


def computed(data: dict[str, Any]) -> dict[str, Turning]:
    """Path -> what rotates there; raises whatever transformers raises."""
    from transformers import PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    # from_dict writes each config out for its log, which takes longer than to make it, and refuses some that it made
    with quiet(), patch.object(PreTrainedConfig, "__repr__", object.__repr__):
        config = CONFIG_MAPPING[data["model_type"]].from_dict(copy.deepcopy(data))
        inside = {place.path: place.config for place in places(config)}
        return {path: turning(one) for path, one in inside.items() if rotates(one)}


def turning(config: Any) -> Turning:
    """The modules of a config; Granite's and Muse's layers have bases of their own, 0 where they do not rotate."""
    bases = getattr(config, "layer_rope_theta", None)
    modules: dict[float | None, list[nn.Module]] = {}
    try:
        for base in {base for base in bases if base} if bases else (None,):
            own = config
            if base is not None:
                own = copy.deepcopy(config)
                own.rope_parameters = {**config.rope_parameters, "rope_theta": base}
            modules[base] = [cls(own, **more).eval() for cls, more in own_modules(type(config))]
    except Exception as error:
        return Turning(config, {}, f"{type(error).__name__}: {error}"[:150].replace("\n", " "))
    return Turning(config, modules)


@cache
def own_modules(cls: type) -> tuple[tuple[Any, dict[str, bool]], ...]:
    """The modules that can be built from the default of a config class: those of its own model."""
    found: list[tuple[Any, dict[str, bool]]] = []
    with quiet():
        config = default_of(cls)
        for one, more in _candidates(cls.__name__):
            try:
                one(config, **more)
            except Exception:
                continue
            found.append((one, more))
    return tuple(found)


def _candidates(name: str) -> Iterator[tuple[Any, dict[str, bool]]]:
    for cls in code_of(name)[0]:
        switched = "scaled" in inspect.signature(cls.__init__).parameters
        yield from ((cls, more) for more in (({"scaled": True}, {"scaled": False}) if switched else ({},)))


@cache
def default_of(cls: Any) -> Any:
    return cls(**ARGUMENTS.get(cls.model_type, {}))


def ladders(found: Turning, layer: int) -> list[Ladder | None]:
    """What turns a layer by each module that keeps frequencies; None if it keeps none for the type of the layer."""
    result: list[Ladder | None] = []
    for module in found.of(layer):
        buffers = {name: buffer for name, buffer in module.named_buffers() if name.endswith("inv_freq")}
        buffers = {name: buffer for name, buffer in buffers.items() if "original" not in name}
        if "inv_freq" in buffers:
            factor = float(getattr(module, "attention_scaling", 1.0))
            result.append(Ladder(buffers["inv_freq"], factor, "", module))
        elif buffers:
            word = _word(list(buffers), found.config, layer)
            inv_freq = buffers.get(f"{word}_inv_freq")
            factor = float(getattr(module, f"{word}_attention_scaling", 1.0))
            result.append(None if inv_freq is None else Ladder(inv_freq, factor, word, module))
    return result


def _word(names: list[str], config: Any, layer: int) -> str:
    types = getattr(config, "layer_types", None) or []
    word = str(types[layer]) if layer < len(types) else ""
    if "compress_inv_freq" in names:  # DeepSeek-V4's own names
        return "main" if word == "sliding_attention" else "compress"
    return word
