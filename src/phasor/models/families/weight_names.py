"""Names of attention weights that several families share: modules, and what their rows hold (`phasor.weights`)."""

from ..weights import Rows, Weights

KEY = Rows("k_proj", "k")
LATENT = (Rows("q_b_proj|q_proj", "q"), Rows("kv_a_proj_with_mqa", "cr"))
STACKED = Weights(attention=("blocks.{}.attn",), rows=(Rows("qkv", "qkv"),))
BERT = Weights(attention=("encoder.layer.{}.attention.self",), rows=(Rows("query", "q"), Rows("key", "k")))
GATED = Weights(rows=(Rows("q_proj", "qg", blocks="heads"), KEY))
LINEAR = (Rows("q_proj.linear", "q"), Rows("k_proj.linear", "k"))
HUNYUAN = Weights(q_norms=("query_layernorm",), k_norms=("key_layernorm",))
LAYERNORM = Weights(q_norms=("q_layernorm",), k_norms=("k_layernorm",))
NEOX = Weights(attention=("layers.{}.attention",), rows=(Rows("query_key_value", "qkv", blocks="kv_heads"),))
NEW = Weights(attention=("encoder.layer.{}.attention",), rows=(Rows("qkv_proj", "qkv"),), source="read")
MEMORY_ATTENTION = Weights(
    attention=("memory_attention.layers.{}.self_attn", "memory_attention.layers.{}.cross_attn_image")
)
ENCODER = Weights(attention=("encoder_transformer.layers.{}.self_attn",))
DECODER = Weights(attention=("decoder_transformer.layers.{}.self_attn",))
KEYS_AS_VALUES = Weights(
    rows=(*Weights().rows, Rows("o_proj", "o", axis=1, instead=("k_proj", "v_proj"))), may_lack=("k",)
)
BOTH_STACKS = Weights(
    attention=("encoder.encoder_transformer.layers.{}.self_attn", "decoder.decoder_transformer.layers.{}.self_attn")
)
POOLED_INDEXER = "layers.{}.self_attn.compressor.indexer"
LIGHTNING = Weights(attention=("layers.{}.self_attn.indexer",), rows=(Rows("wq_b", "q"), Rows("wk", "k")))
