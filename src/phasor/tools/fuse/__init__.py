"""PyTorch graphs whose rotations become one operator each: exported programs, and what torch.compile compiles."""

from .compiled import inductor
from .fuse import fuse
from .report import FuseReport

__all__ = ["FuseReport", "fuse", "inductor"]
