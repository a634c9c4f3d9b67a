"""Every candidate in the order in which they are tried: the simplest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .config_numbers import Numbers
from .even import divided, scaled_positions, stopped, stretched, stretched_and_slowed
from .lengths import lengthwise
from .lists import searched
from .ramps import llama3, ramped, yarn, yarn_paper
from .sight import Sight
from .solved import straight, with_scaling


def candidates(sight: Sight, config: Numbers) -> Iterator[dict[str, Any]]:
    """Fields to try, the simplest first; those of which the config speaks before the other scalings."""
    if sight.turning == 0:
        return
    ladder = sight.ladder()
    if sight.changed:
        yield from lengthwise(sight, config)
        return
    yield from with_scaling(straight(sight, config), None)
    order = sorted(_STATIC, key=lambda name: config.words.index(name) if name in config.words else 99)
    for literal in (False, True):  # a factor that is what it is only once no formula gives it
        for name in order:
            yield from _STATIC[name](sight, config, ladder, literal)
    if not sight.exact:
        yield from scaled_positions(sight, config, ladder)


_STATIC: dict[str, Callable[[Sight, Numbers, list[float], bool], Iterator[dict[str, Any]]]] = {
    "linear": divided,
    "proportional": stopped,
    "ntk": stretched,
    "ntk_fixed": stretched_and_slowed,
    "llama3": ramped(llama3),
    "yarn": ramped(yarn),
    "yarn_paper": ramped(yarn_paper),
    "longrope": searched,
}
