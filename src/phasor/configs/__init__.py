"""Readers of model configs: config -> one `RotarySpec` per layer, every rope key used or refused."""

from .model import ModelRotary
from .read import read_config, read_parts

__all__ = ["ModelRotary", "read_config", "read_parts"]
