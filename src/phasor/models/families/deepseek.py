"""DeepSeek and its heirs: latent attention, whose last channels rotate."""

from dataclasses import replace

from ...rotary.model_rotary import ModelRotary
from ...rotary.scaling import Proportional, YaRN
from ..reading.indexer import Indexer
from ..reading.keys import Keys, Reading, agreed
from ..reading.layers import BY_NAME, LISTED, Head, Layers, alike
from ..reading.refusal import Reason, Refused
from ..reading.rope import refuse_gaps
from ..reading.row import CompositeModel, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import Names, Rope, SpecFields, TextRow
from ..weights import Rows, Weights
from .complex_products import COMPLEX, POLAR
from .weight_names import LATENT, LIGHTNING, POOLED_INDEXER

EITHER = ("rope_scaling", "rope_parameters")
DEEPSEEK_V4 = {
    "main": Rope(10_000.0, layer_types=("sliding_attention",)),
    "compress": Rope(
        160_000.0,
        top=("compress_rope_theta",),
        flat=EITHER,
        layer_types=("compressed_sparse_attention", "heavily_compressed_attention", "full_attention", "attention"),
    ),
}
DOTS3_NOTE = {
    "indexed_attention": Rope(80_000_000.0, flat=EITHER),
    "full_attention": Rope(80_000_000.0, flat=EITHER),
    "sliding_attention": Rope(50_000.0, top=("swa_rope_theta",), flat=EITHER, bare=80_000_000.0),
}


RATIOS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
POOLED = ("keys are pooled and stand at the first position of their block",)


def compressed(keys: Keys, count: int) -> list[str]:
    """DeepSeek-V4: two layers that compress heavily, then both kinds in turn."""
    words = ["heavily_compressed_attention", "compressed_sparse_attention"]
    return [words[0] if i < 2 else words[(i - 2) % 2] for i in range(count)]


def base_at_the_top(row: TextRow, keys: Keys) -> TextRow:
    """DeepSeek-V4 takes its bases from the top wherever the dictionary names no layers."""
    for path, data in keys.entries(*row.dicts):
        named = data.keys() & row.kinds.keys() if isinstance(data, dict) else set()
        if len(named) == 1:
            raise Refused(
                f"{path} names one of {' and '.join(row.kinds)}: the code reads them together; add both",
                Reason.AMBIGUOUS,
                path,
            )
        if isinstance(data, dict) and not named and data.get("rope_theta") is not None:
            top = keys.get("compress_rope_theta") or 160_000.0
            if data["rope_theta"] != top:
                raise Refused(
                    f"{path}.rope_theta is {data['rope_theta']!r}, but the code takes compress_rope_theta, {top!r}, "
                    "for a dictionary that names no layers; keep that",
                    Reason.UNREAD,
                    f"{path}.rope_theta",
                )
    refuse_gaps(row, keys, "rope_theta", "partial_rotary_factor", yarn=("attention_factor",))
    return row


def last_channels(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """DeepSeek-V4 rotates the last channels, and scales neither cos and sin nor the softmax."""
    scaling = fields["scaling"]
    if isinstance(scaling, YaRN) and scaling.attention is None:
        scaling = replace(scaling, attention=1.0)
    return {**fields, "trailing": True, "scaling": scaling}


def rotate_back(model: ModelRotary, keys: Keys) -> ModelRotary:
    """DeepSeek-V4 rotates v, which is k, and rotates the output of its attention back."""
    return replace(model, targets=("q", "k", "v", "output"))


def not_proportional(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Dots 3's frequencies would then be those of whole heads, of which it rotates a part."""
    if isinstance(fields["scaling"], Proportional):
        raise Refused(
            f"the code of {reading.model_type} rotates qk_rope_head_dim channels, and proportional scaling forms "
            "frequencies for head_dim of them; remove it, or describe the encoding with RotarySpec yourself",
            Reason.BEYOND,
        )
    return fields


def one_width(row: TextRow, keys: Keys) -> TextRow:
    """LongCat forms frequencies for head_dim channels and rotates qk_rope_head_dim of them."""
    path = keys.places[0][0]
    stated = [keys.entries(name) or [(f"{path}{name} (by default)", 64)] for name in ("head_dim", "qk_rope_head_dim")]
    agreed([pair for pairs in stated for pair in pairs])
    keys.explain("the channels that rotate", "head_dim")
    return row


def by_group(keys: Keys, count: int) -> list[str]:
    """Bailing: the last layer of each group has attention."""
    group = keys.whole("layer_group_size") or 6
    return ["linear_attention" if (i + 1) % group else "full_attention" for i in range(count)]


def some_indexed(keys: Keys, count: int) -> list[str]:
    """Dots 3: every fourth layer and the first two, or all of them where windows are switched off."""
    windows = keys.flag("use_sliding_window")
    keys.explain("layers with windows" if windows else "no layer has a window", "use_sliding_window")
    if windows is False:
        return ["indexed_attention"] * count
    return ["indexed_attention" if i < 2 or i % 4 == 1 else "sliding_attention" for i in range(count)]


def sliding_widths(keys: Keys, words: tuple[str, ...], heads: list[Head]) -> list[Head]:
    """Dots 3's first spelling: ``swa_`` before the names; the rotated channels are what the unrotated ones leave."""
    if "sliding_attention" not in words:
        return heads
    nope, whole = keys.size("swa_qk_nope_head_dim") or 192, keys.size("swa_head_dim") or 256
    rotated = keys.size("swa_qk_rope_head_dim") or whole - nope
    names = ("swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "swa_head_dim")
    keys.explain(f"sliding_attention layers: {nope} + {rotated} channels", *names)
    if rotated < 1:
        raise ValueError(f"swa_head_dim must be above swa_qk_nope_head_dim {nope}, got {whole}")
    narrow = Head(nope + rotated, rotated)
    return [narrow if word == "sliding_attention" else head for word, head in zip(words, heads, strict=True)]


# fmt: off
ROWS: dict[str, Row] = {
    **with_text("llama", "deepseek_vl", "deepseek_vl_hybrid"),
    **with_text("deepseek_v3", "kimi_k25"),
    "axk1": TextModel("AXK1Config", base=10_000.0, hidden=7168, heads=64, kv_heads=64, layers=61, length=32_768,
        mla=(128, 64), interleave_key=True, interleaved=True, permuted=True, weights=Weights(rows=LATENT)),
    "axk2": TextModel("AXK2Config", base=10_000.0, hidden=2048, heads=32, kv_heads=32, layers=48, length=131_072,
        layer_types=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), mla=(64, 32),
        interleaved=True, permuted=True, sub_models={"indexer": Indexer(128, 16, weights=LIGHTNING)},
        weights=Weights(rows=(Rows("q_gate_proj", "qg", blocks="heads"), Rows("kv_a_proj_with_mqa", "cr"))),
        published=Weights(rows=(Rows("q_b_proj", "qg", blocks="heads"), Rows("kv_a_proj_with_mqa", "cr")),
        source="read")),
    "bailing_hybrid": TextModel("BailingHybridConfig", base=6_000_000.0, hidden=2560, heads=32, kv_heads=32, layers=42,
        length=262_144, names=Names(length=("max_position_embeddings", "model_max_length")),
        layer_types=Layers(by_group, BY_NAME, kinds=("linear_attention",)), mla=(128, 64), interleaved=True,
        permuted=True, weights=Weights(rows=LATENT)),
    "deepseek_ocr2_text": TextModel("DeepseekOcr2TextConfig", base=10_000.0, hidden=4096, heads=32, layers=32,
        length=2048, names=Names(head_dim=())),
    "deepseek_ocr2_vision": CompositeModel(parts={"encoder_config": always("deepseek_ocr2_encoder")}),
    "deepseek_v2": TextModel("DeepseekV2Config", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        scheme_names={"deepseek_yarn": "yarn"}, mla=(128, 64), interleaved=True, tables="float32",
        notes=(POLAR, COMPLEX), weights=Weights(rows=LATENT)),
    "deepseek_v3": TextModel("DeepseekV3Config", base=10_000.0, hidden=7168, heads=128, kv_heads=128, layers=61,
        length=4096, scheme_names={"deepseek_yarn": "yarn"}, mla=(128, 64), interleave_key=True, interleaved=True,
        permuted=True, weights=Weights(rows=LATENT)),
    "deepseek_v32": TextModel("DeepseekV32Config", base=10_000.0, hidden=7168, heads=128, kv_heads=128, layers=61,
        length=163_840, layer_types=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)),
        mla=(128, 64), interleaved=True, permuted=True, sub_models={"indexer": Indexer(128, 64, weights=LIGHTNING)},
        weights=Weights(rows=LATENT)),
    "deepseek_v4": TextModel("DeepseekV4Config", rope=DEEPSEEK_V4, hidden=4096, heads=64, kv_heads=1, layers=43,
        head_dim=512, length=1_048_576, widths=("qk_rope_head_dim",), scheme_names={"deepseek_yarn": "yarn"},
        layer_types=Layers(compressed, {**BY_NAME, "compress_ratios": RATIOS}, tuple(RATIOS.values())), partial=0.125,
        interleaved=True, tables="rounded", before=base_at_the_top, adjust=last_channels, after=rotate_back,
        notes=("compressed keys stand at the first position of their block",), sub_models={"indexer": Indexer(128, 64,
        interleaved=True, trailing=True, word=RATIOS[4], notes=POOLED, weights=Weights(attention=(POOLED_INDEXER,),
        rows=(Rows("q_b_proj", "q"), Rows("kv_proj", "k"), Rows("gate_proj", "k"), Rows("position_bias.", "k",
        axis=1)), k_norms=("kv_norm",)))}, weights=Weights(rows=(Rows("q_b_proj", "q"), Rows("kv_proj", "k"),
        Rows("compressor.kv_proj", "k", always=False), Rows("compressor.gate_proj", "k", always=False),
        Rows("compressor.position_bias.", "k", axis=1, always=False), Rows("o_a_proj", "o", axis=1)),
        k_norms=("kv_norm", "compressor.kv_norm")), published=Weights(attention=("layers.{}.attn",), rows=(Rows("wq_b",
        "q"), Rows("wkv", "k"), Rows("compressor.wkv", "k", always=False), Rows("compressor.wgate", "k", always=False),
        Rows("compressor.ape.", "k", axis=1, always=False), Rows("wo_a", "o", axis=1)), k_norms=("kv_norm",
        "compressor.norm"), source="read")),
    "dots1": TextModel("Dots1Config", base=10_000.0, hidden=4608, heads=32, kv_heads=32, layers=62, length=2048,
        layer_types=LISTED),
    "dots3_note_text": TextModel("Dots3NoteTextConfig", rope=DOTS3_NOTE, hidden=5120, heads=128, kv_heads=128,
        head_dim=256, layers=46, length=524_288,
        layer_types=Layers(some_indexed, BY_NAME, kinds=("indexed_attention",)), head_widths=sliding_widths,
        mla=(128, 64), adjust=not_proportional, interleaved=True, permuted=True,
        notes=("layers of different types have different numbers of heads",), sub_models={"indexer": Indexer(128, 64,
        interleaved=True, permuted=True, weights=LIGHTNING)}, weights=Weights(rows=LATENT,
        k_norms=("k_rope_only_layernorm",), uneven=True)),
    "longcat_flash": TextModel("LongcatFlashConfig", base=10_000_000.0, hidden=6144, heads=64, layers=28,
        length=131_072, names=Names(layers=("num_hidden_layers", "num_layers")), mla=(128, 64), interleaved=True,
        permuted=True, before=one_width, weights=Weights(attention=("layers.{}.self_attn.0",
        "layers.{}.self_attn.1"), rows=LATENT)),
    "unlimited_ocr_text": TextModel("UnlimitedOcrTextConfig", base=10_000.0, hidden=1280, heads=10, kv_heads=10,
        layers=12, length=32_768, names=Names(head_dim=()), layer_types=Layers(listed=BY_NAME,
        kinds=("reference_sliding_attention",))),
    "youtu": TextModel("YoutuConfig", base=10_000.0, hidden=2048, heads=16, kv_heads=16, layers=32, length=131_072,
        mla=(128, 64), interleave_key=True, interleaved=True, permuted=True, weights=Weights(rows=LATENT)),
}
# fmt: on
# other names of the same code
ROWS |= {
    "deepseek_ref": replace(ROWS["deepseek_v4"], in_transformers=False),
    "kimi_k2": replace(ROWS["deepseek_v3"], in_transformers=False),
}
