"""Schemes for positions with several coordinates, one file each."""

from ...support.registry import import_all
from .alternating import Alternating
from .axial import Axial
from .base import AXES, Axes, register_axes
from .listed import Listed
from .mixed import Mixed, mixed_frequencies
from .mrope import InterleavedSections, Sections
from .one import OneAxis

import_all(__name__, __path__)  # each registers its own

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
