"""Schemes for positions with several coordinates, one file each."""

from ...support.registry import check_scheme, register
from .alternating import Alternating
from .axial import Axial
from .base import Axes
from .listed import Listed
from .mixed import Mixed, mixed_frequencies
from .mrope import InterleavedSections, Sections
from .one import OneAxis

AXES: dict[str, type[Axes]] = {
    scheme.name: scheme for scheme in (OneAxis, Axial, Sections, InterleavedSections, Alternating, Listed, Mixed)
}


def register_axes(cls: type[Axes]) -> type[Axes]:
    """Register axes of your own, so that a `RotarySpec` can have them, and be written to data and read back.

    ``cls`` is a frozen dataclass that inherits from `Axes` and has a ``name``; it is returned, so this is a decorator,
    too. Raises ``ValueError`` for a name that is taken and for a class that is no such thing.

    >>> register_axes(OneAxis) is OneAxis  # what is registered already may be registered again
    True
    """
    check_scheme("scheme of axes", cls, Axes)
    register(AXES, "scheme of axes", getattr(cls, "name", None), cls)
    return cls


__all__ = [
    "AXES",
    "Alternating",
    "Axes",
    "Axial",
    "InterleavedSections",
    "Listed",
    "Mixed",
    "OneAxis",
    "Sections",
    "mixed_frequencies",
    "register_axes",
]
