"""The positions of a batch, checked against what the batch says of itself, and each mistake named."""

from .check import check
from .findings import Findings, PositionFinding
from .shards import check_shards

__all__ = ["Findings", "PositionFinding", "check", "check_shards"]
