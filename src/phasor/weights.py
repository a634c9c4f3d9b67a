"""Where a checkpoint keeps q and k: the tensors of a model type, the rows of each head, the prefix of the layers."""

from .models.prefixes import attentions, find_prefix
from .models.weights import Gguf, Piece, Rows, Weights, pieces

__all__ = ["Gguf", "Piece", "Rows", "Weights", "attentions", "find_prefix", "pieces"]
