"""``params.json``, as Meta's and Mistral's code reads it, and transformers' config for the same model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....models.families.llama import LLAMA
from ....models.families.mistral import MISTRAL
from ....support.checks import number, whole
from .plain import LLAMA3, is_llama3, needed, rope_of

SIZES = {"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"}
SAME = {
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "head_dim": "head_dim",
    "sliding_window": "sliding_window",
}
# known keys that say nothing here: widths follow from the tensors, the others are about serving
IDLE = ("multiple_of", "ffn_dim_multiplier", "hidden_dim", "vocab_size", "max_batch_size", "max_seq_len", "causal",
    "_model_type", "max_position_embeddings", "model_max_length", "tied_embeddings")  # fmt: skip
SCALED = {"use_scaled_rope", "rope_scaling_factor"}


def config_of(
    path: Path, params: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], model_type: str
) -> dict[str, Any]:
    """transformers' config. Raises ``ValueError`` for keys that are not known, and sizes that the tensors contradict.

    ``shapes``: by transformers' names.
    """
    known = {*SIZES, *SAME, *IDLE, *SCALED, "n_kv_heads"}
    for key, value in params.items():
        if key not in known and value not in (None, False, {}, []):
            raise ValueError(f"{path}: {key} is not known, and may change the model, got {value!r:.80}")
    for key in SIZES:
        whole(f"{path}: {key}", params.get(key))
    for key in ("norm_eps", "rope_theta"):
        if params.get(key) is not None:
            number(f"{path}: {key}", params[key], above=0)
    dim, heads = params["dim"], params["n_heads"]
    kv_heads = params.get("n_kv_heads") or heads
    embedding, gate = "model.embed_tokens.weight", "model.layers.0.mlp.gate_proj.weight"
    for name in (embedding, gate):
        if name not in shapes or len(shapes[name]) != 2 or shapes[name][1] != dim:
            raise ValueError(f"{path}: dim {dim} must be the width of {name}, got {list(shapes.get(name, ()))}")
    config: dict[str, Any] = {
        "architectures": [{LLAMA: "LlamaForCausalLM", MISTRAL: "MistralForCausalLM"}[model_type]],
        "model_type": model_type, "hidden_act": "silu", "num_key_value_heads": kv_heads,
        "vocab_size": shapes[embedding][0], "intermediate_size": shapes[gate][0],
        "tie_word_embeddings": "lm_head.weight" not in shapes, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
    }  # fmt: skip
    config |= {theirs: params[ours] for ours, theirs in {**SIZES, **SAME}.items() if params.get(ours) is not None}
    length = params.get("max_seq_len") or params.get("max_position_embeddings") or params.get("model_max_length")
    if length:
        config["max_position_embeddings"] = length
    if params.get("use_scaled_rope"):
        if params.get("rope_scaling_factor") is None:
            raise ValueError(
                f"{path}: use_scaled_rope needs rope_scaling_factor, which Meta's code held: 8 in Llama 3.1, 32 in "
                "Llama 3.2; add it"
            )
        config["rope_scaling"] = {**LLAMA3, "factor": float(params["rope_scaling_factor"])}
    return config


def params_of(path: Path, config: Mapping[str, Any], mistral: bool) -> dict[str, Any]:
    """The same the other way. Raises ``ValueError`` for a scaling that ``params.json`` cannot say."""
    rope = rope_of(path, config)
    params = {ours: config[theirs] for ours, theirs in SIZES.items()}
    params["n_kv_heads"] = config["num_key_value_heads"]
    params["norm_eps"] = needed(path, config, "rms_norm_eps")
    params["rope_theta"] = rope["rope_theta"]
    params["vocab_size"] = config["vocab_size"]
    if mistral:
        params |= {"head_dim": config["head_dim"], "hidden_dim": config["intermediate_size"]}
        if config.get("sliding_window"):
            params["sliding_window"] = config["sliding_window"]
    elif config["head_dim"] * params["n_heads"] != params["dim"]:
        raise ValueError(f"{path}: head_dim must be hidden_size / heads for Meta's code, got {config['head_dim']}")
    else:
        params |= _width(params["dim"], config["intermediate_size"])
    if is_llama3(rope) and not mistral:
        params |= {"use_scaled_rope": True, "rope_scaling_factor": rope["factor"]}
    elif rope["rope_type"] != "default":
        known = "default" if mistral else f"default, or that of Llama 3: {LLAMA3}"
        raise ValueError(f"{path}: scaling must be one that params.json can say, {known}; got {rope}")
    return params


def _width(dim: int, hidden: int) -> dict[str, Any]:
    """``multiple_of`` and ``ffn_dim_multiplier`` from which Meta's code forms this width: ``8/3 dim``, times the
    multiplier, rounded up.

    >>> _width(4096, 11008)
    {'multiple_of': 256}
    >>> _width(4096, 14336)
    {'multiple_of': 256, 'ffn_dim_multiplier': 1.3}
    """
    plain = int(8 * dim / 3)
    for multiplier in (None, 1.3):
        width = plain if multiplier is None else int(multiplier * plain)
        for multiple in (256, 1024, 4096, 32, 8, 4):
            if -(-width // multiple) * multiple == hidden:
                return {"multiple_of": multiple} | ({"ffn_dim_multiplier": multiplier} if multiplier else {})
    return {"multiple_of": 1, "ffn_dim_multiplier": (hidden + 0.5) / plain}
