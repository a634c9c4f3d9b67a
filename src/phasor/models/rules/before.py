"""Keys that a family's code compares or reads first, and sizes that follow from others: ``before`` and key heads."""

from dataclasses import replace

from ...support.checks import number
from ..reading.keys import Keys, agreed, is_list, is_size
from ..reading.refusal import Reason, Refused, ambiguous, unread
from ..reading.row import no_rotary
from ..reading.text_row import ANY_NAMES, TextRow

CHATGLM_6B = ("the first ChatGLM-6B forms its angles in float16; this spec has the ladder without that rounding",)
MIMO_SAYS = {"rope_theta": 5_000_000, "swa_rope_theta": 10_000, "partial_rotary_factor": 0.334}


def no_gaps(row: TextRow, keys: Keys, names: tuple[str, ...], yarn: tuple[str, ...] = ()) -> TextRow:
    """Raise ``ValueError`` where a dictionary under a kind of layer leaves out what its class fills in elsewhere.

    ``yarn``: what else it must say, if its scheme is YaRN.
    """
    dicts = [(path, data) for path, data in keys.entries(*row.dicts) if isinstance(data, dict)]
    inside = [(f"{path}.{kind}", data[kind]) for path, data in dicts for kind in row.kinds if kind in data]
    for path, rope in inside:
        for name in (*names, *yarn) if isinstance(rope, dict) else ():
            if rope.get(name) is None and (name in names or "yarn" in (rope.get("rope_type"), rope.get("type"))):
                why = f"{row.config} takes another default under a kind of layer than without a dictionary"
                raise ambiguous(f"{path}.{name}", why)
    return row


def base_at_the_top(row: TextRow, keys: Keys) -> TextRow:
    """DeepSeek-V4 takes its bases from the top wherever the dictionary names no layers."""
    for path, data in keys.entries(*row.dicts):
        named = data.keys() & row.kinds.keys() if isinstance(data, dict) else set()
        if len(named) == 1:
            one = f"{path}: one of {' and '.join(row.kinds)}"
            raise ambiguous(one, "the code reads both together", "add both", path)
        if isinstance(data, dict) and not named and data.get("rope_theta") is not None:
            top = keys.get("compress_rope_theta") or 160_000.0
            if data["rope_theta"] != top:
                why = f"the code takes compress_rope_theta, {top!r}, for a dictionary that names no layers"
                raise unread(f"{path}.rope_theta", data["rope_theta"], why, "keep that")
    return no_gaps(row, keys, ("rope_theta", "partial_rotary_factor"), yarn=("attention_factor",))


def one_width(row: TextRow, keys: Keys) -> TextRow:
    """LongCat forms frequencies for head_dim channels and rotates qk_rope_head_dim of them."""
    for_both = ("head_dim", "qk_rope_head_dim")
    agreed([p for name in for_both for p in keys.entries(name) or [(f"{keys.path}{name} (by default)", 64)]])
    keys.explain("the channels that rotate", "head_dim")
    return row


def own_width(row: TextRow, keys: Keys) -> TextRow:
    """The code of Dots 3's encoder divides the width by the heads; head_dim may only say the same."""
    width = (keys.size("hidden_size") or 1280) // (keys.size("num_attention_heads") or 20)
    agreed([("hidden_size / num_attention_heads", width), *keys.entries("head_dim")])
    keys.explain("no effect: the width of heads is hidden_size / num_attention_heads", "head_dim")
    return row


def whole_heads(row: TextRow, keys: Keys) -> TextRow:
    """Mistral 4 takes the rotated share of head_dim, which must be the width of its heads."""
    nope, rope = (keys.size(name) or 64 for name in ("qk_nope_head_dim", "qk_rope_head_dim"))
    agreed([("qk_nope_head_dim + qk_rope_head_dim", nope + rope), *keys.entries("head_dim")])
    return row


def two_dimensional(row: TextRow, keys: Keys) -> TextRow:
    """ChatGLM-6B rotates the two halves of each head by two positions; ChatGLM2 rotates the first half by one."""
    if keys.flag("original_rope") is False:
        raise ValueError("original_rope is false: that layout of ChatGLM is not known; describe it with RotarySpec")
    keys.explain("interleaved pairs", "original_rope")
    if keys.flag("position_encoding_2d"):
        keys.explain("position and block position, each for one half of the head, in halves", "position_encoding_2d")
        return replace(row, partial=1.0, interleaved=False, notes=CHATGLM_6B)
    keys.explain("off", "position_encoding_2d")
    return row


def only_7b(row: TextRow, keys: Keys) -> TextRow:
    """Baichuan 13B has ALiBi, under the same model type."""
    if keys.get(*ANY_NAMES.hidden) != 4096:
        raise no_rotary("baichuan 13B", "uses ALiBi")
    return row


def full_only(row: TextRow, keys: Keys) -> TextRow:
    """Step 3.7 scales its layers with full attention only, and says so."""
    agreed([("the code of this family", ["full_attention"]), *keys.entries("yarn_only_types")])
    for path, data in keys.entries("rope_scaling"):
        if isinstance(data, dict) and data.keys() & row.kinds.keys():
            why = f"the code of {row.config} puts its keys into the parameters of full_attention"
            raise unread(path, data, why, "move the types of layers to rope_parameters")
    return row


def mimo(row: TextRow, keys: Keys) -> TextRow:
    """MiMo's checkpoints state bases, share and width at the top, where its class reads none of them."""
    widths = keys.entries("head_dim") or [(f"head_dim ({row.config}'s default)", row.head_dim)]
    agreed([*widths, *keys.entries("swa_head_dim")])
    for name, value in MIMO_SAYS.items():
        agreed([(f"the default of {row.config}", value), *keys.entries(name)])
        keys.explain("no effect: its class does not read it, and has the same by default", name)
    keys.explain("the width of all heads", "swa_head_dim")
    return no_gaps(row, keys, ("rope_theta", "partial_rotary_factor"))


def attention_and_mlp(row: TextRow, keys: Keys) -> TextRow:
    """Dory's files list and count the attention and the MLP of a layer as two."""
    (path, data), words = keys.places[0], keys.get("layer_types", check=is_list)
    if words and words[1::2] == ["mlp"] * len(words[::2]):
        count = keys.whole("num_hidden_layers") or row.layers or 0
        keys.places[0] = path, {**data, "layer_types": words[::2], "num_hidden_layers": count // 2}
    return row


def same_heads(row: TextRow, keys: Keys) -> TextRow:
    """Moonshine's encoder and decoder have heads of one width."""
    heads, others = keys.size(*row.names.heads) or 8, keys.size("encoder_num_attention_heads") or 8
    if others != heads:
        said = f"encoder_num_attention_heads must be that of the decoder, {heads}, got {others}"
        why = "its code takes either, by the order of its layers"
        raise Refused(f"{keys.path}{said}: {why}", Reason.AMBIGUOUS)
    return row


def heads_of_experts(row: TextRow, keys: Keys) -> TextRow:
    """JetMoE has as many query heads per key head as experts per token."""
    assert isinstance(row.kv_heads, int)
    heads = (keys.size("num_key_value_heads") or row.kv_heads) * (keys.whole("num_experts_per_tok") or 2)
    agreed([("num_key_value_heads * num_experts_per_tok", heads), *keys.entries("num_attention_heads")])
    return replace(row, heads=heads)


def of_both_streams(hidden: int, heads: int) -> float:
    """The attention of Zamba 2 works on two hidden states side by side."""
    return 2 * hidden / heads


def rounded_down(hidden: int, heads: int) -> float:
    """GLM-4 MoE rounds the width of its heads down."""
    return hidden // heads


def falcon_kv_heads(keys: Keys, heads: int) -> int:
    """One key head for all (``multi_query``, the class's default), unless the decoder is the new one."""
    stated = keys.size("num_kv_heads")
    new, shared = keys.flag("new_decoder_architecture"), keys.flag("multi_query")
    if not new and shared is not False:
        keys.sources[f"{keys.path}num_kv_heads"] = "no effect: multi_query, one key head for all query heads"
        if shared is None:
            keys.default("multi_query", "true")
        return 1
    if stated is None:
        keys.absent("num_kv_heads", f"one per query head, {heads}")
    return heads if stated is None else stated


def dbrx_kv_heads(keys: Keys, heads: int) -> int:
    """``attn_config.kv_n_heads``, which is all that its attention reads."""
    inner = keys.inside("attn_config", "DbrxAttentionConfig")
    own = (f"{inner.path}kv_n_heads", inner.size_or(1, "kv_n_heads"))
    kv: int = agreed([own, *keys.entries("num_key_value_heads")], is_size)
    return kv


def base_in_attention(row: TextRow, keys: Keys) -> TextRow:
    """DBRX keeps its base in ``attn_config``; transformers' own reader loses it there."""
    ropes = [Keys([(f"{path}.", data)]) for path, data in keys.entries(*row.dicts) if isinstance(data, dict)]
    entries = [pair for level in (keys.inside("attn_config"), keys, *ropes) for pair in level.entries("rope_theta")]
    base = keys.settle(entries, "base {:.10g}", lambda path, value: number(path, value, above=1))
    return row if base is None else replace(row, base=float(base))
