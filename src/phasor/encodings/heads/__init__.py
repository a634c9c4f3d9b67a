"""Heads on any encoder: spans scored by rotary queries and keys (GlobalPointer), their losses and their decoding."""

from .decode import Span, decode, select
from .head import EfficientGlobalPointer, GlobalPointer, SpanHead
from .losses import multilabel_cross_entropy, sparse_multilabel_cross_entropy
from .published import load_published

__all__ = [
    "EfficientGlobalPointer",
    "GlobalPointer",
    "Span",
    "SpanHead",
    "decode",
    "load_published",
    "multilabel_cross_entropy",
    "select",
    "sparse_multilabel_cross_entropy",
]
