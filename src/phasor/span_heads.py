"""Heads that score spans by rotary queries and keys (GlobalPointer), on any encoder; their losses and decoding."""

from .encodings.heads import (
    EfficientGlobalPointer,
    GlobalPointer,
    Span,
    SpanHead,
    decode,
    load_published,
    multilabel_cross_entropy,
    select,
    sparse_multilabel_cross_entropy,
)

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
