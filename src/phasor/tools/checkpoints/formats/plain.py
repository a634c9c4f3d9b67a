"""A plain Llama: the names of its tensors, its config, and ``params.json``, which Meta's and Mistral's code reads."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ....models.rows import LLAMA, MISTRAL
from ....support.checks import number, whole
from ..source import Source
from ..stored import file_of

FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
LENGTH = 2048  # positions, where a config says nothing
# the scheme of Llama 3.1 and 3.2, which differ in its factor (meta-llama/llama-models, apply_scaling)
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip


def needed(said: str, value: Any) -> Any:
    """A value that must stand in the config; ``ValueError`` if it is left to the class of transformers."""
    if value is None:
        raise ValueError(f"{said} is missing, and the format must say it; add it")
    return value


def rope_of(said: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Base, name of the scheme and its fields, wherever they stand: inside a dictionary, or at the top.

    ``said``: where the base stands.

    >>> rope_of("config.json: rope_theta", {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    {'rope_theta': 500000.0, 'rope_type': 'linear', 'factor': 2.0}
    >>> rope_of("config.json: rope_theta", {"rope_parameters": {"rope_theta": 5e5}})
    {'rope_theta': 500000.0, 'rope_type': 'default'}
    """
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    base = needed(said, rope.get("rope_theta", config.get("rope_theta")))
    scheme = rope.get("rope_type", rope.get("type", "default"))
    fields = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type", "type")}
    return {"rope_theta": base, "rope_type": scheme, **fields}


def is_llama3(rope: Mapping[str, Any]) -> bool:
    """Whether what `rope_of` found is exactly the scheme of Llama 3, with any factor.

    >>> is_llama3({**LLAMA3, "factor": 8.0}), is_llama3({**LLAMA3, "factor": 8.0, "high_freq_factor": 1.0})
    (True, False)
    """
    return LLAMA3.items() <= rope.items()


def check_plain(source: Source, config: Mapping[str, Any], names: Collection[str], types: tuple[str, ...]) -> None:
    """Raises ``ValueError`` for a model with something that the formats of a plain Llama have no place for."""
    name = config.get("model_type")
    if name not in types:
        raise ValueError(
            f"{source.path}: model_type must be one of {', '.join(types)} for this format, got {name!r:.80}"
        )
    check_fixed(source, config, FIXED)
    check_names(source, config, names, names)
    check_sizes(source, config)


def check_fixed(source: Source, config: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raises ``ValueError`` where the config asks for another value than the one that the format's code has."""
    for key in keys:
        if config.get(key) not in (None, FIXED[key]):
            raise ValueError(f"{source.said(key)} must be {FIXED[key]!r} for this format, got {config[key]!r:.80}")


def check_names(source: Source, config: Mapping[str, Any], allowed: Collection[str], wanted: Collection[str]) -> None:
    """Raises ``ValueError`` for a tensor that the format has no place for, and for one that is missing."""
    there = source.tensors.keys()
    if more := sorted(there - {*allowed}):
        raise ValueError(f"{source.place(more[0])}: has no place in this format; remove it first")
    untied = config.get("tie_word_embeddings") is False  # left out, it may be either
    if lost := sorted({*wanted} - there - (set() if untied else {TIED})):
        tied = lost[0] == TIED
        place = source.config_file if tied else file_of(source.folder, lost[0], source.tensors)
        why = ", since tie_word_embeddings is false" if tied else ""
        raise ValueError(f"{place}: {lost[0]} is missing, and the format must have it{why}")


Q_ROWS, K_ROWS = "num_attention_heads * head_dim", "num_key_value_heads * head_dim"
# the last word of a module -> what its weight must have along each axis, which its bias has of the first
AXES = {
    **dict.fromkeys(("embed_tokens", "lm_head"), ("vocab_size", "hidden_size")),
    **dict.fromkeys(
        ("norm", "input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm"), ("hidden_size",)
    ),
    **dict.fromkeys(("gate_proj", "up_proj"), ("intermediate_size", "hidden_size")),
    "down_proj": ("hidden_size", "intermediate_size"),
    "q_proj": (Q_ROWS, "hidden_size"),
    **dict.fromkeys(("k_proj", "v_proj"), (K_ROWS, "hidden_size")),
    "o_proj": ("hidden_size", Q_ROWS),
}
WHOLE = ("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "num_attention_heads",
    "num_key_value_heads", "head_dim")  # fmt: skip
MOST = 2**31 - 1  # what readers in C hold


def check_sizes(source: Source, config: Mapping[str, Any]) -> None:
    """Raises ``ValueError`` for sizes of another kind than a model's, and for weights of other sizes than it says.

    What is written would say the one and have the other. Keys that ``config`` leaves out are not looked at.
    """
    for key in (key for key in WHOLE if config.get(key) is not None):
        whole(source.said(key), config[key])
        if config[key] > MOST:
            raise ValueError(f"{source.said(key)} must be at most {MOST}, got {config[key]}; mend it")
    if config.get("rms_norm_eps") is not None:
        number(source.said("rms_norm_eps"), config["rms_norm_eps"], above=0)
    sizes = {key: config.get(key) for keys in AXES.values() for key in keys}
    for product in (Q_ROWS, K_ROWS):
        heads, _, width = product.partition(" * ")
        if config.get(heads) and config.get(width):
            sizes[product] = config[heads] * config[width]
    for name, tensor in source.tensors.items():
        module, _, word = name.rpartition(".")
        keys = AXES.get(module.rpartition(".")[2], ())[: 1 if word == "bias" else 2]
        if keys and len(tensor.shape) != len(keys):
            raise ValueError(f"{source.place(name)}: must have axes of {', '.join(keys)}, got {list(tensor.shape)}")
        for axis, (key, size) in enumerate(zip(keys, tensor.shape, strict=False)):
            if sizes[key] not in (None, size):
                said = " * ".join(source.keys.get(each, each) for each in key.split(" * "))
                raise ValueError(
                    f"{source.place(name)}: must have {sizes[key]} along axis {axis}, as {source.config_file.name}: "
                    f"{said} says, got shape {list(tensor.shape)}; mend the one that is wrong"
                )


def check_dtypes(source: Source, known: Collection[str]) -> None:
    """Raises ``ValueError`` for a tensor of a data type that the format has not."""
    for name, tensor in source.tensors.items():
        if tensor.dtype not in known:
            raise ValueError(
                f"{source.place(name)}: must have a dtype of {', '.join(known)} for this format, got {tensor.dtype}; "
                "convert the weights to one of them first"
            )


# transformers' name -> Meta's; {} is the number of the layer
META = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.layers.{}.input_layernorm.weight": "layers.{}.attention_norm.weight",
    "model.layers.{}.self_attn.q_proj.weight": "layers.{}.attention.wq.weight",
    "model.layers.{}.self_attn.k_proj.weight": "layers.{}.attention.wk.weight",
    "model.layers.{}.self_attn.v_proj.weight": "layers.{}.attention.wv.weight",
    "model.layers.{}.self_attn.o_proj.weight": "layers.{}.attention.wo.weight",
    "model.layers.{}.post_attention_layernorm.weight": "layers.{}.ffn_norm.weight",
    "model.layers.{}.mlp.gate_proj.weight": "layers.{}.feed_forward.w1.weight",
    "model.layers.{}.mlp.down_proj.weight": "layers.{}.feed_forward.w2.weight",
    "model.layers.{}.mlp.up_proj.weight": "layers.{}.feed_forward.w3.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
}
TIED = "lm_head.weight"


def of_layers(names: Mapping[str, str], layers: int) -> dict[str, str]:
    """The names of all layers spelled out.

    >>> of_layers({"a.{}": "b.{}", "c": "d"}, 2)
    {'a.0': 'b.0', 'a.1': 'b.1', 'c': 'd'}
    """
    return {
        ours.format(i): theirs.format(i)
        for ours, theirs in names.items()
        for i in range(layers if "{}" in ours else 1)
    }  # fmt: skip


def own_names(path: Path, layers: Any, tensors: Collection[str]) -> dict[str, str]:
    """Meta's name -> transformers' for a model of so many layers, which the tensors must be enough for."""
    if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= len(tensors):
        raise ValueError(
            f"{path}: n_layers must be a number of layers that {len(tensors)} tensors make, got {layers!r}"
        )
    return {theirs: ours for ours, theirs in of_layers(META, layers).items()}


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
LENGTHS = ("max_seq_len", "max_position_embeddings", "model_max_length")
SCALED = {"use_scaled_rope", "rope_scaling_factor"}


# transformers' key -> that of params.json
KEYS = {theirs: ours for ours, theirs in {**SIZES, **SAME}.items()} | {"num_key_value_heads": "n_kv_heads"}


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
    for key in ("norm_eps", "rope_theta", "rope_scaling_factor"):
        if params.get(key) is not None:
            number(f"{path}: {key}", params[key], above=0)
    for key in ("sliding_window", *LENGTHS):
        if params.get(key):
            whole(f"{path}: {key}", params[key])
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
    if length := next((params[key] for key in LENGTHS if params.get(key)), None):
        config["max_position_embeddings"] = length
    if params.get("use_scaled_rope"):
        if params.get("rope_scaling_factor") is None:
            raise ValueError(
                f"{path}: use_scaled_rope needs rope_scaling_factor, which Meta's code held: 8 in Llama 3.1, 32 in "
                "Llama 3.2; add it"
            )
        config["rope_scaling"] = {**LLAMA3, "factor": float(params["rope_scaling_factor"])}
    return config


def params_of(source: Source, config: Mapping[str, Any], mistral: bool) -> dict[str, Any]:
    """The same the other way. Raises ``ValueError`` for a scaling that ``params.json`` cannot say."""
    rope = rope_of(source.said("rope_theta"), config)
    said = {**SIZES, "n_kv_heads": "num_key_value_heads", "norm_eps": "rms_norm_eps", "vocab_size": "vocab_size"}
    params = {ours: needed(source.said(theirs), config.get(theirs)) for ours, theirs in said.items()}
    params["rope_theta"] = rope["rope_theta"]
    width = needed(source.said("intermediate_size"), config.get("intermediate_size"))
    if mistral:
        params |= {"head_dim": config["head_dim"], "hidden_dim": width}
        if config.get("sliding_window"):
            whole(source.said("sliding_window"), config["sliding_window"])
            params["sliding_window"] = config["sliding_window"]
        if config.get("max_position_embeddings"):
            params["max_position_embeddings"] = config["max_position_embeddings"]
    elif config["head_dim"] * params["n_heads"] != params["dim"]:
        raise ValueError(
            f"{source.said('head_dim')} must be hidden_size / heads for Meta's code, got {config['head_dim']}"
        )
    else:
        params |= _width(params["dim"], width)
    if is_llama3(rope) and not mistral:
        params |= {"use_scaled_rope": True, "rope_scaling_factor": rope["factor"]}
    elif rope["rope_type"] != "default":
        known = "default" if mistral else f"default, or that of Llama 3: {LLAMA3}"
        raise ValueError(f"{source.said('rope_scaling')} must be one that params.json can say, {known}; got {rope}")
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
