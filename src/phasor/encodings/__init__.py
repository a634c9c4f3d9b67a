"""Position encodings behind one shape of API, `Encoding`: one file each, read ``base.py`` first."""

from .abacus import Abacus, abacus_places
from .alibi import ALiBi, alibi_slopes
from .attention.mask import Mask
from .base import Encoding, Tokens
from .bipe import BiPE, bipe_positions
from .by_coordinates import Placed
from .cape import CAPE, CAPE2d
from .complex_embedding import ComplexEmbedding
from .cope import CoPE
from .dape import DAPE, DAPEv2
from .deberta import DeBERTa
from .fire import FIRE
from .floater import FLOATER
from .fope import FoPE
from .fox import FoX
from .grouped import DualChunk, Grouped, ReRoPE, SelfExtend
from .high_frequency import HoPE, PRoPE
from .interleaved import WindowedRotary, interleaved_nope
from .kerple import KerpleLog, KerplePower
from .learned import Learned
from .liere import LieRE
from .none import NoPE
from .path import PaTH, PaTHFoX
from .pope import PoPE
from .randomised import randomised_positions
from .rope_mixed import RoPEMixed
from .rotary import Rotary
from .sandwich import Sandwich
from .shaw import Shaw
from .sinusoidal import Sinusoidal, shift_matrix, sinusoids
from .stick_breaking import StickBreaking
from .string_rotation import StringCayley, StringCirculant
from .t5 import T5Bias, t5_bucket
from .tempered import Tempered
from .tisa import TISA
from .transformer_xl import TransformerXL
from .tupe import TUPE
from .xpos import XPos

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
    "KerpleLog",
    "KerplePower",
    "FIRE",
    "Sandwich",
    "TISA",
    "TUPE",
    "XPos",
    "PRoPE",
    "HoPE",
    "FoPE",
    "PoPE",
    "RoPEMixed",
    "LieRE",
    "StringCayley",
    "StringCirculant",
    "Placed",
    "CAPE",
    "CAPE2d",
    "ComplexEmbedding",
    "FLOATER",
    "randomised_positions",
    "BiPE",
    "bipe_positions",
    "Abacus",
    "abacus_places",
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
