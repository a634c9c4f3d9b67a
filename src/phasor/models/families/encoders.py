"""Encoders, of text and of proteins."""

from dataclasses import replace

from ..reading.axes import alternating
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, every, every_from_first, with_last_full
from ..reading.model import ModelRotary
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import LEARNED, Frame, Switch
from ..reading.rope import refuse_gaps
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES, Facts, Names, Rope
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
ULTRABERT = {
    "sliding_attention": Rope(10_000.0, top=()),
    "full_attention": Rope(2_560_000.0, top=(), bare=10_000.0),
}


def rotary_value(model: ModelRotary, keys: Keys) -> ModelRotary:
    """RoFormer may rotate v like q and k."""
    value = keys.flag("rotary_value")
    keys.explain("v is rotated like q and k" if value else "off", "rotary_value")
    return replace(model, targets=("q", "k", "v")) if value else model


def says_all(facts: Facts, keys: Keys) -> Facts:
    """NeoMME's class fills in a share for each kind, and a scheme unless it is called ``rope_type``."""
    refuse_gaps(facts, keys, "rope_type", "partial_rotary_factor")
    return facts


BY_CODE = Rope(10_000.0, top=())  # the base stands in the code, and no key states another
BY_HEADS = Names(head_dim=())  # the width of heads is hidden_size / num_attention_heads, and no key states another

# fmt: off
ROWS: dict[str, Row] = {
    "esm": Text("EsmConfig", 10_000.0, (768, 12, None, 12, None, 1026), dicts=(), scaled=False, tables="rounded",
        switches=(Switch("position_embedding_type", ("rotary",), None, LEARNED),),
        notes=("queries are scaled by head_dim ** -0.5 before the rotation",), weights=BERT),
    "esmc": Text("EsmcConfig", 10_000.0, (2560, 40, None, 80, None, 2048)),
    "esmfold2": Frame(parts={"esmc_config": PartOf("esmc"), "atom_encoder": PartOf("esmfold2_atom")}),
    "eurobert": Text("EuroBertConfig", 10_000.0, (768, 12, None, 12, None, 8192)),
    "evolla": Text("EvollaConfig", 500_000.0, (4096, 32, 8, 32, None, 8192), tables="rounded",
        parts={"protein_encoder_config": PartOf("evolla_saprot")}),
    "gte": Text("GteConfig", 160_000.0, (768, 12, None, 12, None, 8192), published=NEW),
    "jina_embeddings_v3": Text("JinaEmbeddingsV3Config", 20_000.0, (1024, 16, None, 24, None, 8194),
        published=Weights(attention=("encoder.layers.{}.mixer",), rows=(Rows("Wqkv", "qkv"),), source="read")),
    "modernbert": Text("ModernBertConfig", MODERNBERT, (768, 12, None, 22, None, 8192), fills=True,
        layers=Layers(every_from_first(3, "global_attn_every_n_layers"), BY_NAME, two_sided="local_attention"),
        tables="rounded",
            weights=Weights(attention=("layers.{}.attn",), rows=(Rows("Wqkv", "qkv"),))),
    "modernbert-decoder": Text("ModernBertDecoderConfig", MODERNBERT, (768, 12, None, 22, None, 8192),
        fills=True,
        layers=Layers(every_from_first(3, "global_attn_every_n_layers"), BY_NAME, two_sided="local_attention"),
        tables="rounded",
            weights=Weights(attention=("layers.{}.attn",))),
    "modernvbert": Frame(parts={"text_config": PartOf("modernbert")}),
    "neobert": Text("NeoBERTConfig", 10_000.0, names=replace(ANY_NAMES, length=("max_length",)), interleaved=True,
        tables="float32", weights=Weights(attention=("transformer_encoder.{}",), rows=(Rows("qkv", "qkv",
            blocks="kv_heads"),), source="read")),
    "neomme": Text("NeoMMEConfig", NEOMME, (1024, 16, 4, 17, 64, 16_384), shares=(), dicts=("rope_parameters",),
        layers=Layers(with_last_full(every(6)), BY_NAME), partial=1.0, axes=alternating, before=says_all),
    "new": Text("NewConfig", 10_000.0, names=ANY_NAMES, spelled={"ntk": "ntk"},
        switches=(Switch("position_embedding_type", ("rope", "rotary"), None, LEARNED),), weights=NEW),
    "nomic_bert": Text("NomicBertConfig", 1_000.0, (768, 12, None, 12, None, 2048),
        published=Weights(attention=("encoder.layers.{}.attn",), rows=(Rows("Wqkv", "qkv"),), source="read")),
    "pe_audio": Frame(parts={"text_config": PartOf("modernbert", {"hidden_size": 1024, "num_attention_heads": 16})}),
    "pe_audio_video": Frame(
        parts={"text_config": PartOf("modernbert", {"hidden_size": 1024, "num_attention_heads": 16})}),
    "pe_video": Frame(parts={"text_config": PartOf("modernbert", {"hidden_size": 1024, "num_attention_heads": 16})}),
    "roformer": Text("RoFormerConfig", BY_CODE, (768, 12, None, 12, None, 1536), dicts=(), scaled=False,
        names=BY_HEADS, interleaved=True, angles="float64",
        after=rotary_value, weights=BERT),
    "roformer_v2": Text("RoFormerConfig", BY_CODE, (768, 12, None, 12, None, 1536), dicts=(), scaled=False,
        names=BY_HEADS, interleaved=True,
        angles="float64", after=rotary_value, weights=Weights(attention=BERT.attention, rows=BERT.rows, source="read")),
    "ultrabert": Text("UltrabertConfig", ULTRABERT, (4096, 32, None, 32, None, 32_768), bases="rope_theta",
        layers=Layers(every(3), BY_NAME)),
    "ultravbert": Frame(parts={"text_config": PartOf("ultrabert")}),
}
# fmt: on
