"""Where a cost comes from: a whole layer first, then its heads, then halves of their pairs, the dearest first."""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

SPLIT = 0.001  # nats per token: what costs less, stopped and slowed, is not looked into


class Place(NamedTuple):
    """Pairs ``first`` to ``last`` (not included) of one head of one layer; ``head`` None: of all its heads."""

    layer: int
    head: int | None
    first: int
    last: int


@dataclass(frozen=True)
class PlaceCost:
    """What it adds to the loss to stop the pairs of a place, and to rotate them half as fast, in nats per token."""

    place: Place
    stopped: float
    slowed: float

    @property
    def worth(self) -> float:
        return max(abs(self.stopped), abs(self.slowed))


def costs(
    cost: Callable[[Place, float], float],
    layers: Mapping[int, tuple[int, int]],
    budget: int,
    step: Callable[[], None] = lambda: None,
) -> list[PlaceCost]:
    """All places that were measured, in the order of their measuring: at most ``budget`` of them.

    ``cost(place, speed)``: of rotating its pairs at ``speed`` times their own (0: stopped). ``layers``: how many heads
    and pairs each rotated layer has. ``step`` is called after each place. A place that costs less than `SPLIT` is not
    split, so pairs inside it that undo each other are not seen.
    """
    done: list[PlaceCost] = []
    dearest: list[tuple[float, Place]] = []

    def measure(places: list[Place]) -> None:
        for place in places[: budget - len(done)]:
            measured = PlaceCost(place, cost(place, 0.0), cost(place, 0.5))
            done.append(measured)
            heapq.heappush(dearest, (-measured.worth, place))
            step()

    measure([Place(layer, None, 0, pairs) for layer, (_, pairs) in layers.items()])
    while dearest and len(done) < budget:
        worth, place = heapq.heappop(dearest)
        if -worth < SPLIT:
            break
        measure(_parts(place, layers[place.layer][0]))
    return done


def _parts(place: Place, heads: int) -> list[Place]:
    if place.head is None:
        return [place._replace(head=head) for head in range(heads)]
    middle = (place.first + place.last) // 2
    return [place._replace(last=middle), place._replace(first=middle)] if middle > place.first else []
