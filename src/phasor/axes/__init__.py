"""Schemes for positions with several coordinates, one file each."""

from .axial import Axial
from .base import Axes
from .mixed import Mixed, mixed_frequencies
from .mrope import InterleavedSections, Sections
from .one import OneAxis

AXES: dict[str, type[Axes]] = {scheme.name: scheme for scheme in (OneAxis, Axial, Sections, InterleavedSections, Mixed)}

__all__ = [
    "AXES",
    "Axes",
    "Axial",
    "InterleavedSections",
    "Mixed",
    "OneAxis",
    "Sections",
    "mixed_frequencies",
]
