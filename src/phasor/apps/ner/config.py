"""What decides a span model, and what decides its training."""

from dataclasses import dataclass
from typing import Any

from ...encodings.heads import EfficientGlobalPointer, GlobalPointer
from ...encodings.heads.decode import MODES, Mode
from ...support.checks import flag, number, one_of, whole
from ..run_folder.config import MOST_WEIGHTS, Config, at_most, check_seed, check_share
from ..run_folder.files import shown

HEADS = {"efficient": EfficientGlobalPointer, "global-pointer": GlobalPointer}
ENCODERS = ("bilstm", "transformer", "pretrained")
POSITIONS = ("rotary", "none")
MOST = {"vocab": 2**24, "dim": 2**14, "layers": 1024, "heads": 2**13, "head_dim": 2**12, "max_length": 2**16}


# Dropout and peak learning rate where none are given.
RECIPES = {"bilstm": (0.2, 3e-3), "transformer": (0.3, 1e-3), "pretrained": (0.1, 5e-5)}


@dataclass(frozen=True, kw_only=True)
class SpanConfig(Config):
    """The architecture. ``labels`` in the order of the head's types; ``vocab`` tokens.

    ``encoder`` is ``"bilstm"`` or ``"transformer"``, ``layers`` layers of width ``dim`` (``heads`` of them attend), on
    embeddings of tokens. ``"pretrained"`` is a transformers encoder, which has all these settings in a config of its
    own. ``encoder_positions="none"`` leaves a transformer without any knowledge of order. Longer texts than
    ``max_length`` tokens are cut into windows that overlap by ``overlap``.

    >>> SpanConfig(labels=("name",), vocab=100).encoder
    'bilstm'
    """

    labels: tuple[str, ...]
    vocab: int
    encoder: str = "bilstm"
    encoder_positions: str = "rotary"
    dim: int = 192
    layers: int = 2
    heads: int = 4
    dropout: float = 0.2
    head: str = "efficient"
    head_dim: int = 64
    rotary: bool = True
    max_length: int = 256
    overlap: int = 64

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError("labels must name at least one type, got none: are there entities in the training data?")
        _check_labels(self.labels)
        one_of("encoder", self.encoder, ENCODERS)
        one_of("encoder_positions", self.encoder_positions, POSITIONS)
        one_of("head", self.head, list(HEADS))
        for name, most in MOST.items():
            at_most(name, getattr(self, name), most)
        flag("rotary", self.rotary)
        whole("overlap", self.overlap, at_least=0)
        if self.overlap >= self.max_length:
            raise ValueError(f"overlap must be below max_length = {self.max_length}, got {self.overlap}")
        number("dropout", self.dropout, at_least=0)
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1, got {self.dropout}")
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim must be a multiple of 2 heads = {2 * self.heads}, got {self.dim}")
        types = 2 if self.head == "efficient" else 2 * len(self.labels)
        weights = self.dim * (self.vocab + 12 * self.layers * self.dim + types * self.head_dim)
        if self.encoder != "pretrained":
            at_most("the number of weights", weights, MOST_WEIGHTS, "make dim, layers, vocab or head_dim smaller")


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, tuple) or not all(isinstance(label, str) and label.strip() for label in labels):
        raise ValueError(f"labels must be a tuple of names, got {shown(labels)}")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ValueError(f"labels must differ, got {shown(twice)} twice")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """The training. Two runs with equal configs on equal data end with equal weights, to the bit on one machine.

    The learning rate rises over ``warmup`` (a share of the steps) to ``lr`` and falls to 0 along a cosine; that of the
    head peaks at ``head_lr`` (default: 0.001 on a pretrained encoder, whose ``lr`` is too small for it, else ``lr``).
    What is evaluated and saved is the running mean of the weights with ``average`` as its decay (0: the last weights).
    Training stops early when dev F1, once above 0, has not improved for ``patience`` epochs (0: never).
    """

    seed: int = 0
    epochs: int = 10
    batch: int = 32
    lr: float = 3e-3
    head_lr: float | None = None
    warmup: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.99
    patience: int = 5
    threshold: float = 0.5
    mode: Mode = "nested"
    bfloat16: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        at_most("epochs", self.epochs, 2**20)
        at_most("batch", self.batch, 2**16)
        whole("patience", self.patience, at_least=0)
        number("lr", self.lr, above=0)
        if self.head_lr is not None:
            number("head_lr", self.head_lr, above=0)
        number("clip", self.clip, above=0)
        number("weight_decay", self.weight_decay, at_least=0)
        flag("bfloat16", self.bfloat16)
        for name in ("warmup", "threshold", "average"):
            check_share(name, getattr(self, name))
        if self.average == 1:
            raise ValueError("average must be below 1, or the mean stays at the random start, got 1")
        one_of("mode", self.mode, MODES)
