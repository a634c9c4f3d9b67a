"""A config whose model rotates nothing: what tells it where tokens stand instead, seen on a small model."""

import os
from dataclasses import dataclass
from typing import Any

from ...eye.instead import Instead
from ...eye.observation import Observation
from ...eye.tiny.config import config_of
from ...models.configs import NoRotary
from ...models.reading.load import load
from ...models.reading.observed import seen_small
from ...models.without_rotation import ALIBI, stated_slopes
from .rows import row


@dataclass(frozen=True, eq=False)
class WithoutRotation:
    """``said``: the reader's words; ``seen``: a small model of the config, which may have fewer heads.

    ``slopes``: ALiBi's, one for each head of the real model; empty for what is none.
    """

    said: str
    seen: Observation
    slopes: tuple[float, ...] = ()

    @property
    def instead(self) -> Instead:
        return self.seen.instead

    def page(self) -> str:
        lines = [row("rotates", f"nothing: {self.said}")]
        if not self.slopes:
            lines.append(row("instead", self.instead.describe()))
        else:
            steep, flat = max(self.slopes), min(self.slopes)
            lines += [
                row("instead", "ALiBi: the logits of each head fall by its slope for every position of distance"),
                row("slopes", f"{steep:.4g} to {flat:.4g}, of {len(self.slopes)} heads  (each of them: --json)"),
                row(
                    "reach", f"a weight falls by e every {1 / steep:.4g} positions; in the farthest head {1 / flat:.4g}"
                ),
            ]
        return "\n".join([*lines, row("seen", "on a small model of this config, with random weights")])

    def to_dict(self) -> dict[str, Any]:
        return {"rotates": False, "said": self.said, "slopes": list(self.slopes), "small_model": self.instead.to_dict()}


def read_without_rotation(source: str | os.PathLike[str], refused: NoRotary) -> WithoutRotation:
    """What the model of a config has instead of a rotation; raises ``refused`` where that cannot be seen.

    It cannot where transformers is not installed, has no class for the config, or where nothing was seen.
    """
    data = load(source)
    try:
        seen = seen_small(data).observation
    except ValueError:
        raise refused from None
    if not (seen.instead.biases or seen.instead.added):
        raise refused
    config = config_of(data)
    sloped = config.model_type in ALIBI and any(bias.slopes for _, bias in seen.instead.biases)
    return WithoutRotation(str(refused), seen, stated_slopes(config, config.num_attention_heads) if sloped else ())
