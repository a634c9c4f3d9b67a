"""The encodings that the lab trains, by name; another package adds its own with one call."""

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from phasor import Rotary, RotarySpec
from phasor.encodings import (
    CAPE,
    DAPE,
    FIRE,
    TISA,
    TUPE,
    ALiBi,
    CoPE,
    DAPEv2,
    DeBERTa,
    Encoding,
    FoPE,
    FoX,
    HoPE,
    KerpleLog,
    KerplePower,
    Learned,
    LieRE,
    NoPE,
    PaTH,
    PaTHFoX,
    PoPE,
    PRoPE,
    Sandwich,
    Shaw,
    Sinusoidal,
    StickBreaking,
    StringCayley,
    StringCirculant,
    T5Bias,
    Tempered,
    TransformerXL,
    XPos,
    interleaved_nope,
)
from phasor.support.registry import register
from phasor.temperature import LogFloor

NEAR = 16  # farther distances share a vector (Shaw et al. 2018, section 4.2)
Make = Callable[[Any], Encoding | Sequence[Encoding]]  # of a `ModelConfig`, which has a name of this table


def _each_layer(make: Callable[[Any], Encoding]) -> Make:
    return lambda c: [make(c) for _ in range(c.layers)]


def _rotary(c: Any) -> RotarySpec:
    return RotarySpec(head_dim=c.head_dim, base=c.base)


# What all layers share, or, as a list, what each of them has (as in the papers).
ENCODINGS: dict[str, Make] = {
    "rotary": lambda c: Rotary(_rotary(c)),
    "alibi": lambda c: ALiBi(c.heads),
    "t5": lambda c: T5Bias(c.heads, bidirectional=False),
    "sinusoidal": lambda c: Sinusoidal(c.dim),
    "learned": lambda c: Learned(c.length, c.dim),
    "transformer_xl": _each_layer(lambda c: TransformerXL(c.heads, c.head_dim, c.dim)),
    "shaw": _each_layer(lambda c: Shaw(c.head_dim, NEAR)),
    "none": lambda c: NoPE(),
    "tempered": _each_layer(lambda c: Tempered(c.heads, scheme=LogFloor(beta=0.1, length=c.length))),
    "interleaved_nope": lambda c: interleaved_nope(
        c.layers, _rotary(c), window=-(-c.length // 2), every=max(2, min(c.layers, 4))
    ),
    "cope": _each_layer(lambda c: CoPE(c.head_dim, c.length + 1)),
    "dape": _each_layer(lambda c: DAPE(ALiBi(c.heads), c.heads)),
    "dape_v2": _each_layer(lambda c: DAPEv2(ALiBi(c.heads), c.heads)),
    "disentangled": _each_layer(lambda c: DeBERTa(c.heads, c.head_dim, c.dim, NEAR)),
    "fox": _each_layer(lambda c: FoX(c.heads, c.dim)),
    "path": _each_layer(lambda c: PaTH(c.heads, c.head_dim, c.dim, kv_heads=c.kv_heads)),
    "path_fox": _each_layer(lambda c: PaTHFoX(c.heads, c.head_dim, c.dim, kv_heads=c.kv_heads)),
    "stick_breaking": lambda c: StickBreaking(),
    "kerple_log": _each_layer(lambda c: KerpleLog(c.heads)),
    "kerple_power": _each_layer(lambda c: KerplePower(c.heads)),
    "fire": lambda c: FIRE(c.heads, init_L=c.length),
    "sandwich": lambda c: Sandwich(c.heads),
    "tisa": _each_layer(lambda c: TISA(c.heads)),
    "tupe": lambda c: TUPE(c.heads, c.head_dim, c.length, relative=True, cls=False),
    "xpos": lambda c: XPos(_rotary(c)),
    "p_rope": lambda c: PRoPE(c.head_dim, 0.75, base=c.base),
    "hope": lambda c: HoPE(c.head_dim, c.length, base=c.base),
    "fope": _each_layer(lambda c: FoPE(c.heads, c.head_dim, c.length, base=c.base)),
    "pope": _each_layer(lambda c: PoPE(c.heads, c.head_dim, base=c.base)),
    "liere": _each_layer(lambda c: LieRE(c.head_dim, block=gcd(8, c.head_dim), num_heads=c.heads)),
    "string_cayley": _each_layer(lambda c: StringCayley(c.heads, c.head_dim, axes=1, base=c.base)),
    "string_circulant": _each_layer(lambda c: StringCirculant(c.heads, c.head_dim, axes=1)),
    "cape": lambda c: CAPE(c.dim, global_shift=c.length / 2, local_shift=0.5, stretch=1.1),
}


def register_encoding(name: str, make: Make) -> None:
    """Add an encoding to all that the lab can train, for this process.

    ``make`` gets the `ModelConfig` and gives one encoding for all layers, or a list with one for each. Afterwards it is
    a model's ``encoding=name``, and `compare` has it among all. Raises ``ValueError`` for a name that is taken.

    >>> from phasor_lab.lab import ModelConfig
    >>> register_encoding("weak_alibi", lambda c: ALiBi(c.heads, total_heads=2 * c.heads, head_offset=c.heads))
    >>> ModelConfig(encoding="weak_alibi").encoding
    'weak_alibi'
    >>> del ENCODINGS["weak_alibi"]  # as it was, for the other tests
    """
    register(ENCODINGS, "encoding", name, make)
