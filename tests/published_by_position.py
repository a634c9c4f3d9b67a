"""More rows for the table of `published`: encodings that go by positions alone, not by the content."""

import torch

from phasor import RotarySpec
from phasor.encodings import (
    FIRE,
    TISA,
    TUPE,
    ALiBi,
    BiPE,
    Encoding,
    FoPE,
    HoPE,
    KerpleLog,
    KerplePower,
    LieRE,
    Placed,
    PoPE,
    PRoPE,
    RoPEMixed,
    Rotary,
    Sandwich,
    StringCayley,
    StringCirculant,
    XPos,
    bipe_positions,
)  # fmt: skip
from published import HEAD_DIM, HEADS, LENGTH, SPEC, File, Published

TUPE_NAMES = {
    "P": "vectors.table.weight", "ln_g": "norm.weight", "ln_b": "norm.bias", "Wq": "q_proj.weight", "bq": "q_proj.bias",
    "Wk": "k_proj.weight", "bk": "k_proj.bias",
}  # fmt: skip
FIRE_NAMES = {
    "c": "c", "L": "L_multiplier", "W1": "mlp.0.weight", "b1": "mlp.0.bias", "W2": "mlp.2.weight", "b2": "mlp.2.bias",
}  # fmt: skip


def numbered(file: File) -> File:
    """Its tokens by their number: those at the near coordinates, then those at the far ones."""
    where = torch.cat((file["pos"], file["far_pos"])).T
    return {**file, "where": where, "pos": torch.arange(LENGTH), "far_pos": torch.arange(LENGTH, 2 * LENGTH)}


def in_segments(file: File) -> File:
    return {**file, "pos": bipe_positions(file["ids"][0], file["separators"].tolist())}


def placed(name: str, encoding: type[Encoding], *arguments: int, turned: bool = True, **learned: str) -> Published:
    names = {ours: "encoding." + theirs for ours, theirs in learned.items()}
    block = 4 if name == "liere_4" else None
    options = {"axes": 2, "block": block} if encoding is LieRE else {}
    return Published(
        lambda file: Placed(encoding(*arguments, **options), file["where"]), name, names, causal=False,
        given=numbered, turned=turned,
    )  # fmt: skip


def tupe(name: str, logits: str = "logits", out: str = "out", cls: bool = True) -> Published:
    relative = name == "tupe_r"
    names = TUPE_NAMES | ({"rel_table": "relative.weight"} if relative else {})
    return Published(
        lambda file: TUPE(HEADS, HEAD_DIM, LENGTH, relative=relative, cls=cls), name, names, causal=False,
        logits=logits, out=out,
    )  # fmt: skip


def fope(name: str, constant_sin: float) -> Published:
    names = {"sin_coef": "sin_coef", "cos_coef": "cos_coef"}
    return Published(lambda file: FoPE(HEADS, HEAD_DIM, 64, constant_sin=constant_sin), name, names)


def sandwich(name: str) -> Published:
    return Published(lambda file: Sandwich(HEADS, dim=int(file["p_dbar"]), first=int(file["p_first"])), name)


def p_rope(name: str) -> Published:
    return Published(lambda file: PRoPE(HEAD_DIM, float(file["p_p"]), interleaved=True), name)


def bipe(between: Encoding, step: int, out: str, turned: bool) -> Published:
    return Published(
        lambda file: BiPE(LENGTH, 16, between, step=step), "bipe", out=out, given=in_segments, turned=turned
    )


BY_POSITION = {
    "kerple log": Published(lambda file: KerpleLog(HEADS), "kerple_log", {"r1": "r1", "r2": "r2"}),
    "kerple power": Published(lambda file: KerplePower(HEADS), "kerple_power", {"r1": "r1", "r2": "r2"}),
    "fire": Published(lambda file: FIRE(HEADS, width=16, init_L=1.0), "fire", FIRE_NAMES),
    "sandwich": sandwich("sandwich"),
    "sandwich, listing": sandwich("sandwich_from0"),
    "tisa": Published(
        lambda file: TISA(HEADS), "tisa", {"amp": "amplitudes", "sharp": "sharpness", "off": "offsets"}, causal=False
    ),
    "tupe absolute": tupe("tupe_a"),
    "tupe relative": tupe("tupe_r"),
    "tupe absolute, no cls": tupe("tupe_a", "bias_no_cls", "none", cls=False),
    "xpos": Published(lambda file: XPos(SPEC, scale_base=float(file["p_scale_base"])), "xpos"),
    "p-rope 25": p_rope("p_rope_25"),
    "p-rope 75": p_rope("p_rope_75"),
    "hope": Published(lambda file: HoPE(HEAD_DIM, int(file["p_train_length"]), interleaved=True), "hope"),
    "fope": fope("fope", 0.0),
    "fope, code": fope("fope_code", 1.0),
    "pope": Published(lambda file: PoPE(HEADS, HEAD_DIM), "pope", {"delta": "delta"}, turned=False),
    "rope-mixed": placed("rope_mixed", RoPEMixed, HEADS, HEAD_DIM, freqs="frequencies"),
    "liere 8": placed("liere_8", LieRE, HEAD_DIM, raw="generators"),
    "liere 4": placed("liere_4", LieRE, HEAD_DIM, raw="generators"),
    "string cayley": placed(
        "string_cayley", StringCayley, HEADS, HEAD_DIM, turned=False, raw="generators", freqs="frequencies"
    ),
    "string circulant": placed("string_circulant", StringCirculant, HEADS, HEAD_DIM, coef="coefficients"),
    "randomised rotary": Published(lambda file: Rotary(SPEC), "randomised", causal=False),
    "bipe rotary": bipe(Rotary(RotarySpec(head_dim=HEAD_DIM)), 1, "out", turned=True),
    "bipe alibi": bipe(ALiBi(HEADS), 96, "out_alibi", turned=False),
}
