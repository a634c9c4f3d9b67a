"""How an engine is started, and what it does with a memory: what the planner counts and gives to paste."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

GIB, MIB = 2**30, 2**20
MODEL, FILE = "MODEL", "MODEL.gguf"  # as they stand in lines to paste
# Beside each group of values a scale of 16 bits for 32 of them (ExLlamaV3), or scale and bias for 64 (mlx-lm).
GROUPS = {f"q{bits}": bits + 0.5 for bits in (8, 6, 5, 4, 3, 2)}


@dataclass(frozen=True)
class Reserve:
    """What an engine does with a memory.

    ``usable``: the bytes that it takes at most; ``tokens``: of one forward pass (None: the whole prompt), whose
    activations are estimated, with values of ``width`` bytes; ``low``, ``high``: what else stands beside weights and
    cache; ``share``: of what is then free, for the cache; ``source``: where it is stated.
    """

    usable: float
    source: str
    tokens: int | None = 0
    low: float = 0.0
    high: float = 0.0
    share: float = 1.0
    width: int = 2


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What is known of an engine beside its rotation; by default nothing.

    - ``command``: starts it, before its flags. ``devices``: its flag for how many share the heads; ``draft``: those for
      a draft model.
    - ``caches``: cache types beside those of 32 and 16 bits -> bits of a value; ``cache_flags``: how it is told one of
      them. ``page``: of how many tokens its caches are multiples.
    - ``reserve``: of the bytes of a device, and of how many devices.
    - ``window_kept``: where its code applies a window of all layers that no type of layer names; ``window_lost``: where
      it does not. ``in_full``: why its cache counts every token of a layer with a window; empty where it does not.
    - ``index_in_8_bits``: where it keeps an indexer's keys in one byte a channel, with a float32 scale for each 128.
    """

    command: str = ""
    devices: str = ""
    draft: Mapping[str, Any] = field(default_factory=dict)
    caches: Mapping[str, float] = field(default_factory=dict)
    cache_flags: Callable[[str], dict[str, Any]] = lambda dtype: {}
    page: int = 1
    reserve: Callable[[int, int], Reserve] | None = None
    window_kept: str = ""
    window_lost: str = ""
    in_full: str = ""
    index_in_8_bits: str = ""
