"""A transformers model and the rotations that it runs, whose frequencies are replaced for as long as a block takes."""

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from phasor import Observation, RotarySpec
from phasor.models.rotary_of import rotary_of

from .windows import next_token_loss

AT_ONCE = 4096  # tokens of one forward pass


@dataclass(frozen=True)
class LayerRotation:
    """``spec``: what rotates the ``layers``; ``prefix``: of the names under which the module keeps its tables."""

    spec: RotarySpec
    layers: tuple[int, ...]
    prefix: str


class RunningModel:
    """A causal model, its rotations, and the module that forms their cos and sin.

    The module keeps one rotation in ``inv_freq`` and ``attention_scaling``, or one for each type of layer, with the
    type before these names (Gemma 3). ``layers``: the rotation of each layer, None where a layer has none.

    ``model``: a transformers model, or an `Observation` of one; one whose type no row knows is observed.
    Raises ``ValueError`` for a model without a config or a rotation, with trained frequencies, and one that forms its
    tables elsewhere.
    """

    def __init__(self, model: nn.Module | Observation) -> None:
        rotary, model = model, model.model if isinstance(model, Observation) else model
        if not hasattr(model, "config"):
            raise ValueError(f"model must be a transformers model with a config, got {type(model).__name__}")
        if model.training:
            raise ValueError("model must be in evaluation mode, where nothing is dropped; call model.eval()")
        self.model, self.rotary = model, rotary_of(rotary)
        if any(spec is not None and spec.learned for spec in self.rotary.layers):
            raise ValueError("model must have frequencies that its config gives; those of this one are trained")
        self.module: Any = _rotary_module(model)
        self.rotations = _rotations(self.rotary.layers, model.config, self.module)
        rotation_of = {layer: rotation for rotation in self.rotations for layer in rotation.layers}
        self.layers = tuple(rotation_of.get(layer) for layer in range(len(self.rotary.layers)))
        self.vocabulary, self.device = _vocabulary(model), next(model.parameters()).device
        self._takes_last = "logits_to_keep" in inspect.signature(model.forward).parameters

    def own(self, length: int) -> list[Tensor]:
        """The frequencies ``[pairs]`` of each rotation in a sequence of ``length`` tokens."""
        return [rotation.spec.inv_freq(length) for rotation in self.rotations]

    def factors(self, length: int) -> list[float]:
        """The factor on cos and sin of each rotation in a sequence of ``length`` tokens."""
        return [rotation.spec.attention_factor(length) for rotation in self.rotations]

    @contextmanager
    def with_frequencies(self, frequencies: Sequence[Tensor], factors: Sequence[float]) -> Iterator[None]:
        """The model with these frequencies, one ``[pairs]`` for each rotation, and these factors on cos and sin,
        whatever the length of its input; then as it was.

        Gradients pass to frequencies that require them: the module's code is run without the decorators around it.
        """
        module = self.module
        attributes, buffers = dict(vars(module)), dict(module._buffers)
        if any(values.requires_grad for values in frequencies):
            module.forward = partial(inspect.unwrap(type(module).forward), module)
        types = getattr(module, "rope_type", None)  # a dictionary where it has one for each type of layer
        module.rope_type = dict.fromkeys(types, "default") if isinstance(types, dict) else "default"  # of any length
        for rotation, values, factor in zip(self.rotations, frequencies, factors, strict=True):
            name = f"{rotation.prefix}inv_freq"
            setattr(module, name, values.to(getattr(module, name)))
            setattr(module, f"{rotation.prefix}attention_scaling", factor)
        try:
            yield
        finally:
            module._buffers.update(buffers)
            for name in vars(module).keys() - attributes:
                delattr(module, name)
            vars(module).update(attributes)

    def loss(self, windows: Tensor) -> float:
        """Nats per token of windows ``[n, L + 1]``. Raises ``ValueError`` where it is no number."""
        losses = self.token_losses(windows)
        return float(losses.sum()) / losses.numel()

    @torch.no_grad()
    def token_losses(self, windows: Tensor, last: int | None = None) -> Tensor:
        """Nats of each of the ``last`` tokens (all by default) of windows ``[n, L + 1]``: ``[n, last]`` in float64."""
        last = last or windows.shape[1] - 1
        batches = windows.split(max(1, AT_ONCE // windows.shape[1]))
        losses = torch.cat([self._of_batch(batch.to(self.device), last) for batch in batches]).double()
        check_loss(float(losses.sum()), windows)
        return losses

    def logits(self, inputs: Tensor, last: int | None = None) -> Tensor:
        """Of the ``last`` tokens (all by default) of ``inputs`` ``[n, L]``: ``[n, last, vocabulary]`` in float32."""
        fewer = {"logits_to_keep": last} if last and self._takes_last else {}
        logits: Tensor = self.model(inputs, use_cache=False, **fewer).logits
        return logits[:, -(last or inputs.shape[1]) :].float()

    def _of_batch(self, rows: Tensor, last: int) -> Tensor:
        return next_token_loss(self.logits(rows[:, :-1], last), rows).cpu()


def check_loss(loss: float, windows: Tensor) -> None:
    """Raise ``ValueError`` for a loss that is no number, of windows ``[n, L + 1]``."""
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss of the model must be a number, got {loss} at {windows.shape[1] - 1} tokens; look for weights "
            "that are no numbers, and try another dtype"
        )


def _vocabulary(model: Any) -> int:
    """How many logits a token has."""
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"model must give the logits of the next token, and {type(model).__name__} has no head for them"
        )
    return int(head.weight.shape[0])


def _rotary_module(model: nn.Module) -> nn.Module:
    """The one module with frequencies in buffers."""
    modules = [
        m for m in model.modules() if any(name.endswith("inv_freq") for name, _ in m.named_buffers(recurse=False))
    ]
    if len(modules) != 1:
        raise ValueError(f"model must form its cos and sin in one module with inv_freq, got {len(modules)} of them")
    return modules[0]


def _rotations(specs: Sequence[RotarySpec | None], config: Any, module: nn.Module) -> tuple[LayerRotation, ...]:
    """The rotations in the order of their first layers."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    types = getattr(config, "layer_types", None) or [""] * len(specs)
    layers_of: dict[tuple[str, RotarySpec], list[int]] = {}
    for layer, spec in enumerate(specs):
        if spec is not None:
            prefix = "" if hasattr(module, "inv_freq") else f"{types[layer]}_"
            layers_of.setdefault((prefix, spec), []).append(layer)
    rotations = tuple(LayerRotation(spec, tuple(layers), prefix) for (prefix, spec), layers in layers_of.items())
    if not rotations:
        raise ValueError("model must rotate q and k in some layer; this one's config says that none does")
    if len({rotation.prefix for rotation in rotations}) != len(rotations):
        raise ValueError(f"model must form each of its {len(rotations)} rotations in tables of their own")
    for rotation in rotations:
        _check(rotation, module)
    return rotations


def _check(rotation: LayerRotation, module: nn.Module) -> None:
    spec, name = rotation.spec, f"{rotation.prefix}inv_freq"
    shape = getattr(getattr(module, name, None), "shape", None)
    if shape != (spec.pairs,):
        raise ValueError(
            f"model must keep one frequency for each of {spec.pairs} pairs in {name}, got "
            + (f"{tuple(shape)}" if shape is not None else "no such buffer")
        )
