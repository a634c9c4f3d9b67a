"""What decides a span model, and what decides its training."""

from dataclasses import dataclass
from typing import Any

from phasor.encodings.heads import EfficientGlobalPointer, GlobalPointer
from phasor.encodings.heads.decode import MODES, Mode
from phasor.support.checks import flag, number, one_of, whole

from ..run_folder.config import MOST_WEIGHTS, Config, at_most, check_seed, check_share
from ..run_folder.files import shown

HEADS = {"efficient": EfficientGlobalPointer, "global-pointer": GlobalPointer}
ENCODERS = ("bilstm", "convolution", "pretrained")
MOST = {
    "vocab": 2**24,
    "rows": 2**24,
    "dim": 2**14,
    "layers": 1024,
    "head_dim": 2**12,
    "max_length": 2**16,
}


@dataclass(frozen=True, kw_only=True)
class SpanConfig(Config):
    """The architecture. ``labels`` in the order of the head's types; ``vocab`` tokens.

    ``encoder`` is ``"bilstm"`` on characters, or ``"convolution"`` on words (over windows of three), known by hashed
    features in a table of ``rows``: ``layers`` layers of width ``dim``. ``"pretrained"`` is a transformers encoder,
    which has all these settings in a config of its own. Longer texts than ``max_length`` tokens are cut into windows
    that overlap by ``overlap``.

    >>> SpanConfig(labels=("name",), vocab=100).encoder
    'bilstm'
    """

    labels: tuple[str, ...]
    vocab: int
    encoder: str = "bilstm"
    dim: int = 192
    layers: int = 2
    dropout: float = 0.2
    head: str = "efficient"
    head_dim: int = 64
    rotary: bool = True
    rows: int = 20_000
    max_length: int = 256
    overlap: int = 64

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError("labels must name at least one type, got none: are there entities in the training data?")
        _check_labels(self.labels)
        one_of("encoder", self.encoder, ENCODERS)
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
        if self.dim % 2:
            raise ValueError(f"dim must be even, half of it for each direction of a BiLSTM, got {self.dim}")
        types = 2 if self.head == "efficient" else 2 * len(self.labels)
        embedded = 64 * self.rows if self.words else self.dim * self.vocab
        weights = embedded + self.dim * (12 * self.layers * self.dim + types * self.head_dim)
        if self.encoder != "pretrained":
            at_most("the number of weights", weights, MOST_WEIGHTS, "make dim, layers, vocab or head_dim smaller")

    @property
    def words(self) -> bool:
        """Whether its tokens are words."""
        return self.encoder == "convolution"


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, tuple) or not all(isinstance(label, str) and label.strip() for label in labels):
        raise ValueError(f"labels must be a tuple of names, got {shown(labels)}")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ValueError(f"labels must differ, got {shown(twice)} twice")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """The training. Two runs with equal configs on equal data end with equal weights, to the bit on one machine.

    The learning rate rises over a twentieth of the steps to ``lr`` and falls to 0 along a cosine; that of the head
    peaks at 0.001 on a pretrained encoder, whose ``lr`` is too small for it.
    What is evaluated and saved is the running mean of the weights with ``average`` as its decay (0: the last weights).
    Training stops early when dev F1, once above 0, has not improved for ``patience`` epochs (0: never).

    ``threshold`` None: after each epoch the one with the best dev F1, which is kept with the model. It lies below a
    half where the model is unsure: for calibrated probabilities at half of the best F1 (Lipton et al. 2014,
    arXiv:1402.1892, theorem 1).

    >>> TrainConfig().threshold is None
    True
    """

    seed: int = 0
    epochs: int = 10
    batch: int = 32
    lr: float = 3e-3
    average: float = 0.99
    patience: int = 5
    threshold: float | None = None
    mode: Mode = "nested"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        at_most("epochs", self.epochs, 2**20)
        at_most("batch", self.batch, 2**16)
        whole("patience", self.patience, at_least=0)
        number("lr", self.lr, above=0)
        check_share("average", self.average)
        if self.threshold is not None:
            check_share("threshold", self.threshold)
        if self.average == 1:
            raise ValueError("average must be below 1, or the mean stays at the random start, got 1")
        one_of("mode", self.mode, MODES)
