"""The result of a study, as lines for a terminal and as data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phasor.support.number_text import runs

from .heads import HeadUse
from .pairs import USED, PairUse
from .trained import TrainedLength

SHOWN = 32  # heads on a terminal
BAR = 16  # characters of the largest cost


@dataclass(frozen=True)
class Study:
    """What a model does with its positions, in windows of ``length`` tokens, where its ``loss`` is in nats per token.

    - ``declared``: the length that the config declares, or None; ``trained``: what the weights tell of it.
    - ``rotations``: pair by pair, each rotation in all of its layers. Most models have one.
    - ``heads``: one by one.
    """

    loss: float
    length: int
    declared: int | None
    trained: TrainedLength
    rotations: tuple[PairUse, ...]
    heads: tuple[HeadUse, ...]

    def heads_of(self, rotation: PairUse) -> tuple[HeadUse, ...]:
        """The heads of the layers that have this rotation."""
        return tuple(use for use in self.heads if use.layer in rotation.layers)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "loss": self.loss, "length": self.length, "declared": self.declared, "trained": self.trained.to_dict(),
            "rotations": [rotation.to_dict() for rotation in self.rotations],
            "heads": [asdict(use) for use in self.heads],
        }  # fmt: skip


def _lines(study: Study) -> Iterator[str]:
    """What was measured, most important first: the pairs, then the heads."""
    yield f"loss {study.loss:.4f} nats per token at {study.length:,} tokens"
    yield f"trained length, by the weights: {study.trained}" + (
        f" (declared: {study.declared:,})" if study.declared else ""
    )
    for rotation in study.rotations:
        yield ""
        if len(study.rotations) > 1:
            yield f"{layer_words(rotation)}:"
        yield from _pairs(rotation, study.heads_of(rotation))
    yield ""
    yield from _heads(study)


def in_words(rotation: PairUse) -> list[str]:
    """Which pairs are used, and which are not, a line each."""
    rotary, channels = rotation.channels
    words = [f"used:   {_which(rotation, rotation.used)}", f"unused: {_which(rotation, rotation.unused)}"]
    return words if rotary == channels else [*words, f"in no pair: {channels - rotary} of {channels} channels"]


def layer_words(rotation: PairUse) -> str:
    """The layers of one rotation of several."""
    return f"layer{'s' * (len(rotation.layers) > 1)} {', '.join(runs(rotation.layers))}"


def wave_words(wave: float) -> str:
    """A wavelength in tokens; ∞ for a pair that does not rotate."""
    return "∞" if math.isinf(wave) else f"{wave:,.0f}" if wave >= 100 else f"{wave:.3g}"


def nats(cost: float) -> str:
    """Four digits, and no minus before zeros."""
    return f"{round(cost, 4) + 0.0:.4f}"


def energies(uses: Sequence[HeadUse], pair: int) -> tuple[float, float]:
    """The mean over heads of the squared length of q, and of k, in one pair."""
    q, k = (sum(use[pair] for use in all_uses) / len(uses) for all_uses in (
        [use.q_energy for use in uses], [use.k_energy for use in uses]))  # fmt: skip
    return q, k


def _which(rotation: PairUse, pairs: Sequence[int]) -> str:
    if not pairs:
        return "none"
    low, high = (wave_words(rotation.wavelengths[pair]) for pair in (pairs[0], pairs[-1]))
    waves = f"wavelength {low}" if low == high else f"wavelengths {low} to {high}"
    return f"{len(pairs)} of {len(rotation.stopped)} pairs: {', '.join(runs(pairs))} ({waves})"


def _pairs(rotation: PairUse, uses: Sequence[HeadUse]) -> Iterator[str]:
    yield f"{'pair':>4}{'wavelength':>12}{'stopped':>10}{'slowed':>10}{'|q|^2':>9}{'|k|^2':>9}"
    most = max((*rotation.stopped, 10 * USED))
    costs = zip(rotation.wavelengths, rotation.stopped, rotation.slowed, strict=True)
    for i, (wave, stop, slow) in enumerate(costs):
        bar = "#" * max(0, round(BAR * stop / most))
        q, k = energies(uses, i)
        yield f"{i:>4}{wave_words(wave):>12}{nats(stop):>10}{nats(slow):>10}{q:>9.3g}{k:>9.3g}  {bar}".rstrip()
    yield f"stopped, slowed: nats more where one pair does not rotate, or half as fast; used: {USED} or more if stopped"
    yield from in_words(rotation)


def _heads(study: Study) -> Iterator[str]:
    yield f"{'layer':>5}{'head':>5}  {'looks at':<16}  scores by position, content, both"
    most = sorted(study.heads, key=lambda use: use.position, reverse=True)[:SHOWN]
    for use in sorted(most, key=lambda use: (use.layer, use.head)):
        shares = "".join(f"{share:>7.0%}" for share in (use.position, use.content, use.both))
        words = "" if use.q_energy else "  no rotation"
        yield f"{use.layer:>5}{use.head:>5}  {use.kind:<14}  {shares}{words}"
    if len(most) < len(study.heads):
        yield f"... the {SHOWN} of {len(study.heads)} heads that position decides most; all are in --json"
