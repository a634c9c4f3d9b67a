"""Schemes for positions with several coordinates, one file each."""

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
]
