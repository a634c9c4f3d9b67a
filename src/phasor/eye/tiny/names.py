"""What the name of a config key says about its number. The first pattern that matches counts."""

import re

KEPT, LAYERS, VOCABULARY, PIXELS, WIDTH, SMALL = "kept", "layers", "vocabulary", "pixels", "width", "small"

# Numbers that decide the rotation, or that cost nothing as they are.
_ROTATION = (
    r"theta|rope|rotary|rotate|pos_?emb|height|head_?dim|headdim|head_size|d_head|head_width|kv_channels|position|original|beta|factor"
    r"|scale|scaling|section|merge|temporal|partial|window|patch_size|length|seq|kernel|stride|conv|expand|chunk"
    r"|channels|state|rate|bins|token_id|token_index|alpha|axes|feat_sizes|k_sizes|per_second|hop|fps"
)
_COUNTS_LAYERS = (
    r"^((num|n)_(\w+_)?layers?|(\w+_)?num_(hidden_)?layers|(encoder|decoder)_layers|(\w+_)?depth|(\w+_)?layers_number)$"
)
# Number of a router's choices -> what it becomes: four experts in one group, of which two are chosen.
_ROUTERS = (
    (r"topk_group|n_group$|expert_groups?$", 1),
    (r"experts?_per_tok|^(?!index).*(topk|top_k)|moe_k|num_selected|active_experts|k_experts", 2),
    (r"experts", 4),
)
_WIDTHS = (
    r"hidden|dim|width|embd|d_model|model_size|size$|rank|lora|intermediate|ffn|mlp|inner|heads?$|head_count|n_head"
    r"|latent|d_ssm|features?$|groups$|n_inner|d_ff|d_kv|d_inner"
)

# The number of heads and the width of one model; what stands before says which, where a level has several.
HEADS = re.compile(r"^(?P<whose>\w+?_)??(num_attention_heads|attention_heads|n_heads?|num_heads)$")
MAIN_WIDTH = re.compile(r"^((?P<whose>\w+?_)??(hidden_size|d_model|n_embd|emb_dim|embed_dim)|dim)$")
OF_BOTH = ("encoder_", "decoder_")  # whose width is often one
KEY_HEADS = re.compile(r"key_value_heads|kv_heads|n_head_kv|num_attention_groups|multi_query_group")
# Numbers of layers from the first on, and from the last back, that differ from the others.
FIRST_LAYERS = re.compile(r"^(first_k_\w+|num_dense_layers|n_dense_layers|max_window_layers|num_hash_layers)$")
LAST_LAYERS = re.compile(r"shared_layers$")
LAYER_NUMBERS = re.compile(r"layer|idx|index|indices|block")
EVERY_SO_MANY = re.compile(r"interval|period|every|_step$|pattern|_freq$")
REPEATED = re.compile(r"types|pattern|layout")
OF_OUTPUTS = re.compile(
    r"^(transformers_version|id2label|label2id|out_features|out_indices|_out_features|_out_indices|stage_names"
    r"|_frame_rate|architectures|auto_map)$"
)


def says(key: str) -> str:
    """The kind of the key's number.

    >>> says("num_hidden_layers"), says("vocab_size"), says("hidden_size"), says("rope_theta"), says("n_routed_experts")
    ('layers', 'vocabulary', 'width', 'kept', 'small')
    """
    if FIRST_LAYERS.search(key) or LAST_LAYERS.search(key) or EVERY_SO_MANY.search(key):
        return KEPT  # by the selection of layers
    if re.search(_COUNTS_LAYERS, key):
        return LAYERS
    if re.search(r"vocab|codebook_size", key):
        return VOCABULARY
    if re.search(r"image_size|img_size", key):
        return PIXELS
    if HEADS.search(key) or KEY_HEADS.search(key):
        return WIDTH
    if choices(key, 10**9) != 10**9:
        return SMALL
    if key.startswith("index") and not key.endswith("heads"):
        return KEPT  # what chooses tokens must have enough to choose from
    if re.search(_ROTATION, key):
        return KEPT
    return WIDTH if re.search(_WIDTHS, key) else KEPT


def choices(key: str, value: int) -> int:
    """A router's number, made small.

    >>> choices("num_experts_per_tok", 8), choices("n_routed_experts", 256), choices("hidden_size", 64)
    (2, 4, 64)
    """
    return next((min(value, small) for pattern, small in _ROUTERS if re.search(pattern, key)), value)
