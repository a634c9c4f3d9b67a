"""The span model: an encoder and a head, and the folder they are saved in."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from phasor.support.plain_text import escaped_json
from phasor.support.regular_files import read_file
from phasor.support.whole_files import write_whole

from ..run_folder.config import check_share
from ..run_folder.files import conform, read_json
from ..run_folder.tensors import filled, read_tensors, tensors_of, write_tensors
from .config import HEADS, SpanConfig, TrainConfig
from .data.windows import Encoded
from .encoders import make_encoder
from .pretrained import load_pretrained, make_pretrained

WEIGHTS, CONFIG, TOKENIZER, ENCODER = "model.safetensors", "config.json", "tokenizer.json", "encoder"
WAY_OUT = "put back what was there, or train again"


class Batch(NamedTuple):
    """``ids``, ``mask`` (tokens) and ``content`` (tokens that are not special) ``[B, S]``, padding last; ``spans``
    int64 ``[N, 4]`` rows (batch, type, start, end). The ``ids`` of words are ``[B, S, features]``."""

    ids: Tensor
    mask: Tensor
    content: Tensor
    spans: Tensor

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(*(tensor.to(device) for tensor in self))


def collate(windows: Sequence[Encoded]) -> Batch:
    """The windows, padded to the longest.

    >>> first = Encoded([5, 6], [(0, 1), (1, 2)], [False, False], 0, [(3, 0, 1)])
    >>> batch = collate([first, Encoded([7], [(0, 1)], [False], 1, [])])
    >>> batch.ids.tolist(), batch.mask.tolist(), batch.spans.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]], [[0, 3, 0, 1]])
    """
    length = max(len(window.ids) for window in windows)
    features = torch.tensor(windows[0].ids).shape[1:]  # of a word; a token of another kind is a number
    ids = torch.zeros(len(windows), length, *features, dtype=torch.int64)
    mask, content = (torch.zeros(len(windows), length, dtype=torch.bool) for _ in range(2))
    for row, window in enumerate(windows):
        size = len(window.ids)
        ids[row, :size] = torch.tensor(window.ids)
        mask[row, :size] = True
        content[row, :size] = ~torch.tensor(window.special)
    spans = [(row, *span) for row, window in enumerate(windows) for span in window.spans]
    return Batch(ids, mask, content, torch.tensor(spans, dtype=torch.int64).reshape(-1, 4))


class SpanModel(nn.Module):
    """Scores of every span of every type, float32 ``[B, labels, S, S]``, -inf where there is no span.

    ``ids``, ``mask`` (padding is False and last) and ``content`` (False for special tokens too) are ``[B, S]``.

    >>> model = SpanModel(SpanConfig(labels=("name", "place"), vocab=10, dim=16)).eval()
    >>> model(torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool)).shape
    torch.Size([1, 2, 3, 3])
    """

    def __init__(self, config: SpanConfig, pretrained: nn.Module | None = None) -> None:
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
class SavedModel:
    """A model in evaluation mode with its tokenizer, its settings and what its training was."""

    model: SpanModel
    tokenizer: Any
    about: dict[str, Any]


def save(folder: Path, model: SpanModel, tokenizer: Any, about: dict[str, Any]) -> None:
    """Write the folder that `load` reads: settings, tokenizer, and the weights last, with the SHA-256 of the others.

    Each file is whole or absent. ``about`` must hold the settings of the training as ``"train"`` and the threshold
    that `predict` takes as ``"threshold"``.
    """
    files = {
        CONFIG: (json.dumps({"model": model.config.to_dict(), **about}, indent=1) + "\n").encode(),
        TOKENIZER: escaped_json(tokenizer.to_str(pretty=True)).encode(),
    }
    if model.config.encoder == "pretrained":
        files[f"{ENCODER}/{CONFIG}"] = model.encoder.model.config.to_json_string().encode()  # type: ignore[union-attr, operator]
    for name, data in files.items():
        write_whole(folder / name, data)
    sealed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    write_tensors(folder / WEIGHTS, tensors_of(model), {"files": sealed})


def load(folder: str | Path) -> SavedModel:
    """The model that `save` wrote. Raises ``ValueError`` if the folder is not one, or one of its files is damaged."""
    folder = Path(folder)
    if missing := [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]:
        raise ValueError(
            f"model must be a folder as `phasor ner train` makes it, got {str(folder)!r} without {', '.join(missing)}; "
            f"{WAY_OUT}"
        )
    tensors, sealed = read_tensors(folder / WEIGHTS, "the weights of a model of `phasor ner train`", WAY_OUT)
    try:
        _check_seals(folder, sealed)
        about = read_json(folder / CONFIG, {"model": dict, "train": dict, "threshold": object})
        config = SpanConfig.from_dict(about["model"])
        TrainConfig.from_dict(about["train"])
        check_share("threshold", about["threshold"])
        tokenizer = _tokenizer(folder / TOKENIZER, config.vocab)
        model = filled(lambda: SpanModel(config, _encoder(folder, config)), tensors)
    except (ValueError, TypeError, RuntimeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder} must hold a model of `phasor ner train`, got: {reason}; {WAY_OUT}") from None
    return SavedModel(model.eval(), tokenizer, about)


def _check_seals(folder: Path, sealed: Any) -> None:
    """Raise ``ValueError`` if a file is not the one that was written with the weights."""
    for name, sha256 in conform(sealed, {"files": dict})["files"].items():
        if not (folder / name).is_file() or hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
            raise ValueError(f"{name} that is absent or has changed since it was written beside the weights (SHA-256)")


def _encoder(folder: Path, config: SpanConfig) -> Any:
    return make_pretrained(folder / ENCODER) if config.encoder == "pretrained" else None


def _tokenizer(path: Path, vocab: int) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(read_file(path).decode())
        largest = max(tokenizer.get_vocab().values(), default=-1)
    except Exception as error:  # the library raises nothing more special
        raise ValueError(f"{path.name}: {error}") from None
    if largest >= vocab:
        raise ValueError(f"{path.name}: token {largest}, where the model has {vocab} embeddings")
    return tokenizer


def new_model(config: SpanConfig, seed: int, encoder: Path | None = None) -> SpanModel:
    """A model with the weights that ``seed`` gives, and those of a transformers encoder's directory."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SpanModel(config, None if encoder is None else load_pretrained(encoder))
