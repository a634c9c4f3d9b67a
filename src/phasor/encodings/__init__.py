"""Position encodings behind one shape of API, `Encoding`: one file each, read ``base.py`` first."""

from .alibi import ALiBi, alibi_slopes
from .attention.mask import Mask
from .base import Encoding, Tokens
from .cope import CoPE
from .dape import DAPE, DAPEv2
from .deberta import DeBERTa
from .fox import FoX
from .grouped import DualChunk, Grouped, ReRoPE, SelfExtend
from .interleaved import WindowedRotary, interleaved_nope
from .learned import Learned
from .none import NoPE
from .path import PaTH, PaTHFoX
from .rotary import Rotary
from .shaw import Shaw
from .sinusoidal import Sinusoidal, shift_matrix, sinusoids
from .stick_breaking import StickBreaking
from .t5 import T5Bias, t5_bucket
from .tempered import Tempered
from .transformer_xl import TransformerXL

__all__ = [
    "Encoding",
    "Mask",
    "Tokens",
    "NoPE",
    "Sinusoidal",
    "sinusoids",
    "shift_matrix",
    "Learned",
    "Rotary",
    "Grouped",
    "SelfExtend",
    "ReRoPE",
    "DualChunk",
    "ALiBi",
    "alibi_slopes",
    "T5Bias",
    "t5_bucket",
    "Shaw",
    "TransformerXL",
    "CoPE",
    "DAPE",
    "DAPEv2",
    "DeBERTa",
    "FoX",
    "PaTH",
    "PaTHFoX",
    "StickBreaking",
    "WindowedRotary",
    "interleaved_nope",
    "Tempered",
]
