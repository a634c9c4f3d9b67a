"""A transformers model as the laws run it: token ids in, logits out, with positions, masks, caches and packing."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..patch.sites import rotary_modules
from ..running.implementation import attending_by
from .against_config.observed import blurred_modules, still_modules
from .subject import NotChecked, Subject

RESULTS = ("logits", "last_hidden_state")
PLAIN = "eager"


class Running(Subject):
    """``axes``: how many coordinates a position of the model has; with several, a row of plain positions leads them."""

    def __init__(self, model: nn.Module, axes: int = 1) -> None:
        self.model: Any = model
        self.axes = axes
        self.name = type(model).__name__
        self.takes = inspect.signature(model.forward).parameters
        self.any_more = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self.takes.values())

    def logits(self, tokens: Tensor, positions: Tensor | None, mask: Tensor | None = None) -> Tensor:
        return self._result(self.run(tokens, positions, attention_mask=mask))

    def through(self, wrapper: Any, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """The logits of a call of what is wrapped around the model."""
        inside = self.model
        self.model = wrapper
        try:
            return self.logits(tokens, positions)
        finally:
            self.model = inside

    def run(self, tokens: Tensor, positions: Tensor | None, **more: Any) -> Any:
        """One call of the model; without positions it counts them itself."""
        asked = {"input_ids": tokens, "position_ids": positions, **more}
        arguments = {self.named(name): value for name, value in asked.items() if value is not None}
        if unknown := [name for name in arguments if name not in self.takes and not self.any_more]:
            raise NotChecked(f"{self.name} takes no {unknown[0]}")
        if self.named("input_ids") not in self.takes:
            raise NotChecked(f"{self.name} takes no {self.named('input_ids')}")
        if not more.get("use_cache") and ("use_cache" in self.takes or self.any_more):
            arguments["use_cache"] = False
        return self.model(**arguments)

    def call(self, tokens: Tensor) -> Any:
        """The whole model once, on tokens alone."""
        return self.run(tokens, None)

    def keep(self, output: Any) -> None:
        """What later runs need of a call of the whole model: of most models nothing."""

    def named(self, argument: str) -> str:
        """What the model calls an argument."""
        return argument

    def embedding(self) -> nn.Module:
        """The module that embeds the tokens."""
        module: nn.Module = self.model.get_input_embeddings()
        return module

    def _result(self, output: Any) -> Tensor:
        result = next((f for name in RESULTS if isinstance(f := getattr(output, name, None), Tensor)), None)
        if result is None or result.ndim != 3:
            raise NotChecked(f"{self.name} returns neither logits nor a last_hidden_state of every token")
        return result

    def jittered(self, tokens: Tensor, positions: Tensor, seed: int) -> Tensor:
        random = torch.Generator("cpu").manual_seed(seed)

        def jitter(module: nn.Module, args: Any, result: Any) -> Any:
            if not isinstance(result, Tensor) or not result.is_floating_point():
                return result
            signs = torch.randint(2, result.shape, generator=random, device="cpu").to(result) * 2 - 1
            return result + result * signs * torch.finfo(result.dtype).eps

        hook = self.embedding().register_forward_hook(jitter)
        try:
            return self.logits(tokens, positions)
        finally:
            hook.remove()

    def first_not_finite(self, tokens: Tensor, positions: Tensor) -> str:
        places: list[str] = []

        def look(path: str, module: nn.Module, result: Any) -> None:
            if not places and isinstance(result, Tensor) and result.is_floating_point() and not result.isfinite().all():
                weights = [f"{path}.{n}" for n, p in module.named_parameters(recurse=False) if not p.isfinite().all()]
                places.append(f"{weights[0]} holds values that are no numbers" if weights else f"first made by {path}")

        hooks = [
            module.register_forward_hook(lambda module, args, result, path=path: look(path, module, result))
            for path, module in self.model.named_modules()
            if path
        ]
        try:
            self.logits(tokens, positions)
        finally:
            for hook in hooks:
                hook.remove()
        return "".join(places)

    def blurred(self, tokens: Tensor, positions: Tensor, by: float, seed: int) -> Tensor:
        with blurred_modules(list(rotary_modules(self.model).values()), by, seed):
            return self.logits(tokens, positions)

    def in_pieces(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        counted = int(positions[0, 0]) == 0  # then the model's own counting is put to the test
        pieces, cache = [], None
        for piece, at in zip(tokens.split(list(lengths), 1), positions.split(list(lengths), 1), strict=True):
            output = self.run(piece, None if counted else at, past_key_values=cache, use_cache=True)
            cache = getattr(output, "past_key_values", None)
            if cache is None:
                raise NotChecked(f"{self.name} returns no past_key_values")
            pieces.append(self._result(output))
        return torch.cat(pieces, dim=1)

    def packed(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        at = positions.expand(1 + self.axes, *positions.shape) if self.axes > 1 else positions
        return self.logits(tokens, at)

    def plainly(self, tokens: Tensor, positions: Tensor) -> Tensor:
        chosen = self.model.config._attn_implementation
        if chosen in (None, PLAIN):
            raise NotChecked("the chosen implementation of attention is the plain one")
        with attending_by(self.model, PLAIN):
            return self.logits(tokens, positions)

    @contextmanager
    def still(self) -> Iterator[list[Any]]:
        with still_modules(list(rotary_modules(self.model).values())) as formed:
            yield formed
