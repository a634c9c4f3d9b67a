"""Which layers a tiny model keeps: one of every kind that the config tells apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeGuard

from .names import EVERY_SO_MANY, FIRST_LAYERS, KEPT, LAST_LAYERS, LAYER_NUMBERS, LAYERS, REPEATED, says

FEWEST = 2  # so that a first layer that differs from the others does not stand for all


@dataclass(frozen=True)
class Kept:
    """The numbers of the layers that stay, out of ``count``; ``stands``: for each layer, the place of its like there.

    ``spans``: the layers that a key of its own counts, where such keys together count them all.
    """

    count: int
    chosen: tuple[int, ...]
    stands: tuple[int, ...]
    spans: dict[str, range]

    def taken(self, key: str, value: Any) -> Any:
        """The value that ``key`` has when only the chosen layers are left."""
        if _numbers_of_layers(key, value, self.count):
            return [self.chosen.index(i) for i in value if i in self.chosen]
        if isinstance(value, list) and len(value) == self.count:
            return [value[i] for i in self.chosen]
        if not is_count(value):
            return value
        if key in self.spans:
            return sum(i in self.spans[key] for i in self.chosen)
        if says(key) == LAYERS and value == self.count:
            return len(self.chosen)
        if FIRST_LAYERS.search(key):
            return sum(i < value for i in self.chosen)
        if LAST_LAYERS.search(key):
            return sum(i >= self.count - value for i in self.chosen)
        return value

    def taken_by_number(self, value: dict[Any, Any]) -> dict[str, Any]:
        """What is said of single layers, by their numbers (`by_number`), of those that stay."""
        return {str(self.chosen.index(int(i))): v for i, v in value.items() if int(i) in self.chosen}


def kept_layers(data: dict[str, Any], count: int, source: str) -> Kept:
    """The layers that stay of ``count``; ``source``: the text of the model's code, which may count layers itself.

    >>> kinds = ["sliding", "sliding", "full"] * 4
    >>> kept = kept_layers({"num_hidden_layers": 12, "layer_types": kinds}, 12, "")
    >>> kept.chosen, kept.stands
    ((0, 2), (0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1))
    >>> kept_layers({"num_hidden_layers": 12, "period": 4}, 12, "i % config.period == 0").chosen
    (0, 1, 2, 3)
    """
    spans = _spans(data, count)
    periods = [p for k, v in data.items() if (p := _period(k, v, count, source)) > 1]
    kinds = [
        repr([*_of_layer(data, count, i), [i in span for span in spans.values()], *(i % period for period in periods)])
        for i in range(count)
    ]
    firsts = sorted({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values())
    if periods:  # code that counts layers must find each where it was
        firsts = list(range(max(*firsts, max(periods) - 1) + 1))
    chosen = firsts + [i for i in range(count) if i not in firsts][: max(0, FEWEST - len(firsts))]
    chosen.sort()
    places = {kinds[i]: place for place, i in reversed(list(enumerate(chosen)))}
    own = {i: place for place, i in enumerate(chosen)}
    return Kept(count, tuple(chosen), tuple(own.get(i, places[kinds[i]]) for i in range(count)), spans)


def layer_counts(data: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The keys of one level of a config that count its layers."""
    return ((k, v) for k, v in data.items() if is_count(v) and says(k) == LAYERS)


def by_number(value: Any) -> bool:
    """Whether a dictionary says something of single layers, by their numbers."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(str(k).isdigit() and isinstance(v, dict) for k, v in value.items())
    )


def _spans(data: dict[str, Any], count: int) -> dict[str, range]:
    """The layers of each key that counts some of them, in their order, where such keys together count all."""
    some = {k: n for k, n in layer_counts(data) if 0 < n < count}
    if len(some) < 2 or sum(some.values()) != count:
        return {}
    ends = list(accumulate(some.values()))
    return {key: range(end - some[key], end) for key, end in zip(some, ends, strict=True)}


def _of_layer(data: dict[str, Any], count: int, i: int) -> Iterator[Any]:
    """What a config says of layer ``i`` alone. Sizes are no kind of its own: each layer might have another."""
    for key, value in data.items():
        if _numbers_of_layers(key, value, count):
            yield i in value
        elif isinstance(value, list) and len(value) == count:
            yield value[i] if says(key) == KEPT or not all(map(is_count, value)) else None
        elif by_number(value):
            single = value.get(str(i), value.get(f"{i:02}", value.get(i, {})))
            yield {k: v for k, v in single.items() if says(k) == KEPT}
        elif is_count(value) and FIRST_LAYERS.search(key):
            yield i < value
        elif is_count(value) and LAST_LAYERS.search(key):
            yield i >= count - value


def _numbers_of_layers(key: str, value: Any, count: int) -> bool:
    """Whether a list holds numbers of layers, rather than one number for each layer."""
    if not isinstance(value, list) or not value or not all(map(is_count, value)) or not LAYER_NUMBERS.search(key):
        return False
    return sorted(set(value)) == value and value[0] >= 0 and value[-1] < count and (len(value) != count or count > 2)


def _period(key: str, value: Any, count: int, source: str) -> int:
    """After how many layers their kinds repeat, by one key: a list that is used over and over, or a number."""
    if isinstance(value, list) and len(value) < count and all(isinstance(v, str) for v in value):
        return len(value) if REPEATED.search(key) else 0
    by_code = is_count(value) and value <= count and EVERY_SO_MANY.search(key) and f".{key}" in source
    return value if by_code else 0


def is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
