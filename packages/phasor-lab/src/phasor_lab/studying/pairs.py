"""Which pairs a model uses: what it costs to stop one, and to slow it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..running.model import RunningModel

USED = 0.002  # nats per token: a pair whose stop costs less is called unused
SLOWER = 2.0


@dataclass(frozen=True)
class PairUse:
    """One rotation of the model, in ``layers``. For each of its pairs: the ``wavelengths`` in tokens, what stopping it
    in all these layers adds to the loss (``stopped``), and rotating it half as fast (``slowed``), in nats per token.

    A pair that does not rotate has the wavelength inf, and costs nothing. ``channels``: how many of a head's channels
    are in pairs, and how many there are.
    """

    layers: tuple[int, ...]
    channels: tuple[int, int]
    wavelengths: tuple[float, ...]
    stopped: tuple[float, ...]
    slowed: tuple[float, ...]

    @property
    def used(self) -> tuple[int, ...]:
        """The pairs whose stop costs at least `USED`."""
        return tuple(i for i, cost in enumerate(self.stopped) if cost >= USED)

    @property
    def unused(self) -> tuple[int, ...]:
        """The others."""
        return tuple(i for i, cost in enumerate(self.stopped) if cost < USED)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; the wavelength of a pair that does not rotate is null."""
        waves = [wave if math.isfinite(wave) else None for wave in self.wavelengths]
        lists = {name: list(value) for name, value in vars(self).items()}
        return {**lists, "wavelengths": waves, "used": list(self.used), "unused": list(self.unused)}


def pair_uses(model: RunningModel, rows: Tensor, loss: float, step: Callable[[], None]) -> tuple[PairUse, ...]:
    """What each pair of each rotation is worth to a model in windows ``rows`` ``[n, L + 1]``, over its own ``loss``.

    A pair is stopped in all layers of its rotation (its frequency is 0, so its channels compare content alone), then
    rotated half as fast. ``step`` is called after each pair.
    """
    length = rows.shape[1] - 1
    own = model.own(length)

    def cost(rotation: int, pair: int, by: float) -> float:
        if not own[rotation][pair]:
            return 0.0
        changed = [frequencies.clone() for frequencies in own]
        changed[rotation][pair] *= by
        with model.with_frequencies(changed, model.factors(length)):
            return model.loss(rows) - loss

    uses = []
    for i, (rotation, frequencies) in enumerate(zip(model.rotations, own, strict=True)):
        stopped, slowed = [], []
        for pair in range(len(frequencies)):
            stopped.append(cost(i, pair, 0.0))
            slowed.append(cost(i, pair, 1 / SLOWER))
            step()
        waves = tuple(2 * math.pi / f if f else math.inf for f in frequencies.tolist())
        channels = (rotation.spec.rotary_dim, rotation.spec.head_dim)
        uses.append(PairUse(rotation.layers, channels, waves, tuple(stopped), tuple(slowed)))
    return tuple(uses)
