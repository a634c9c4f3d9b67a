"""Rotary with the fast pairs only: the slow ones carry no position."""

import math
from decimal import Decimal
from typing import Any

from ..rotary.frequencies import inverse_frequencies
from ..rotary.scaling import Proportional
from ..rotary.spec import RotarySpec
from ..support.checks import number, whole
from .rotary import Rotary


class PRoPE(Rotary):
    """p-RoPE: the fastest ``int(fraction * head_dim / 2)`` pairs rotate as in RoPE, all others not at all.

    It is ``Rotary`` with the scaling `phasor.scaling.Proportional`; ``layout`` are fields of `RotarySpec`. All pairs
    are RoPE (``fraction=1``), none is `NoPE`.

    Source: Barbero et al. 2024, arXiv:2410.06205, section 6.

    >>> PRoPE(head_dim=8, fraction=0.75).spec.inv_freq().tolist()
    [1.0, 0.1, 0.01, 0.0]
    """

    def __init__(self, head_dim: int, fraction: float, *, base: float = 10_000.0, **layout: Any) -> None:
        super().__init__(RotarySpec(head_dim=head_dim, base=base, scaling=Proportional(fraction), **layout))


class HoPE(Rotary):
    """High-frequency rotary: pairs that do not turn once within ``trained`` tokens do not turn at all.

    What such a pair does beyond the trained length, training never saw; here there is nothing to see. Kept are
    frequencies of at least ``2 pi / trained``. (Two later papers have the name HoPE for other things.)

    Source: Chen et al. 2024, arXiv:2410.21216, section 4.

    >>> HoPE(head_dim=8, trained=100).spec.inv_freq().tolist()  # periods of 6, 63, 628 and 6283 tokens
    [1.0, 0.1, 0.0, 0.0]
    """

    def __init__(self, head_dim: int, trained: int, *, base: float = 10_000.0, **layout: Any) -> None:
        pairs = RotarySpec(head_dim=head_dim, base=base, **layout).pairs
        kept = len(fast_frequencies(2 * pairs, trained, base))
        scaling = Proportional((kept + 0.5) / pairs) if kept < pairs else None
        super().__init__(RotarySpec(head_dim=head_dim, base=base, scaling=scaling, **layout))


def fast_frequencies(head_dim: int, trained: int, base: float) -> list[Decimal]:
    """Those of RoPE that turn at least once in ``trained`` tokens."""
    whole("head_dim", head_dim, at_least=2)
    number("base", base, above=1)
    whole("trained", trained, at_least=7)  # the fastest pair turns once in 6.3
    return [f for f in inverse_frequencies(Decimal(base), head_dim) if trained * float(f) >= 2 * math.pi]
