"""A model of transformers with random weights, built from a config alone."""

import importlib
import inspect
import pkgutil
from typing import Any

import torch
from torch import nn

from ...support.transformers_log import quiet

LARGEST = 400_000_000  # weights: more than this is no small model
WEAK = 0.02  # a matrix whose values deviate less hides what is multiplied by it
NOISE = 0.05


class TooLargeError(ValueError):
    """A model is too large to be built for a look at it."""


def tiny_model(config: Any) -> nn.Module:
    """The model that transformers runs for ``config`` (`tiny_config`), with random weights, in evaluation mode.

    On the CPU, in float32, with attention in plain operations. Parameters that would start at zero, weak or
    uninitialised are noise. The weights are the same at every call, and the global random state stays as it was.
    Raises ``ValueError`` if there is no model for the config, or none that can be built.
    """
    with quiet(), torch.random.fork_rng([]):
        torch.manual_seed(0)
        try:
            built_without_weights(config)
            model = model_class(config)(config).float().eval()
        except Exception as error:
            raise ValueError(f"no model is built from a {type(config).__name__}: {one_line(error)}") from error
        for parameter in model.parameters():
            noisy(parameter)
    return model


def built_without_weights(config: Any) -> None:
    """Raise what transformers says against the model of a config, and if it would be too large."""
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.random.fork_rng([]), torch.device("meta"):
        weights = sum(p.numel() for p in model_class(config)(config).parameters())
    if weights > LARGEST:
        raise TooLargeError(f"it would have {weights:,} weights, and a small model has at most {LARGEST:,}")


def model_class(config: Any) -> type[nn.Module]:
    """The class that transformers runs for a config: an auto class's, else the last of its folder built from it."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for mapping in (auto.MODEL_MAPPING, *(m for name, m in vars(auto).items() if name.endswith("_MAPPING"))):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    towers = _built_from(type(config))
    if not towers:
        raise ValueError(f"no model of transformers is built from a {type(config).__name__} alone")
    return towers[-1]


def _built_from(config_class: type) -> list[type[nn.Module]]:
    """The models of a config class's folder that say they are built from it."""
    package = importlib.import_module(config_class.__module__.rpartition(".")[0])
    found = []
    for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
        if module.name.startswith("modeling_"):
            classes = vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
            found += [c for c in classes if inspect.isclass(c) and getattr(c, "config_class", None) is config_class]
    return [c for c in found if issubclass(c, nn.Module) and not c.__name__.endswith("PreTrainedModel")]


def noisy(parameter: nn.Parameter) -> None:
    """Noise, where what is there would hide the rotation (ZAYA's temperature of the keys starts at zero)."""
    wild = parameter.numel() and not parameter.abs().max() < 1e4  # memory that no initialisation reached
    matrix = parameter.ndim > 1 and parameter.numel() > 1
    if wild or not parameter.any() or (matrix and parameter.std() < WEAK):
        nn.init.normal_(parameter.data, std=NOISE)


def one_line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
