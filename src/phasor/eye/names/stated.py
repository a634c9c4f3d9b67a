"""What a config states: its numbers, and the scalings whose parameters stand in it under their usual keys."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...rotary import scaling as schemes
from ...rotary.scaling import Scaling

BASE = re.compile("theta|base")  # in the key of one
ORIGINAL, LENGTH = "original_max_position_embeddings", "max_position_embeddings"
SPELLINGS = {
    "initial_context_length": ORIGINAL, "n_positions": LENGTH, "n_ctx": LENGTH, "seq_length": LENGTH,
    "max_seq_len": LENGTH, "max_sequence_length": LENGTH, "context_length": LENGTH,
    "attn_factor": "attention_factor", "rotary_pct": "partial_rotary_factor",
}  # fmt: skip
SAID = {"dynamic": "dynamic", "stepped_ntk": "use_dynamic_ntk"}  # the word by which a config speaks of a scheme


class Stated:
    """The ``bases`` of a config, all its ``numbers``, and every scaling but the linear one, which shows by itself.

    >>> stated = Stated({"rope_theta": 5e5, "rope_scaling": {"type": "dynamic", "factor": 4.0}, "n_positions": 64})
    >>> stated.bases, stated.growing()
    ((500000.0,), [DynamicNTK(factor=4.0, original_max_position=64)])
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._places: list[dict[str, Any]] = []  # every dictionary, with what those around it say and it does not
        self._words: set[str] = set()
        found = list(self._walk(config, {}))
        self.bases = tuple(dict.fromkeys(n for key, n in found if BASE.search(key) and n > 1))
        self.numbers = tuple(dict.fromkeys(n for _, n in found))
        lengths = dict.fromkeys(int(n) for key, n in found if key in (ORIGINAL, LENGTH))
        self.scalings = tuple(dict.fromkeys(s for place in self._places for s in _built(_spelled(place, lengths))))

    def growing(self) -> list[Scaling]:
        """Those that change with the length and that the config means: it does not just have their numbers."""
        return [s for s in self.scalings if SAID.get(s.name) in self._words or isinstance(s, schemes.LongRoPE)]

    def _walk(self, data: Mapping[str, Any], around: dict[str, Any]) -> Iterator[tuple[str, float]]:
        """Every number with its key; places and words are noted on the way."""
        usual = {SPELLINGS.get(k := str(key), k): value for key, value in data.items() if value is not None}
        for key, value in usual.items():
            if isinstance(value, Mapping):
                yield from self._walk(value, around | usual)
            elif isinstance(value, str) or value is True:
                self._words.add(value if isinstance(value, str) else key)
            elif isinstance(value, (list, tuple)) and BASE.search(key):
                yield from ((key, float(item)) for item in value if _is_number(item))
            elif _is_number(value):
                yield key, float(value)
        self._places.append(around | usual)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold, and no flag."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _built(spelled: Iterable[tuple[Any, ...]]) -> Iterator[Scaling]:
    """The scalings whose parameters are there and go together."""
    for scheme, *values in spelled:
        with suppress(ValueError, OverflowError):
            yield scheme(*values)


def _spelled(place: Mapping[str, Any], lengths: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Schemes and their parameters in order, None where the place states none."""
    said: Any = place.get
    factor, original, length = said("factor"), said(ORIGINAL), said(LENGTH)
    if (share := said("partial_rotary_factor")) != 1:  # a share of 1 is linear scaling
        yield from ((schemes.Proportional, share), (schemes.Proportional, share, factor))
    yield from ((schemes.NTK, said("alpha")), (schemes.NTK, factor), (schemes.NTKFixed, factor))
    for start in lengths:
        yield from ((schemes.DynamicNTK, factor, start), (schemes.SteppedNTK, start))
    trained = _is_number(original) and original >= 1
    factors = [factor, length / original if trained and _is_number(length) else None]
    slow, fast = said("beta_slow", 1.0), said("beta_fast", 32.0)
    lists = [tuple(x) if isinstance(x := said(key), list | tuple) else x for key in ("short_factor", "long_factor")]
    for start in (int(original),) if trained else lengths:
        yield schemes.Llama3, factor, said("low_freq_factor"), said("high_freq_factor"), start
        for stretch in factors:  # each with the factor on cos and sin that is stated, then with its own
            yarn = schemes.YaRN, stretch, start, fast, slow, said("truncate", True)
            yield *yarn, said("mscale"), said("mscale_all_dim"), said("attention_factor")
            yield from (yarn, (schemes.YaRNPaper, stretch, start, slow, fast))
        for stretch in (*factors, 1.0):
            longrope = schemes.LongRoPE, *lists, start, stretch
            yield from ((*longrope, said("attention_factor")), (*longrope, said("long_mscale"), said("short_mscale")))
            yield longrope
