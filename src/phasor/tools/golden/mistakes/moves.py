"""What goes wrong when rotated keys move: the factor that they have already, the positions, one axis of several."""

from collections.abc import Iterator

from ....rotary.scaling import AtLength
from ..case import Mistake, RotationCase, with_fields


def of_moves(case: RotationCase) -> Iterator[Mistake]:
    """Nothing, unless the case moves keys from ``case.old``."""
    if case.old is None:
        return
    old, by = case.old, case.positions
    for text, positions in (
        ("keys were rotated by their new position on top of the old one", old + by),
        ("keys were rotated back from the old position, and not on to the new one", -old),
        ("all keys moved as far as the first one", by[:, :1].expand(by.shape)),
    ):
        yield Mistake("moved", text, with_fields(positions=positions))
    for axis in range(len(by)) if len(by) > 1 else ():
        alone = by.clone()
        alone[[a for a in range(len(by)) if a != axis]] = 0
        yield Mistake("moved", f"keys moved on axis {axis} alone, of {len(by)}", with_fields(positions=alone))
        yield Mistake("moved", f"keys moved on all axes by the distance of axis {axis}",
                      with_fields(positions=by[axis : axis + 1].expand(by.shape)))  # fmt: skip
    factor = _factor_of_keys(case)
    if factor == 1:
        return
    has = f"the attention factor {factor:.9g}, which the keys have already,"
    for text, gain in (
        (f"{has} is in the cos and sin that move them", factor),
        (f"{has} went in twice more: rotated back and on with tables that hold it", factor**2),
        (f"{has} was lost: keys were rotated back by the inverse, and on without it", 1 / factor),
    ):
        yield Mistake("moved_factor", text, with_fields(cos_factor=gain, sin_factor=gain))


def _factor_of_keys(case: RotationCase) -> float:
    """The factor that keys of this spec have in their magnitude, which what moves them leaves alone."""
    scaling = case.spec.scaling
    return scaling.scaling.attention_factor(scaling.seq_len) if isinstance(scaling, AtLength) else 1.0
