"""LFM, MiMo and Step: convolutions, windows, and bases layer by layer."""

from dataclasses import replace

from ..reading.keys import Keys, agreed
from ..reading.layers import BY_NAME, Layers, alike, listed_as, must_say
from ..reading.refusal import Reason, Refused
from ..reading.rope import refuse_gaps
from ..reading.row import Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import Names, Rope, TextRow
from ..weights import Weights
from .weight_names import LAYERNORM

LFM3 = {
    "sliding_attention": Rope(10_000.0, top=(), bare=1_000_000.0),
    "full_attention": Rope(1_000_000.0, {"rope_type": "proportional", "partial_rotary_factor": 0.5}, top=()),
}
MIMO_V2_FLASH = {
    "full_attention": Rope(5_000_000.0, {"partial_rotary_factor": 0.334}, top=()),
    "sliding_attention": Rope(10_000.0, {"partial_rotary_factor": 0.334}, top=()),
}
MIMO_SAYS = {"rope_theta": 5_000_000, "swa_rope_theta": 10_000, "partial_rotary_factor": 0.334}
STEP3P5 = {"full_attention": Rope(None, flat=("rope_scaling",)), "sliding_attention": Rope(None)}


def by_fours(keys: Keys, count: int) -> list[str]:
    """LFM3: full attention in layers 2, 6, 10, …, windows in 4, 8, 12, …, convolutions between."""
    words = {2: "full_attention", 0: "sliding_attention"}
    return [words.get(i % 4, "conv") if i else "conv" for i in range(count)]


def first_and_every_sixth(keys: Keys, count: int) -> list[str]:
    """MiMo-V2-Flash: full attention in layers 0, 5, 11, …"""
    return ["sliding_attention" if i and (i + 1) % 6 else "full_attention" for i in range(count)]


def full_only(row: TextRow, keys: Keys) -> TextRow:
    """Step 3.7 scales its layers with full attention only, and says so."""
    agreed([("the code of this family", ["full_attention"]), *keys.entries("yarn_only_types")])
    for path, data in keys.entries("rope_scaling"):
        if isinstance(data, dict) and data.keys() & row.kinds.keys():
            raise Refused(
                f"{path} must not name types of layers: the code of {row.config} puts its keys into the parameters "
                "of full_attention; move the types to rope_parameters",
                Reason.UNREAD,
                path,
            )
    return row


def mimo(row: TextRow, keys: Keys) -> TextRow:
    """MiMo's checkpoints state bases, share and width at the top, where its class reads none of them."""
    widths = keys.entries("head_dim") or [(f"head_dim ({row.config}'s default)", row.head_dim)]
    agreed([*widths, *keys.entries("swa_head_dim")])
    for name, value in MIMO_SAYS.items():
        agreed([(f"the default of {row.config}", value), *keys.entries(name)])
        keys.explain("no effect: its class does not read it, and has the same by default", name)
    keys.explain("the width of all heads", "swa_head_dim")
    refuse_gaps(row, keys, "rope_theta", "partial_rotary_factor")
    return row


STEP_PARTS = {"vision_config": always("step3p5_vision"), "text_config": always("step3p5")}

# fmt: off
ROWS: dict[str, Row] = {
    **with_text("lfm2", "lfm2_vl"),
    **with_text("lfm3", "lfm3_vl"),
    "lfm2": TextModel("Lfm2Config", base=1_000_000.0, hidden=2560, heads=32, kv_heads=8, layers=32, length=128_000,
        reads={"full_attn_idxs": "the layers with attention"}, layer_types=Layers(listed_as("full_attn_idxs", "conv"),
        BY_NAME, kinds=("conv",)), weights=LAYERNORM),
    "lfm2_moe": TextModel("Lfm2MoeConfig", base=1_000_000.0, hidden=2048, heads=32, kv_heads=8, layers=32,
        length=128_000, layer_types=Layers(must_say, BY_NAME, kinds=("conv",)), weights=LAYERNORM),
    "lfm3": TextModel("Lfm3Config", rope=LFM3, hidden=2048, heads=16, kv_heads=4, layers=24, head_dim=128,
        length=128_000, layer_types=Layers(by_fours, BY_NAME, kinds=("conv",)), tables="float32"),
    "mimo_v2_flash": TextModel("MiMoV2FlashConfig", rope=MIMO_V2_FLASH, hidden=4096, heads=64, kv_heads=4, layers=48,
        head_dim=192, length=131_072, layer_types=Layers(first_and_every_sixth, {**BY_NAME,
        "hybrid_layer_pattern": {0: "full_attention", 1: "sliding_attention"}}), partial=1.0, shares=(), before=mimo,
        weights=Weights(uneven=True)),
    "step3p5": TextModel("Step3p7TextConfig", rope=STEP3P5, hidden=4096, heads=64, kv_heads=8, layers=45, head_dim=128,
        length=128_000, names=Names(kv_heads=("num_key_value_heads", "num_attention_groups")), bases="rope_theta",
        reads={"yarn_only_types": "rope_scaling holds for full attention only"},
        layer_types=Layers(alike("full_attention"), BY_NAME), partial=1.0, before=full_only),
}
# fmt: on
# flat configs, whose text keys stand at the top beside their parts
ROWS |= {"step3p7": replace(ROWS["step3p5"], composite=True, parts=STEP_PARTS)}
