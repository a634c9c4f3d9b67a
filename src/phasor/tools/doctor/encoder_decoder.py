"""Models with an encoder and a decoder, which count positions apart: each is put to the test by itself."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...models.reading.model import ModelRotary
from ..patch.reading import specs_of
from ..patch.sites import part_of
from .running import Running
from .subject import NotChecked

OF_DECODER = ("input_ids", "position_ids", "attention_mask")


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
        encoded.attention_mask = None  # which encoders of speech add
        return super().run(tokens, positions, encoder_outputs=encoded, **more)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        before = self.encoded
        self.encoded = None if before is None else torch.zeros_like(before)
        try:
            yield
        finally:
            self.encoded = before

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


def encoder_of(subject: Running) -> tuple[str, Running] | None:
    """The encoder beside a decoder, and its path; None where there is none, or it reads no tokens by itself."""
    if not isinstance(subject, Decoding):
        return None
    inside = subject.model.get_encoder()
    path = next((path for path, module in subject.model.named_modules() if module is inside), "encoder")
    encoder = Running(inside, subject.axes)
    return (path, encoder) if "input_ids" in encoder.takes else None
