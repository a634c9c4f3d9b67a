"""The kinds of layers of single families where the config lists none, which rotate, and how wide their heads are."""

from ..reading.keys import Keys, agreed, is_list
from ..reading.layers import ATTENTION, Head, every, full_does_not, must_say, pattern


def after_dense(keys: Keys, count: int) -> list[str]:
    """Cohere 2 MoE: windows by one pattern in the first, dense layers, and by another, counted anew, in the rest."""
    first = min(keys.whole("first_k_dense_replace", at_least=0) or 0, count)
    dense = every(keys, first, n=1, key="prefix_dense_sliding_window_pattern")
    return [*dense, *every(keys, count - first, n=4, key="sliding_window_pattern")]


def dense_do(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Cohere 2 MoE rotates its dense layers even with full attention if their window pattern is 1."""
    rotates = full_does_not(keys, words)
    if keys.whole("prefix_dense_sliding_window_pattern") not in (None, 1):
        return rotates
    kinds = keys.get("mlp_layer_types", check=is_list)
    first = range(keys.whole("first_k_dense_replace", at_least=0) or 0)
    dense = set(first) if kinds is None else {i for i, kind in enumerate(kinds) if kind == "dense"}
    in_dense = [i in dense and word in ATTENTION for i, word in enumerate(words)]
    return [one or other for one, other in zip(rotates, in_dense, strict=True)]


def some_indexed(keys: Keys, count: int) -> list[str]:
    """Dots 3: every fourth layer and the first two, or all of them where windows are switched off."""
    windows = keys.flag("use_sliding_window")
    keys.explain("layers with windows" if windows else "no layer has a window", "use_sliding_window")
    indexed, sliding = "indexed_attention", "sliding_attention"
    if windows is False:
        return [indexed] * count
    return pattern(keys, count, period=(sliding, indexed, sliding, sliding), first=(indexed, indexed))


def sliding_widths(keys: Keys, words: tuple[str, ...], heads: list[Head]) -> list[Head]:
    """Dots 3's first spelling: ``swa_`` before the names; the rotated channels are what the unrotated ones leave."""
    if "sliding_attention" not in words:
        return heads
    names = ("swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "swa_head_dim")
    nope, rotated, whole = (keys.size(name) for name in names)
    nope, whole = nope or 192, whole or 256
    rotated = rotated or whole - nope
    keys.explain(f"sliding_attention layers: {nope} + {rotated} channels", *names)
    if rotated < 1:
        raise ValueError(f"swa_head_dim must be above swa_qk_nope_head_dim {nope}, got {whole}")
    narrow = Head(nope + rotated, rotated)
    return [narrow if word == "sliding_attention" else head for word, head in zip(words, heads, strict=True)]


def repeated_blocks(keys: Keys, count: int) -> list[str]:
    """RecurrentGemma repeats a short list of blocks."""
    entries = keys.get("block_types", check=is_list) or ["recurrent", "recurrent", "attention"]
    keys.explain("the types of the layers, repeated", "block_types")
    words = ["linear_attention" if block == "recurrent" else "sliding_attention" for block in entries]
    return pattern(keys, count, period=words)


def hybrid_of_54(keys: Keys, count: int) -> list[str]:
    """Zamba 2's class lists the kinds of 54 layers, whatever their number."""
    hybrid = {*range(6, 48, 6), 47, 51}
    return (
        ["hybrid" if i in hybrid else "linear_attention" for i in range(54)] if count == 54 else must_say(keys, count)
    )


def listed(keys: Keys, count: int) -> list[bool]:
    """Which layers rotate by ``no_rope_layers``, or by the interval of those that do not."""
    interval, flags = keys.whole("no_rope_layer_interval") or 4, keys.wholes("no_rope_layers")
    other = "nope_layer_interval"  # which published configs carry, and no code reads
    agreed([("no_rope_layer_interval", interval), *keys.entries(other)])
    keys.explain("no effect: repeats what the code does", other)
    keys.explain("which layers rotate (1) and which do not (0)", "no_rope_layers")
    keys.explain(f"every {interval}-th layer does not rotate", "no_rope_layer_interval")
    if not flags:
        return [bool((i + 1) % interval) for i in range(count)]
    if len(flags) < count or any(f not in (0, 1) for f in flags):
        raise ValueError(f"no_rope_layers must have a 0 or 1 for each of the {count} layers, got {flags!r:.80}")
    return [bool(f) for f in flags[:count]]


def by_no_rope_layers(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """``no_rope_layers`` lists a 1 for each layer that rotates."""
    return [word in ATTENTION and rotates for word, rotates in zip(words, listed(keys, len(words)), strict=True)]


def chunks(keys: Keys, count: int) -> list[str]:
    """Llama 4: layers that rotate attend inside chunks, unless their size is null."""
    whole = bool(keys.nulls("attention_chunk_size"))
    return ["chunked_attention" if rotates and not whole else "full_attention" for rotates in listed(keys, count)]


def by_blocks(keys: Keys, count: int) -> list[str]:
    """Nemotron-NAS: each block says whether it has attention."""
    words = []
    for i, block in enumerate(keys.get("block_configs", check=is_list) or [{"attention": {}}] * count):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ValueError(f"block_configs[{i}] must have an object 'attention', got {block!r:.80}")
        replaced = "linear" if attention.get("replace_with_linear") else "attention"
        words.append("no_op" if attention.get("no_op") else replaced)
    return words


def sparse(keys: Keys, count: int) -> list[str]:
    """MiniMax M3's published form: a list of the layers with sparse attention (1) in a dictionary of its own."""
    flags = keys.inside("sparse_attention_config").wholes("sparse_attention_freq")
    return ["minimax_m3_sparse" if flag else "full_attention" for flag in ([0] * count if flags is None else flags)]
