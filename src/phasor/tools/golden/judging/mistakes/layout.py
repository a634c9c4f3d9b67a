"""Channels and heads in the wrong places."""

from collections.abc import Callable, Iterator

from .....rotary.axes import OneAxis
from .....rotary.spec import RotarySpec
from ..case import Case
from .mistake import Mistake, with_fields, with_spec


def of_layout(spec: RotarySpec) -> Iterator[Mistake]:
    names = {True: "interleaved (2i, 2i + 1)", False: f"halves (i, i + {spec.pairs})"}
    there, here = names[not spec.interleaved], names[spec.interleaved]
    says = f"pairs are {there} there and must be {here}"
    yield Mistake("layout", says, with_spec(interleaved=not spec.interleaved, permuted=False, blocks=1))
    if spec.blocks > 1:
        says = f"pairs are halves of all {spec.rotary_dim} channels there, and must be halves inside each of"
        yield Mistake("layout", f"{says} {spec.blocks} blocks", with_spec(blocks=1))
    for moved in ("to halves", "to interleaved"):
        says = (
            f"the values are right but the channels are permuted from {_other(moved)} {moved}; scores are not touched"
        )
        yield Mistake("permuted", says, with_fields(moved=moved))
    if spec.blocks == 1 and not spec.permuted and not spec.second:
        says = f"cos and sin lie as for {there} pairs there, and the rotation is that of {here} ones"
        yield Mistake("layout", says, with_fields(crossed=True), alone=True)
    way = "forwards" if spec.reverse else "backwards"
    yield Mistake("direction", f"it turns {way}: the sign of sin is reversed", with_spec(reverse=not spec.reverse))


def _other(moved: str) -> str:
    return "interleaved" if moved == "to halves" else "halves"


def of_heads(spec: RotarySpec) -> Iterator[Mistake]:
    for places in (1, -1):
        side = "before" if places > 0 else "after"
        says = f"the heads have moved by {places}: each holds what belongs to the one {side} it"
        yield Mistake("heads", says, with_fields(rolled=places), alone=True)
    if isinstance(spec.axes, OneAxis) and spec.frequencies is None and spec.exponent_dim is None and not spec.learned:
        says = "one ladder of frequencies runs over all heads, and each head must have its own"
        yield Mistake("heads", says, _shared("split"), alone=True)
        if spec.blocks == 1 and not spec.permuted and spec.rotary_dim == spec.head_dim:
            says = "all heads are turned as one wide head, and each must be turned by itself"
            yield Mistake("heads", says, _shared("wide"), alone=True)


def _shared(how: str) -> Callable[[Case], Case]:
    """One ladder over all heads, which no scaling has that holds a number for each pair."""

    def change(case: Case) -> Case:
        width = 2 * case.spec.rotary_dim
        case.spec.replace(head_dim=width, rotary_dim=width, trailing=False)  # ValueError where it has none
        return case.replace(shared=how)

    return change
