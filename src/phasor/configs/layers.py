"""Which kind of layer stands where, and which layers rotate."""

from typing import Any

from .keys import Keys, agreed, is_dict, is_list
from .layer_rules import (
    ALL_ALIKE,
    ATTENTION,
    BY_WINDOW,
    FIRST,
    FULL_IS_NOPE,
    LAST_FULL,
    LISTED_NOPE,
    MUST_SAY,
    NO_ATTENTION,
    NOT_SELF,
    PERIODS,
    SPELLINGS,
)


def layer_types(model_type: str, keys: Keys, count: int) -> tuple[str, ...]:
    """One word per layer: what the config says, else what the model's own code would make of it."""
    words = _stated(model_type, keys, count)
    if words is None:
        words = _derived(model_type, keys, count)
    for i, word in enumerate(words):
        if word not in ATTENTION | NO_ATTENTION | NOT_SELF:
            known = ", ".join(sorted(ATTENTION | NO_ATTENTION | NOT_SELF))
            raise ValueError(f"layer {i} is {word!r}, a kind of layer that is not known here; known: {known}")
    if len(words) != count:
        raise ValueError(f"the config lists the types of {len(words)} layers, and num_hidden_layers is {count}")
    return tuple(words)


def _stated(model_type: str, keys: Keys, count: int) -> list[str] | None:
    extra = keys.whole("num_nextn_predict_layers", "num_mtp_layers", at_least=0) or 0

    def check(path: str, value: Any) -> None:
        is_list(path, value)
        if any(not isinstance(v, str) for v in value):
            raise ValueError(f"{path} must be a list of words, got {value!r}")

    lists = {
        "layer_types": (check, None),
        "layers_block_type": (check, None),
        "hybrid_layer_pattern": (is_list, {0: "full_attention", 1: "sliding_attention"}),
        "attn_type_list": (is_list, {0: "linear_attention", 1: "full_attention"}),
        "compress_ratios": (
            is_list,
            {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"},
        ),
    }
    for name, (form, meaning) in lists.items():
        values = keys.get(name, check=form)
        if values is None:
            continue
        keys.became("the types of the layers", name)
        if len(values) == count + extra or (name == "compress_ratios" and len(values) > count):
            values = values[:count]  # the rest belongs to the layers that predict further tokens
        if meaning is not None:
            unknown = [v for v in values if not isinstance(v, int) or v not in meaning]
            if unknown:
                raise ValueError(f"{name} has the value {unknown[0]!r}; known: {sorted(meaning)}")
            values = [meaning[v] for v in values]
        return [SPELLINGS.get(v, v) for v in values]  # type: ignore[misc]
    return None


def _derived(model_type: str, keys: Keys, count: int) -> list[str]:
    if model_type in MUST_SAY:
        raise ValueError(f"layer_types is missing: the layers of {model_type} differ; add one word per layer")
    if model_type in FIRST:
        n = keys.whole("global_attn_every_n_layers") or FIRST[model_type]
        return ["sliding_attention" if i % n else "full_attention" for i in range(count)]
    if model_type in PERIODS:
        words = _periodic(model_type, keys, count)
        if model_type in LAST_FULL:
            words[-1] = "full_attention"
        return ["indexed_attention" if w == "full_attention" and model_type == "qwen4_exp_text" else w for w in words]
    for name, others in (("full_attn_idxs", "conv"), ("attn_layer_indices", "mamba")):
        if (full := keys.wholes(name)) is not None:
            keys.became("the layers with attention", name)
            return ["full_attention" if i in full else others for i in range(count)]
    if model_type == "llama4_text":
        return ["chunked_attention" if rotates else "full_attention" for rotates in listed(keys, count)]
    if model_type == "mllama_text_model":
        cross = keys.wholes("cross_attention_layers")
        cross = [3, 8, 13, 18, 23, 28, 33, 38] if cross is None else cross
        return ["cross_attention" if i in cross else "full_attention" for i in range(count)]
    if model_type == "recurrent_gemma":
        blocks = keys.get("block_types", check=is_list) or ["recurrent", "recurrent", "attention"]
        keys.became("the types of the layers, repeated", "block_types")
        words = ["linear_attention" if block == "recurrent" else "sliding_attention" for block in blocks]
        return [words[i % len(words)] for i in range(count)]
    if model_type == "dots3_note_text":
        return ["indexed_attention" if i < 2 or i % 4 == 1 else "sliding_attention" for i in range(count)]
    if model_type in ("muse_glimmer_text", "muse_spark_text"):
        return ["sliding_attention" if (count - 1 - i) % 4 else "full_attention" for i in range(count)]
    if model_type == "mimo_v2_flash":
        return ["sliding_attention" if i and (i + 1) % 6 else "full_attention" for i in range(count)]
    if model_type == "nemotron-nas":
        return _blocks(keys, count)
    if model_type == "minimax_m3_vl_text":
        return _sparse(keys, count)
    if model_type == "bamba":
        return ["mamba"] * count
    return [ALL_ALIKE.get(model_type, "attention")] * count


def _periodic(model_type: str, keys: Keys, count: int) -> list[str]:
    period, key, others = PERIODS[model_type]
    found = keys.found(key, "_" + key) if key else []
    said = agreed([(p, SPELLINGS.get(v, v) if isinstance(v, str) else v) for p, v in found])
    if said is not None:
        if isinstance(said, bool) or not isinstance(said, int) or said < 0:
            raise ValueError(f"{found[0][0]} must be a number of layers, got {found[0][1]!r}")
        period = said
    if period is None:
        raise ValueError(f"layer_types is missing, and so is {key}; add one of them")
    if period == 0 or (model_type in BY_WINDOW and _no_window(keys)):
        return ["full_attention"] * count
    return [others if (i + 1) % period else "full_attention" for i in range(count)]


def _blocks(keys: Keys, count: int) -> list[str]:
    blocks = keys.get("block_configs", check=is_list)
    if blocks is None:
        return ["attention"] * count
    words = []
    for i, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ValueError(f"block_configs[{i}] must have an object 'attention', got {block!r:.80}")
        replaced = "linear" if attention.get("replace_with_linear") else "attention"
        words.append("no_op" if attention.get("no_op") else replaced)
    return words


def _sparse(keys: Keys, count: int) -> list[str]:
    """MiniMax M3's published form: a list of the layers with sparse attention (1) in a dictionary of its own."""
    inner = keys.get("sparse_attention_config", check=is_dict) or {}
    flags = Keys([(f"{keys.places[0][0]}sparse_attention_config.", inner)], keys.sources).wholes(
        "sparse_attention_freq"
    )
    if flags is None:
        return ["full_attention"] * count
    return ["minimax_m3_sparse" if flag else "full_attention" for flag in flags]


def listed(keys: Keys, count: int) -> list[bool]:
    """Which layers rotate by ``no_rope_layers`` (1: it rotates), or by the interval of those that do not."""
    interval = keys.whole("no_rope_layer_interval", "nope_layer_interval") or 4
    flags = keys.wholes("no_rope_layers")
    keys.became("which layers rotate (1) and which do not (0)", "no_rope_layers")
    keys.became(f"every {interval}-th layer does not rotate", "no_rope_layer_interval", "nope_layer_interval")
    if not flags:
        return [bool((i + 1) % interval) for i in range(count)]
    if len(flags) < count or any(f not in (0, 1) for f in flags):
        raise ValueError(f"no_rope_layers must have a 0 or 1 for each of the {count} layers, got {flags!r:.80}")
    return [bool(f) for f in flags[:count]]


def rotating(model_type: str, keys: Keys, words: tuple[str, ...]) -> tuple[bool, ...]:
    """Whether each layer has self-attention with a rotation."""
    attends = [word in ATTENTION for word in words]
    if model_type in LISTED_NOPE:
        attends = [a and r for a, r in zip(attends, listed(keys, len(words)), strict=True)]
    if model_type in FULL_IS_NOPE and not (model_type in BY_WINDOW and _no_window(keys)):
        dense = _dense_that_rotate(model_type, keys)
        attends = [
            a and (word != "full_attention" or i in dense)
            for i, (a, word) in enumerate(zip(attends, words, strict=True))
        ]
    return tuple(attends)


def _no_window(keys: Keys) -> bool:
    """Whether the config says ``sliding_window: null``, which makes every layer a full one that rotates."""
    return "sliding_window" in keys.places[0][1] and not keys.found("sliding_window")


def _dense_that_rotate(model_type: str, keys: Keys) -> set[int]:
    """Cohere2-MoE rotates its dense layers even with full attention if their window pattern is 1."""
    if model_type != "cohere2_moe" or keys.whole("prefix_dense_sliding_window_pattern") != 1:
        return set()
    kinds = keys.get("mlp_layer_types", check=is_list) or []
    return {i for i, kind in enumerate(kinds) if kind == "dense"}
