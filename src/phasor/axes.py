"""Schemes for positions with several coordinates: which coordinate turns which pair."""

from .rotary.axes import Alternating, Axes, Axial, InterleavedSections, Listed, Mixed, OneAxis, Sections, register_axes

__all__ = [
    "Alternating",
    "Axes",
    "Axial",
    "InterleavedSections",
    "Listed",
    "Mixed",
    "OneAxis",
    "Sections",
    "register_axes",
]
