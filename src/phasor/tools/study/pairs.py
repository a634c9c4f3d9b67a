"""Which pairs a model uses: what it costs to stop one, and to slow it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..fit.tables import GivenTables

USED = 0.002  # nats per token: a pair whose stop costs less is called unused
SLOWER = 2.0


@dataclass(frozen=True)
class PairUse:
    """For each pair: its ``wavelengths`` in tokens, what stopping it adds to the loss (``stopped``), and rotating it
    half as fast (``slowed``), in nats per token over ``loss``, at windows of ``length`` tokens.
    """

    wavelengths: tuple[float, ...]
    stopped: tuple[float, ...]
    slowed: tuple[float, ...]
    loss: float
    length: int

    @property
    def used(self) -> tuple[int, ...]:
        """The pairs whose stop costs at least `USED`."""
        return tuple(i for i, cost in enumerate(self.stopped) if cost >= USED)

    def __str__(self) -> str:
        lines = [f"loss {self.loss:.4f} at {self.length:,} tokens; nats more where one pair is", ""]
        lines.append(f"{'pair':>4}{'wavelength':>12}{'stopped':>10}{'slowed':>10}")
        most = max((*self.stopped, 1e-9))
        for i, (wave, stop, slow) in enumerate(zip(self.wavelengths, self.stopped, self.slowed, strict=True)):
            bar = "#" * max(0, round(24 * stop / most))
            lines.append(f"{i:>4}{wave:>12.4g}{stop:>10.4f}{slow:>10.4f}  {bar}".rstrip())
        lines.append(f"\n{len(self.used)} of {len(self.stopped)} pairs cost {USED} or more when they stop")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**{name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()},
                "used": list(self.used)}  # fmt: skip


def pair_use(tables: GivenTables, rows: Tensor) -> PairUse:
    """What each pair of a model's rotation is worth to it in windows ``rows`` ``[n, L + 1]``.

    A pair is stopped in all layers (its frequency is 0, so its channels compare content alone), then rotated half as
    fast; the difference of the loss says whether the model uses its position. Twice as many passes as there are pairs.
    """
    length = rows.shape[1] - 1
    own, factor = tables.spec.inv_freq(length), tables.spec.attention_factor(length)
    with tables.given(own, factor):
        loss = tables.loss(rows)

    def cost(pair: int, by: float) -> float:
        changed = own.clone()
        changed[pair] *= by
        with tables.given(changed, factor):
            return tables.loss(rows) - loss

    pairs: Sequence[int] = range(tables.spec.pairs)
    waves = tuple(2 * math.pi / f if f else math.inf for f in own.tolist())
    stopped = tuple(cost(pair, 0.0) for pair in pairs)
    slowed = tuple(cost(pair, 1 / SLOWER) for pair in pairs)
    return PairUse(waves, stopped, slowed, loss, length)
