"""What a fit finds, and the config that says it."""

from dataclasses import dataclass, replace
from typing import Any

from phasor import read_config, write_config
from phasor.scaling import LongRoPE, Scaling

from .schemes import IN_CONFIGS, SCHEMES

FITTED = "fitted"


@dataclass(frozen=True)
class Fit:
    """What was found for ``length`` tokens, of a model trained for ``trained``.

    - ``divisors`` of the frequencies, and ``attention``, a factor on cos and sin: as a `LongRoPE` scaling that switches
      above the trained length (``scaling``).
    - ``losses``: name -> nats per token at ``length``, on the text that was not searched on: the known schemes
      (`SCHEMES`) and ``"fitted"``; ``inside``: the same at the trained length, with the frequencies for the longer one;
      ``short``: at the trained length with the model's own frequencies and ``attention``, as `LongRoPE` has them there.
    - ``known``: name -> divisors and factor of the known schemes.
    - ``tried``: evaluations; ``windows``: of the judged text.
    """

    trained: int
    length: int
    divisors: tuple[float, ...]
    attention: float
    losses: dict[str, float]
    inside: dict[str, float]
    short: float
    known: dict[str, tuple[tuple[float, ...], float]]
    tried: int
    windows: int
    seed: int

    @property
    def scaling(self) -> Scaling | None:
        """The answer: the divisors as a LongRoPE, which keeps the model's own frequencies up to the trained length.

        Where they do not better the best known scheme, that scheme, as a LongRoPE too where configs have no name for
        it; None where no scaling is the best.
        """
        if self.gain > 0:
            return self._switching(self.divisors, self.attention)
        if self.best_known in IN_CONFIGS:
            return SCHEMES[self.best_known](self.length / self.trained, self.trained)
        return self._switching(*self.known[self.best_known])

    @property
    def answer(self) -> str:
        """``scaling`` in words."""
        if self.gain <= 0:
            return f"{self.best_known}, the best known scheme"
        kept = f"keeps the model's own frequencies up to {self.trained:,} tokens"
        return f"the fitted divisors as longrope, which {kept}"

    def _switching(self, divisors: tuple[float, ...], attention: float) -> LongRoPE:
        return LongRoPE((1.0,) * len(divisors), divisors, self.trained, self.length / self.trained, attention)

    @property
    def best_known(self) -> str:
        """The best of the schemes that are not searched."""
        return min(self.known, key=self.losses.__getitem__)

    @property
    def gain(self) -> float:
        """Nats by which it is better than the best known scheme; negative where it is worse."""
        return self.losses[self.best_known] - self.losses[FITTED]

    def __str__(self) -> str:
        lines = [f"{'scheme':<12}{f'at {self.length:,}':>14}{f'at {self.trained:,}':>14}   nats per token"]
        for name, loss in sorted(self.losses.items(), key=lambda item: item[1]):
            lines.append(f"{name:<12}{loss:>14.4f}{self.inside[name]:>14.4f}")
        verdict = "better" if self.gain > 0 else "worse"
        no_gain = "" if self.gain > 0 else ": no gain"
        lines += [
            f"{self.tried} evaluations (seed {self.seed}); judged on {self.windows} windows of other text: "
            f"{abs(self.gain):.4f} nats {verdict} than {self.best_known}{no_gain}",
            f"as longrope, texts of up to {self.trained:,} tokens keep the model's own frequencies: {self.short:.4f} "
            f"there; with one list for all texts {self.inside[FITTED]:.4f}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        known = {name: [list(divisors), attention] for name, (divisors, attention) in self.known.items()}
        return {
            **vars(self), "divisors": list(self.divisors), "known": known, "best_known": self.best_known,
            "gain": self.gain,
        }  # fmt: skip


def written(fitted: Fit, config: dict[str, Any]) -> dict[str, Any]:
    """A config with the answer of a fit, for the length that it was made for."""
    model = read_config(config)
    layers = tuple(None if s is None else s.replace(scaling=fitted.scaling) for s in model.layers)
    like = write_config(replace(model, layers=layers), like=config)
    return {**like, "max_position_embeddings": fitted.length}
