"""What goes wrong when rotated keys move: the factor that they have already, the positions, one axis of several."""

from collections.abc import Iterator

from ....rotary.scaling import AtLength
from ..case import RotationCase, Row, with_factor, with_fields


def of_moves(case: RotationCase) -> Iterator[Row]:
    """Nothing, unless the case moves keys from ``case.old``."""
    if case.old is None:
        return
    old, by = case.old, case.positions
    ways = [
        ("keys were rotated by their new position on top of the old one", old + by),
        ("keys were rotated back from the old position, and not on to the new one", -old),
        ("all keys moved as far as the first one", by[:, :1].expand(by.shape)),
    ]
    for axis, row in enumerate(by) if len(by) > 1 else ():
        alone = by.new_zeros(by.shape)
        alone[axis] = row
        ways.append((f"keys moved on axis {axis} alone, of {len(by)}", alone))
        ways.append((f"keys moved on all axes by the distance of axis {axis}", row.expand(by.shape)))
    yield from (("moved", text, with_fields(positions=positions)) for text, positions in ways)
    scaling = case.spec.scaling
    factor = scaling.scaling.attention_factor(scaling.seq_len) if isinstance(scaling, AtLength) else 1.0
    has = f"the attention factor {factor:.9g}, which the keys have already,"
    for text, gain in (
        (f"{has} is in the cos and sin that move them", factor),
        (f"{has} went in twice more: rotated back and on with tables that hold it", factor**2),
        (f"{has} was lost: keys were rotated back by the inverse, and on without it", 1 / factor),
    ):
        if factor != 1:
            yield "moved_factor", text, with_factor(gain)
