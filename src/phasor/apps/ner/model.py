"""The span model: an encoder and a head, and the folder they are saved in."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..runs.checkpoint import write_atomically, write_json
from .batches import Batch
from .config import HEADS, ModelConfig
from .encoders import make_encoder
from .pretrained import load_pretrained, make_pretrained

WEIGHTS, CONFIG, TOKENIZER, ENCODER = "model.safetensors", "config.json", "tokenizer.json", "encoder"


class SpanModel(nn.Module):
    """Scores of every span of every type, float32 ``[B, labels, S, S]``, -inf where there is no span.

    ``ids``, ``mask`` (padding is False and last) and ``content`` (False for special tokens too) are ``[B, S]``.

    >>> model = SpanModel(ModelConfig(labels=("name", "place"), vocab=10, dim=16, heads=2)).eval()
    >>> model(torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool)).shape
    torch.Size([1, 2, 3, 3])
    """

    def __init__(self, config: ModelConfig, pretrained: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = make_encoder(config, pretrained)
        self.head = HEADS[config.head](
            self.encoder.width, len(config.labels), head_dim=config.head_dim, rotary=config.rotary
        )

    def forward(self, ids: Tensor, mask: Tensor, content: Tensor | None = None) -> Tensor:
        scores: Tensor = self.head(self.encoder(ids, mask), mask if content is None else content)
        return scores

    def loss(self, batch: Batch) -> Tensor:
        """The mean over sentences and labels of the exact multilabel cross entropy of the spans."""
        return self.head.loss(self.encoder(batch.ids, batch.mask), batch.spans, batch.content)


@dataclass(frozen=True)
class Saved:
    """A model in evaluation mode with its tokenizer, its settings and what its training was."""

    model: SpanModel
    tokenizer: Any
    about: dict[str, Any]


def save(folder: Path, model: SpanModel, tokenizer: Any, about: dict[str, Any]) -> None:
    """Write the folder that `load` reads: config, tokenizer, and the weights last. Each file is whole or absent."""
    from safetensors.torch import save as to_bytes

    if model.config.encoder == "pretrained":
        settings = model.encoder.model.config.to_json_string()  # type: ignore[union-attr, operator]
        write_atomically(folder / ENCODER / CONFIG, settings.encode())
    write_atomically(folder / TOKENIZER, tokenizer.to_str(pretty=True).encode())
    write_json(folder / CONFIG, {"model": model.config.to_dict(), **about})
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(folder / WEIGHTS, to_bytes(tensors, metadata={"format": "pt"}))


def load(folder: str | Path) -> Saved:
    """The model that `save` wrote. Raises ``ValueError`` if the folder is not one, or one of its files is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    folder = Path(folder)
    if missing := [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]:
        raise ValueError(
            f"model must be a folder as `phasor ner train` makes it, got {str(folder)!r} without {', '.join(missing)}"
        )
    try:
        about = json.loads((folder / CONFIG).read_bytes())
        config = ModelConfig.from_dict(about["model"])
        tokenizer = _tokenizer(folder / TOKENIZER)
        pretrained = make_pretrained(folder / ENCODER) if config.encoder == "pretrained" else None
        with torch.random.fork_rng(devices=[]):
            model = SpanModel(config, pretrained)
        model.load_state_dict(from_bytes((folder / WEIGHTS).read_bytes()))
    except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder} must hold a model of `phasor ner train`, got: {reason}") from None
    return Saved(model.eval(), tokenizer, about)


def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{path.name}: {error}") from None


def new_model(config: ModelConfig, seed: int, encoder: Path | None = None) -> SpanModel:
    """A model with the weights that ``seed`` gives, and those of a transformers encoder's directory."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SpanModel(config, None if encoder is None else load_pretrained(encoder))
