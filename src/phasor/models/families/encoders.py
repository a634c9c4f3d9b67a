"""Encoders, of text and of proteins."""

from dataclasses import replace

from ...rotary.model_rotary import ModelRotary
from ..reading.axes import alternating
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, every, every_from_first, with_last_full
from ..reading.rope import refuse_gaps
from ..reading.row import LEARNED, CompositeModel, PartOf, RotaryFlag, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Names, Rope, TextRow
from ..weights import Rows, Weights
from .weight_names import BERT, NEW

MODERNBERT = {
    "sliding_attention": Rope(10_000.0, top=("local_rope_theta",), flat=("rope_scaling",)),
    "full_attention": Rope(160_000.0, top=("global_rope_theta",), flat=("rope_scaling",)),
}
NEOMME = {
    "sliding_attention": Rope(10_000.0, {"partial_rotary_factor": 1.0}),
    "full_attention": Rope(1_000_000.0, {"partial_rotary_factor": 0.25}),
}
ULTRABERT = {"sliding_attention": Rope(10_000.0, top=()), "full_attention": Rope(2_560_000.0, top=(), bare=10_000.0)}


def rotary_value(model: ModelRotary, keys: Keys) -> ModelRotary:
    """RoFormer forms its angles in float64, and may rotate v like q and k."""
    value = keys.flag("rotary_value")
    keys.explain("v is rotated like q and k" if value else "off", "rotary_value")
    return replace(model, own_angles="float64", targets=("q", "k", "v") if value else model.targets)


def says_all(row: TextRow, keys: Keys) -> TextRow:
    """NeoMME's class fills in a share for each kind, and a scheme unless it is called ``rope_type``."""
    refuse_gaps(row, keys, "rope_type", "partial_rotary_factor")
    return row


BY_CODE = Rope(10_000.0, top=())  # the base stands in the code, and no key states another
BY_HEADS = Names(head_dim=())  # the width of heads is hidden_size / num_attention_heads, and no key states another

# fmt: off
ROWS: dict[str, Row] = {
    **with_text("modernbert", "modernvbert"),
    **with_text("ultrabert", "ultravbert"),
    "esm": TextModel("EsmConfig", base=10_000.0, hidden=768, heads=12, layers=12, length=1026, dicts=(), scaled=False,
        tables="rounded", rotary_flags=(RotaryFlag("position_embedding_type", ("rotary",), None, LEARNED),),
        notes=("queries are scaled by head_dim ** -0.5 before the rotation",), weights=BERT),
    "esmc": TextModel("EsmcConfig", base=10_000.0, hidden=2560, heads=40, layers=80, length=2048),
    "esmfold2": CompositeModel(parts={"esmc_config": PartOf("esmc"), "atom_encoder": always("esmfold2_atom")}),
    "eurobert": TextModel("EuroBertConfig", base=10_000.0, hidden=768, heads=12, layers=12, length=8192),
    "evolla": TextModel("EvollaConfig", base=500_000.0, hidden=4096, heads=32, kv_heads=8, layers=32, length=8192,
        tables="rounded", parts={"protein_encoder_config": PartOf("evolla_saprot")}),
    "gte": TextModel("GteConfig", base=160_000.0, hidden=768, heads=12, layers=12, length=8192, published=NEW),
    "jina_embeddings_v3": TextModel("JinaEmbeddingsV3Config", base=20_000.0, hidden=1024, heads=16, layers=24,
        length=8194, published=Weights(attention=("encoder.layers.{}.mixer",), rows=(Rows("Wqkv", "qkv"),),
        source="read")),
    "modernbert": TextModel("ModernBertConfig", rope=MODERNBERT, hidden=768, heads=12, layers=22, length=8192,
        fills_defaults=True, layer_types=Layers(every_from_first(3, "global_attn_every_n_layers"), BY_NAME,
        two_sided="local_attention"), tables="rounded", weights=Weights(attention=("layers.{}.attn",),
        rows=(Rows("Wqkv", "qkv"),))),
    "modernbert-decoder": TextModel("ModernBertDecoderConfig", rope=MODERNBERT, hidden=768, heads=12, layers=22,
        length=8192, fills_defaults=True, layer_types=Layers(every_from_first(3, "global_attn_every_n_layers"),
        BY_NAME, two_sided="local_attention"), tables="rounded", weights=Weights(attention=("layers.{}.attn",))),
    "neobert": TextModel("NeoBERTConfig", in_transformers=False, base=10_000.0, names=replace(ANY_NAMES,
        length=("max_length",)), interleaved=True, tables="float32",
        weights=Weights(attention=("transformer_encoder.{}",), rows=(Rows("qkv", "qkv", blocks="kv_heads"),),
        source="read")),
    "neomme": TextModel("NeoMMEConfig", rope=NEOMME, hidden=1024, heads=16, kv_heads=4, layers=17, head_dim=64,
        length=16_384, shares=(), dicts=("rope_parameters",), layer_types=Layers(with_last_full(every(6)), BY_NAME),
        partial=1.0, axes=alternating, before=says_all),
    "new": TextModel("NewConfig", in_transformers=False, base=10_000.0, names=ANY_NAMES, scheme_names={"ntk": "ntk"},
        rotary_flags=(RotaryFlag("position_embedding_type", ("rope", "rotary"), None, LEARNED),), weights=NEW),
    "nomic_bert": TextModel("NomicBertConfig", base=1_000.0, hidden=768, heads=12, layers=12, length=2048,
        published=Weights(attention=("encoder.layers.{}.attn",), rows=(Rows("Wqkv", "qkv"),), source="read")),
    "pe_audio": CompositeModel(parts={"text_config": PartOf("modernbert", {"hidden_size": 1024,
        "num_attention_heads": 16, "num_hidden_layers": 22}), "audio_config": always("pe_audio_encoder")}),
    "pe_audio_video": CompositeModel(parts={"text_config": PartOf("modernbert", {"hidden_size": 1024,
        "num_attention_heads": 16, "num_hidden_layers": 22}), "audio_video_config": always("pe_audio_video_encoder")}),
    "pe_video": CompositeModel(parts={"text_config": PartOf("modernbert", {"hidden_size": 1024,
        "num_attention_heads": 16, "num_hidden_layers": 22}), "video_config": always("pe_video_encoder")}),
    "roformer": TextModel("RoFormerConfig", rope=BY_CODE, hidden=768, heads=12, layers=12, length=1536, dicts=(),
        scaled=False, names=BY_HEADS, interleaved=True, after=rotary_value, weights=BERT),
    "ultrabert": TextModel("UltrabertConfig", rope=ULTRABERT, hidden=4096, heads=32, layers=32, length=32_768,
        bases="rope_theta", layer_types=Layers(every(3), BY_NAME)),
}
# fmt: on
# another name of the same code
ROWS |= {"roformer_v2": replace(ROWS["roformer"], in_transformers=False, weights=replace(BERT, source="read"))}
