"""RunConfig: everything that decides the weights a run ends with."""

from dataclasses import asdict, dataclass
from typing import Any

from phasor.support.checks import number, whole

from ..run_folder.config import Config, at_most, check_seed
from .data import Text
from .model import ModelConfig

MOST_TOKENS = 2**22  # of one step


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """One training run. Two runs with equal configs end with equal weights, to the bit on one machine.

    ``tokens`` is the budget, rounded up to whole steps of ``batch * model.length`` tokens; ``source`` is the SHA-256 of
    the text. The learning rate rises to ``lr`` in a twentieth of the steps and falls to a tenth of it along a cosine.

    >>> config = RunConfig(model=ModelConfig(length=64), tokens=100_000, batch=32)
    >>> config.steps, config.name
    (49, 'rotary-seed0')
    """

    model: ModelConfig
    seed: int = 0
    tokens: int = 1_433_600
    batch: int = 32
    lr: float = 3e-3
    source: str = ""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        whole("tokens", self.tokens)
        whole("batch", self.batch)
        at_most("batch * length", self.batch * self.model.length, MOST_TOKENS, "make the batch smaller")
        if not isinstance(self.source, str):
            raise ValueError(f"source must be a SHA-256 in hexadecimal, got {self.source!r}")
        number("lr", self.lr, above=0)

    @property
    def steps(self) -> int:
        return -(-self.tokens // (self.batch * self.model.length))

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return f"{self.model.encoding}-seed{self.seed}"

    @classmethod
    def from_dict(cls, data: Any) -> "RunConfig":
        """Inverse of `to_dict`. Raises ``ValueError`` if the keys are not those of this version."""
        if isinstance(data, dict) and "model" in data:
            data = data | {"model": ModelConfig.from_dict(data["model"])}
        return super().from_dict(data)

    def flat(self) -> dict[str, Any]:
        """All settings of run and model by name, so that an error can name what differs."""
        return {key: value for key, value in (asdict(self.model) | asdict(self)).items() if key != "model"}


def check_text(config: RunConfig, text: Text) -> None:
    """Raise ``ValueError`` unless ``text`` is the run's text: the same bytes."""
    if text.sha256 != config.source:
        raise ValueError(
            f"text must be the one of the run (sha256 {config.source[:12]}…), got {', '.join(text.names)} "
            f"with {text.sha256[:12]}…; give the files it was trained on"
        )
