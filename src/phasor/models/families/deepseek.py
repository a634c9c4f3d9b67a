"""DeepSeek and its heirs: latent attention, whose last channels turn."""

from dataclasses import replace

from ...rotary.scaling import Proportional, Scaling, YaRN
from ..reading.heads import Head
from ..reading.indexer import Indexer
from ..reading.keys import Keys, agreed
from ..reading.layers import BY_NAME, LISTED, Layers, alike
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.rope import refuse_gaps
from ..reading.spec_fields import Reader
from ..reading.text import Text
from ..reading.text_row import Facts, Names, Rope
from ..weights import Rows, Weights
from .products import COMPLEX, POLAR
from .weight_names import LATENT, LIGHTNING, POOLED_INDEXER

DEEPSEEK_V4 = {
    "main": Rope(10_000.0),
    "compress": Rope(160_000.0, top=("compress_rope_theta",), flat=("rope_scaling", "rope_parameters")),
}
DOTS3_NOTE = {
    "indexed_attention": Rope(80_000_000.0),
    "full_attention": Rope(80_000_000.0),
    "sliding_attention": Rope(50_000.0, top=("swa_rope_theta",), bare=80_000_000.0),
}


RATIOS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
POOLED = ("keys are pooled and stand at the first position of their block",)


def main_or_compress(kind: str) -> str:
    """DeepSeek-V4's own names for the rope parameters of its layers."""
    return "main" if kind == "sliding_attention" else "compress"


def compressed(keys: Keys, count: int) -> list[str]:
    """DeepSeek-V4: two layers that compress heavily, then both kinds in turn."""
    words = ["heavily_compressed_attention", "compressed_sparse_attention"]
    return [words[0] if i < 2 else words[(i - 2) % 2] for i in range(count)]


def base_at_the_top(facts: Facts, keys: Keys) -> Facts:
    """DeepSeek-V4 takes its bases from the top wherever the dictionary names no layers."""
    for path, data in keys.found(*facts.dicts):
        named = data.keys() & facts.kinds.keys() if isinstance(data, dict) else set()
        if len(named) == 1:
            raise ValueError(f"{path} names one of {' and '.join(facts.kinds)}: the code reads them together; add both")
        if isinstance(data, dict) and not named and data.get("rope_theta") is not None:
            top = keys.get("compress_rope_theta") or 160_000.0
            agreed([("compress_rope_theta", top), (f"{path}.rope_theta", data["rope_theta"])])
    refuse_gaps(facts, keys, "rope_theta", "partial_rotary_factor", yarn=("attention_factor",))
    return facts


def no_factor(reader: Reader, scaling: Scaling | None) -> Scaling | None:
    """DeepSeek-V4 scales neither cos and sin nor the softmax."""
    if isinstance(scaling, YaRN) and scaling.attention is None:
        return replace(scaling, attention=1.0)
    return scaling


def not_proportional(reader: Reader, scaling: Scaling | None) -> Scaling | None:
    """Dots 3's frequencies would then be those of whole heads, of which it turns a part."""
    if isinstance(scaling, Proportional):
        raise ValueError(
            f"the code of {reader.model_type} turns qk_rope_head_dim channels, and proportional scaling forms "
            "frequencies for head_dim of them; remove it, or describe the encoding with RotarySpec yourself"
        )
    return scaling


def one_width(facts: Facts, keys: Keys) -> Facts:
    """LongCat forms frequencies for head_dim channels and turns qk_rope_head_dim of them."""
    path = keys.places[0][0]
    stated = [keys.found(name) or [(f"{path}{name} (by default)", 64)] for name in ("head_dim", "qk_rope_head_dim")]
    agreed([pair for pairs in stated for pair in pairs])
    keys.explain("the channels that turn", "head_dim")
    return facts


def by_group(keys: Keys, count: int) -> list[str]:
    """Bailing: the last layer of each group has attention."""
    group = keys.whole("layer_group_size")
    if group is None:
        raise ValueError(f"{keys.places[0][0]}layer_types is missing, and so is layer_group_size; add one of them")
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
    turned = keys.size("swa_qk_rope_head_dim") or whole - nope
    names = ("swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "swa_head_dim")
    keys.explain(f"sliding_attention layers: {nope} + {turned} channels", *names)
    if turned < 1:
        raise ValueError(f"swa_head_dim must be above swa_qk_nope_head_dim {nope}, got {whole}")
    narrow = Head(nope + turned, turned)
    return [narrow if word == "sliding_attention" else head for word, head in zip(words, heads, strict=True)]


# fmt: off
ROWS: dict[str, Row] = {
    "axk1": Text("AXK1Config", 10_000.0, (7168, 64, 64, 61, None, 32_768), mla=(128, 64), interleave_key=True,
        interleaved=True, permuted=True, weights=Weights(rows=LATENT)),
    "axk2": Text("AXK2Config", 10_000.0, (2048, 32, 32, 48, None, 131_072),
        layers=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), mla=(64, 32),
        interleaved=True, permuted=True, inner={"indexer": Indexer(128, 16, weights=LIGHTNING)},
            weights=Weights(rows=(Rows("q_gate_proj", "qg", blocks="heads"), Rows("kv_a_proj_with_mqa", "cr"))),
            published=Weights(rows=(Rows("q_b_proj", "qg", blocks="heads"), Rows("kv_a_proj_with_mqa", "cr")),
            source="read")),
    "bailing_hybrid": Text("BailingHybridConfig", 6_000_000.0, (2560, 32, 32, 42, None, 262_144),
        names=Names(length=("max_position_embeddings", "model_max_length")),
        layers=Layers(by_group, BY_NAME, kinds=("linear_attention",)), mla=(128, 64), interleaved=True,
        permuted=True, weights=Weights(rows=LATENT)),
    "deepseek_ocr2_text": Text("DeepseekOcr2TextConfig", 10_000.0, (4096, 32, None, 32, None, 2048),
        names=Names(head_dim=())),
    "deepseek_ocr2_vision": Frame(parts={"encoder_config": PartOf("deepseek_ocr2_encoder")}),
    "deepseek_v2": Text("DeepseekV2Config", 10_000.0, (4096, 32, None, 32, None, 2048),
        spelled={"deepseek_yarn": "yarn"}, mla=(128, 64), interleaved=True, tables="float32",
            notes=(POLAR, COMPLEX), weights=Weights(rows=LATENT)),
    "deepseek_v3": Text("DeepseekV3Config", 10_000.0, (7168, 128, 128, 61, None, 4096),
        spelled={"deepseek_yarn": "yarn"}, mla=(128, 64), interleave_key=True, interleaved=True, permuted=True,
            weights=Weights(rows=LATENT)),
    "deepseek_v32": Text("DeepseekV32Config", 10_000.0, (7168, 128, 128, 61, None, 163_840),
        layers=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), mla=(128, 64),
        interleaved=True, permuted=True, inner={"indexer": Indexer(128, 64, weights=LIGHTNING)},
            weights=Weights(rows=LATENT)),
    "deepseek_v4": Text("DeepseekV4Config", DEEPSEEK_V4, (4096, 64, 1, 43, 512, 1_048_576), rope_key=main_or_compress,
        widths=("qk_rope_head_dim",), spelled={"deepseek_yarn": "yarn"},
        layers=Layers(compressed, {**BY_NAME, "compress_ratios": RATIOS}, tuple(RATIOS.values())),
        partial=0.125, interleaved=True, trailing=True, tables="rounded", targets=("q", "k", "v", "output"),
        before=base_at_the_top, scale=no_factor, notes=("compressed keys stand at the first position of their block",),
        inner={"indexer": Indexer(128, 64, interleaved=True, trailing=True, word=RATIOS[4], notes=POOLED,
            weights=Weights(attention=(POOLED_INDEXER,), rows=(Rows("q_b_proj", "q"), Rows("kv_proj", "k"),
            Rows("gate_proj", "k"), Rows("position_bias.", "k", axis=1)), k_norms=("kv_norm",)))},
            weights=Weights(rows=(Rows("q_b_proj", "q"), Rows("kv_proj", "k"), Rows("compressor.kv_proj", "k",
            always=False), Rows("compressor.gate_proj", "k", always=False), Rows("compressor.position_bias.", "k",
            axis=1, always=False), Rows("o_a_proj", "o", axis=1)), k_norms=("kv_norm", "compressor.kv_norm")),
            published=Weights(attention=("layers.{}.attn",), rows=(Rows("wq_b", "q"), Rows("wkv", "k"),
            Rows("compressor.wkv", "k", always=False), Rows("compressor.wgate", "k", always=False),
            Rows("compressor.ape.", "k", axis=1, always=False), Rows("wo_a", "o", axis=1)), k_norms=("kv_norm",
            "compressor.norm"), source="read")),
    "deepseek_vl": Frame(parts={"text_config": PartOf("llama")}),
    "deepseek_vl_hybrid": Frame(parts={"text_config": PartOf("llama")}),
    "dots1": Text("Dots1Config", 10_000.0, (4608, 32, 32, 62, None, 2048), layers=LISTED),
    "dots3_note_text": Text("Dots3NoteTextConfig", DOTS3_NOTE, (5120, 128, 128, 46, None, 524_288),
        layers=Layers(some_indexed, BY_NAME, kinds=("indexed_attention",)), heads=sliding_widths, mla=(128, 64),
        scale=not_proportional,
        interleaved=True, permuted=True, notes=("layers of different types have different numbers of heads",),
        inner={"indexer": Indexer(128, 64, interleaved=True, permuted=True, weights=LIGHTNING)},
            weights=Weights(rows=LATENT, k_norms=("k_rope_only_layernorm",), uneven=True)),
    "kimi_k25": Frame(parts={"text_config": PartOf("deepseek_v3")}),
    "longcat_flash": Text("LongcatFlashConfig", 10_000_000.0, (6144, 64, None, None, None, 131_072),
        names=Names(layers=("num_hidden_layers", "num_layers")), mla=(128, 64), interleaved=True, permuted=True,
        before=one_width,
            weights=Weights(attention=("layers.{}.self_attn.0", "layers.{}.self_attn.1"), rows=LATENT)),
    "unlimited_ocr_text": Text("UnlimitedOcrTextConfig", 10_000.0, (1280, 10, 10, 12, None, 32_768),
        names=Names(head_dim=()),
        layers=Layers(listed=BY_NAME, kinds=("reference_sliding_attention",))),
    "youtu": Text("YoutuConfig", 10_000.0, (2048, 16, 16, 32, None, 131_072), mla=(128, 64), interleave_key=True,
        interleaved=True, permuted=True, weights=Weights(rows=LATENT)),
}
# fmt: on
# other names of the same code
ROWS |= {"deepseek_ref": ROWS["deepseek_v4"], "kimi_k2": ROWS["deepseek_v3"]}
