"""Factors on the queries that grow with the position, and the scheme of `phasor.temperature` that gives them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from ..rotary.temperature import LogFloor, Power, Temperature
from .operator import Operator
from .sites import Site

EVEN = 1e-5  # relative: roundings of float32 factors
FACTORS, LENGTHS = (0.0, 16.0), (64, 1 << 26)  # between which a number of a config may be one


def varies(site: Site) -> bool:
    """Whether queries have factors that differ from token to token."""
    found = factors(site)
    return found is not None and bool((found / found[:1] - 1).abs().max() > EVEN)


def factors(site: Site) -> Tensor | None:
    """float64 ``[tokens]``: by how much the queries of each token are longer than the keys; None where heads differ."""
    q, k = (None if side.operator is None else lengths(side.operator) for side in (site.q, site.k))
    if q is None:
        return None
    return q if k is None or k.shape != q.shape else q / k


def lengths(seen: Operator) -> Tensor | None:
    """By how much each token becomes longer, beside plain numbers; None where its channels or its heads differ."""
    scale = (seen.passed.abs() if seen.passing else seen.scale.abs()) / abs(seen.factor)
    if not scale.numel():
        return None
    middle = scale.mean((0, 1))
    even = (scale - middle).abs() <= EVEN * middle
    return middle if bool(even.all()) else None


def temperature(seen: Iterable[tuple[Tensor, Tensor]], numbers: Mapping[str, Any]) -> Temperature | None:
    """The one scheme with numbers of the config that gives all factors; ``seen``: positions and factors of each call.

    >>> import torch
    >>> at = torch.tensor([0, 511, 5000])
    >>> temperature([(at, LogFloor(0.5, 512).at(at).double())], {"scale": 0.5, "floor": 512})
    LogFloor(beta=0.5, length=512, offset=0)
    """
    calls = list(seen)
    fits = [one for one in _candidates(numbers) if all(_near(one.at(at), factor) for at, factor in calls)]
    return fits[0] if len(fits) == 1 else None


def _near(mine: Tensor, theirs: Tensor) -> bool:
    return bool(((mine.double() - theirs).abs() <= EVEN * theirs).all())


def _candidates(numbers: Mapping[str, Any]) -> Iterator[LogFloor | Power]:
    yield Power()  # whose numbers stand in the code
    values = set(_leaves(numbers))
    for length in sorted(int(n) for n in values if n == int(n) and LENGTHS[0] <= n < LENGTHS[1]):
        for factor in sorted(n for n in values if FACTORS[0] < n < FACTORS[1]):
            for offset in (0, 1):
                yield LogFloor(factor, length, offset)
                yield Power(factor, length, offset)


def _leaves(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LENGTHS[1]:
        yield float(value)
