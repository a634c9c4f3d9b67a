"""What the laws run: a function of tokens and positions, a transformers model, or the decoder of such a model."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.model_rotary import ModelRotary
from ...support.errors import first_line
from ..patch.reading import specs_of
from ..patch.sites import part_of
from .implementation import attending_by


class NotChecked(Exception):
    """A check that this subject does not support; the message says why."""


class Subject:
    """The least that the laws need: ``logits``. Tokens and positions are ``[B, S]``, logits ``[B, S, vocabulary]``.

    What a subject cannot do raises `NotChecked` with the reason, and the laws that need it are not checked.
    """

    name = "this callable"
    counts = True  # whether it takes positions

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logits of one call; ``mask [B, S]`` is 0 where a token is padding."""
        raise NotImplementedError

    def jittered(self, tokens: Tensor, positions: Tensor, seed: int) -> Tensor:
        """The logits after one rounding step, up or down, in every embedded value: what rounding alone does."""
        return self.logits(tokens, positions)

    def first_not_finite(self, tokens: Tensor, positions: Tensor) -> str:
        """Where values that are no numbers come from; empty where that is not seen."""
        return ""

    def in_pieces(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """The logits of calls one after the other, of so many tokens each, through one cache."""
        raise NotChecked(f"{self.name} keeps no cache that could be given")

    def packed(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        """The logits of one row ``[1, S]`` that holds documents of these lengths, none of which sees another."""
        raise NotChecked(f"{self.name} takes no mask that could keep documents apart")

    def plainly(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits with the plain (eager) implementation of attention."""
        raise NotChecked(f"{self.name} has one implementation of attention")


class Misuse(ValueError):
    """A caller's own function is none that the laws can ask: it raises, or returns no logits."""


class BlackBox(Subject):
    """A function ``(tokens, positions) -> logits`` of which nothing else is known."""

    def __init__(self, call: Callable[[Tensor, Tensor], Any]) -> None:
        self.call = call
        self.name = getattr(call, "__name__", type(call).__name__)

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            raise NotChecked(f"{self.name} takes no mask of padding")
        try:
            logits = self.call(tokens, positions)
        except Exception as error:
            last = int(positions.max())
            asked = f"tokens {list(tokens.shape)} at positions up to {last}"
            raise Misuse(
                f"model must take {asked}, and {self.name} raises {type(error).__name__}: {first_line(error)}"
            ) from error
        if not isinstance(logits, Tensor) or logits.shape[:2] != tokens.shape:
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise Misuse(f"model must return logits [{tokens.shape[0]}, {tokens.shape[1]}, ...], got {got}")
        return logits


ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
RESULTS = ("logits", "last_hidden_state")
CACHE_NAMES = ("cache", "past_key_values")  # in transformers from 5.24 on, and before; as argument and as result
PLAIN = "eager"


class Running(Subject):
    """``axes``: how many coordinates a position of the model has; with several, a row of plain positions leads them.

    ``path``: where the model lies in a ``whole``, whose names its modules have.
    """

    def __init__(self, model: nn.Module, axes: int = 1, path: str = "", whole: nn.Module | None = None) -> None:
        self.model: Any = model
        self.axes, self.path, self.whole = axes, path, model if whole is None else whole
        self.name = type(model).__name__
        takes = [inspect.signature(module.forward).parameters for module in model.modules()]
        self.takes = next((own for own in takes if any(p.kind not in ANY for p in own.values())), takes[0])  # a wrapper
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
        """One call of the model; without positions it counts them itself. ``embedded``: it is given no tokens."""
        embedded = more.pop("embedded", False)
        content = {"inputs_embeds": self.embedding()(tokens)} if embedded else {"input_ids": tokens}
        asked = {**content, "position_ids": positions, **more}
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

    @property
    def counts(self) -> bool:  # type: ignore[override]
        return self.named("position_ids") in self.takes

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

    def in_pieces(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        calls = ((piece, None, None) for piece in tokens.split(list(lengths), 1))  # the model counts for itself
        return torch.cat([self._result(output) for output in self.through_cache(calls)], dim=1)

    @property
    def static(self) -> bool:
        """Whether it says that it can be called through a static cache."""
        return bool(getattr(self.model, "_can_compile_fullgraph", False))

    def static_cache(self, length: int) -> Any:
        from transformers import StaticCache

        return StaticCache(config=self.model.config, max_cache_len=length)

    def through_cache(
        self, calls: Iterable[tuple[Tensor, Tensor | None, Tensor | None]], static: bool = False
    ) -> Iterator[Any]:
        """What each call gives, after the cache of those before: its tokens, positions ``[B, S]`` and a mask of all."""
        calls, called = list(calls), cache_name(self.model)
        cache = self.static_cache(sum(tokens.shape[1] for tokens, _, _ in calls)) if static else None
        for tokens, positions, mask in calls:
            output = self.run(tokens, positions, attention_mask=mask, use_cache=True, **{called: cache})
            cache = next((found for name in CACHE_NAMES if (found := getattr(output, name, None)) is not None), None)
            if cache is None:
                raise NotChecked(f"{self.name} returns no {called}")
            yield output

    def packed(self, tokens: Tensor, positions: Tensor, lengths: Sequence[int]) -> Tensor:
        at = positions.expand(1 + self.axes, *positions.shape) if self.axes > 1 else positions
        return self.logits(tokens, at)

    def plainly(self, tokens: Tensor, positions: Tensor) -> Tensor:
        chosen = self.model.config._attn_implementation
        if chosen in (None, PLAIN):
            raise NotChecked("the chosen implementation of attention is the plain one")
        with attending_by(self.model, PLAIN):
            return self.logits(tokens, positions)


def cache_name(model: nn.Module) -> str:
    """What the model calls its cache, or the module to which it hands what it does not name itself."""
    takes = (inspect.signature(module.forward).parameters for module in model.modules())
    return next((name for names in takes for name in CACHE_NAMES if name in names), CACHE_NAMES[-1])


OF_DECODER = ("input_ids", "inputs_embeds", "position_ids", "attention_mask")


class Decoding(Running):
    """The decoder: its own text is moved, cut and padded, beside one result of the encoder that stays as it is."""

    encoded: Tensor | None = None

    def call(self, tokens: Tensor) -> Any:
        return self.model(input_ids=tokens, decoder_input_ids=tokens)

    def keep(self, output: Any) -> None:
        states = getattr(output, "encoder_last_hidden_state", None)
        self.encoded = states[:1] if isinstance(states, Tensor) else None

    def run(self, tokens: Tensor, positions: Tensor | None, **more: Any) -> Any:
        if self.encoded is None:
            raise NotChecked(f"the encoder of {self.name} has not been run: it takes more than tokens; give inputs")
        from transformers.modeling_outputs import BaseModelOutput

        encoded: Any = BaseModelOutput(last_hidden_state=self.encoded.expand(len(tokens), -1, -1))
        encoded.attention_mask = encoded.router_logits = None  # which encoders of speech add, and those with experts
        return super().run(tokens, positions, encoder_outputs=encoded, **more)

    def static_cache(self, length: int) -> Any:
        from transformers import DynamicCache, EncoderDecoderCache

        return EncoderDecoderCache(super().static_cache(length), DynamicCache(config=self.model.config))

    def named(self, argument: str) -> str:
        return f"decoder_{argument}" if argument in OF_DECODER else argument

    def embedding(self) -> nn.Module:
        module: nn.Module = self.model.get_decoder().get_input_embeddings()
        return module


def subject_of(model: Any, parts: Mapping[str, Any]) -> Running:
    """The model, or its decoder where it has an encoder besides; ``parts``: what is read of each inner config."""
    axes = _axes(model.config, parts)
    halves = "decoder_input_ids" in Running(model).takes and callable(getattr(model, "get_encoder", None))
    return Decoding(model, axes) if halves else Running(model, axes)


def _axes(config: Any, parts: Mapping[str, Any]) -> int:
    """Coordinates of a token's position; the axes of images beside the text are none of them."""
    text = parts.get(part_of(config.get_text_config(), config) or "")
    read = [m for m in parts.values() if isinstance(m, ModelRotary)]
    specs = specs_of([text] if isinstance(text, ModelRotary) else []) or specs_of(read)
    return max((spec.axes.count for spec in specs), default=1)


def parts_of(subject: Running) -> list[Running]:
    """What reads tokens by itself: the model, or its decoder and the encoder beside it."""
    if not isinstance(subject, Decoding):
        return [subject]
    inside = subject.model.get_encoder()
    path = next((path for path, module in subject.model.named_modules() if module is inside), "encoder")
    encoder = Running(inside, subject.axes, path, subject.model)
    return [subject, encoder] if "input_ids" in encoder.takes else [subject]
