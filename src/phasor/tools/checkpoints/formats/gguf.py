"""GGUF files of models of Llama's shape. Which pairs an architecture rotates stands in the model's row (`Gguf`).

Tensors keep their types; rows of quantized blocks move whole. The metadata of a GGUF file goes along in
``metadata.gguf``, a file without tensors, and from there back into a GGUF file; without it what is written
has no tokenizer.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....models.reading.row import Row
from ....models.rows import ROWS
from ....models.weights import Gguf
from ....rotary.scaling import Llama3
from ....rotary.spec import RotarySpec
from ....support.regular_files import opened
from ..opening import read_at
from ..output import Output, Segment, merged, segment
from ..qk_tensors import Move
from ..source import METADATA, Source, others
from .gguf_factors import FACTORS, check_long, lost_factors
from .gguf_file import PLAIN, GgufFile, check_package, pair, read_header, write_header
from .plain import (
    LENGTH,
    LLAMA3,
    TIED,
    check_dtypes,
    check_fixed,
    check_names,
    check_sizes,
    is_llama3,
    needed,
    rope_of,
)

if TYPE_CHECKING:  # other formats are planned without numpy
    import numpy as np

FILE = "model.gguf"
MODULES = (
    "model.embed_tokens", "model.norm", "lm_head",
    *(f"model.layers.{{}}.{name}" for name in ("input_layernorm", "post_attention_layernorm",
      "post_feedforward_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
      "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")),
)  # fmt: skip
QKV = {f"self_attn.{letter}_proj.bias" for letter in "qkv"}


def recognised(path: Path) -> bool:
    return _file(path) is not None


def _file(path: Path) -> Path | None:
    if path.is_dir():
        files = [p for p in sorted(path.glob("*.gguf")) if p.name != METADATA]
        return files[0] if len(files) == 1 else None
    return path if path.suffix == ".gguf" else None


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` for architectures without a row, and for tensors and keys that are not known."""
    at = _file(path)
    assert at is not None
    file = read_header(at)
    arch = file.metadata.get("general.architecture")
    check_long(file, str(arch))
    rows = {name: row.gguf for name, row in ROWS.items() if isinstance(row, Row) and row.gguf}
    of_arch = [name for name, row in rows.items() if row.arch == arch]
    if not of_arch:
        known = ", ".join(sorted({row.arch for row in rows.values()}))
        raise ValueError(f"{at}: general.architecture must be one of {known} here, got {arch!r:.60}")
    if file.metadata.get("split.count", 1) > 1:
        raise ValueError(f"{at}: is one of {file.metadata['split.count']} parts; join them with llama-gguf-split first")
    model_type = str(arch) if arch in of_arch else of_arch[0]
    row = rows[model_type]
    blocks = file.metadata.get(f"{arch}.block_count")
    if not isinstance(blocks, int) or not 1 <= blocks <= len(file.tensors):
        raise ValueError(
            f"{at}: {arch}.block_count must be a number that {len(file.tensors)} tensors make, got {blocks!r}"
        )
    config = config_of(at, file.metadata, row, model_type, _factors(file))
    names = {theirs: ours for ours, theirs in _names(row.arch, config["num_hidden_layers"]).items()}
    if unknown := sorted(file.tensors.keys() - names.keys() - {FACTORS}):
        raise ValueError(f"{at}: {unknown[0]:.80}: is no tensor of a plain {arch}")
    tensors = {names[name]: tensor for name, tensor in file.tensors.items() if name in names}
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None:
        raise ValueError(f"{at}: token_embd.weight: must be there, and is not")
    config |= {"vocab_size": embedding.shape[0], "tie_word_embeddings": TIED not in tensors}
    if "model.layers.0.self_attn.q_proj.bias" in tensors:
        config["attention_bias"] = True
    copied, left = others(path, (at.name, METADATA)) if path.is_dir() else ((), ())
    layout = layout_of(row)
    source = Source(
        format="gguf", path=path, tensors=tensors, config=config, layout=layout,
        why=f"llama.cpp rotates architecture {arch} so", files=(at,), other_files=copied, left_out=left,
        keep={"file": file, "arch": row}, new_files={METADATA: write_header(file.pairs, [], file.alignment)},
        stated=at, lost=lost_factors(file, row.arch),
        keys={theirs: f"{arch}.{ours}" for ours, theirs in SIZES.items()}
        | {"rope_scaling.factor": f"{arch}.rope.scaling.factor"},
    )  # fmt: skip
    check_sizes(source, config)
    return source


def _factors(file: GgufFile) -> Any:
    tensor = file.tensors.get(FACTORS)
    if tensor is None:
        return None
    import numpy as np

    with opened(file.path) as fd:
        return np.frombuffer(read_at(fd, tensor.offset, tensor.size, file.path), np.float32)


@cache
def _names(arch: str, layers: int) -> dict[str, str]:
    """transformers' name -> GGUF's, as the ``gguf`` package knows them."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kind = next(key for key, name in MODEL_ARCH_NAMES.items() if name == arch)
    known = get_tensor_name_map(kind, layers)
    names: dict[str, str] = {}
    for module in MODULES:
        for i in range(layers if "{}" in module else 1):
            if (theirs := known.get_name(module.format(i))) is not None:
                names |= {f"{module.format(i)}.{word}": f"{theirs}.{word}" for word in ("weight", "bias")}
    return names


def layout_of(row: Gguf) -> str:
    return "interleaved" if row.interleaved else "halves"


def layout_for(qk: Any) -> str:
    """The layout in which llama.cpp reads the model; ``ValueError`` for one whose row does not say."""
    row: Gguf | None = qk.row.gguf
    if row is None:
        raise ValueError(f"model_type {qk.rotary.model_type!r} is not written to GGUF here; use llama.cpp's converter")
    return layout_of(row)


def outputs(source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str) -> list[Output]:
    """One file. Raises ``ValueError`` for tensors and scalings that it has no place for."""
    check_package()
    name = source.config["model_type"]
    made = ROWS[name]
    row: Gguf | None = source.keep.get("arch") or (made.gguf if isinstance(made, Row) else None)
    assert row is not None
    names = _names(row.arch, config["num_hidden_layers"])
    check_fixed(source, config, ("hidden_act", "mlp_bias"))
    biased = {name.split(".", 3)[-1] for name in source.tensors if name.endswith(".bias")}
    if biased & QKV:  # a model has all of them or none, in every layer
        biased |= QKV
    wanted = [name for name in names if name.endswith(".weight") or name.split(".", 3)[-1] in biased]
    check_names(source, config, names, wanted)
    check_sizes(source, config)
    if source.format != "gguf":
        check_dtypes(source, [*PLAIN])
    file, metadata = source.keep.get("file"), source.folder / METADATA
    if file is None and metadata.exists():  # it came along from a GGUF file
        file = read_header(metadata)
    pairs, alignment = _pairs(source, config, row, file)
    tensors = {names[ours]: tensor for ours, tensor in source.tensors.items()}
    segments: dict[str, Segment] = {
        n: segment(source.tensors[o], moves.get(o)) for o in source.tensors for n in [names[o]]
    }
    abouts = [(n, t.dtype, t.shape, t.size) for n, t in tensors.items()]
    if factors := factors_of(source, config):
        first = list(file.tensors).index(FACTORS) if file is not None and FACTORS in file.tensors else 0
        abouts.insert(first, (FACTORS, "F32", (len(factors) // 4,), len(factors)))
        segments[FACTORS] = factors
    body: list[Segment] = [write_header(pairs, abouts, alignment)]
    for theirs, _, _, size in abouts:
        body += [segments[theirs], b"\0" * (-size % alignment)]
    return [Output(FILE, merged(body))]


def _pairs(source: Source, config: dict[str, Any], row: Gguf, file: GgufFile | None) -> tuple[Mapping[str, bytes], int]:
    if file is None:
        return metadata_of(source, config, row, source.tensors["model.embed_tokens.weight"].shape[0]), 32
    stated = config_of(file.path, file.metadata, row, source.config["model_type"], _factors(file))
    ropes = rope_of(source.said("rope_theta"), config), rope_of(f"{file.path}: rope_theta", stated)
    if is_llama3(ropes[0]):  # a tensor says it, not the metadata
        ropes = {"rope_theta": ropes[0]["rope_theta"], "rope_type": "default"}, ropes[1]
    ours, theirs = ({**each, "rope_parameters": rope} for each, rope in zip((config, stated), ropes, strict=True))
    for key in sorted(theirs.keys() & ours.keys() - {"rope_theta", "rope_scaling", "bos_token_id", "eos_token_id"}):
        if ours[key] != theirs[key]:
            raise ValueError(f"{file.path}: {key} must be what config.json says, {ours[key]!r}, got {theirs[key]!r}")
    return file.pairs, file.alignment


# key after the architecture's name -> transformers' key
SIZES = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta", "attention.key_length": "head_dim",
}  # fmt: skip
# further keys that are checked, or say nothing about the weights
KNOWN = {"rope.dimension_count", "attention.value_length", "vocab_size", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "attention.causal"}  # fmt: skip


def config_of(path: Path, metadata: Mapping[str, Any], row: Gguf, model_type: str, factors: Any) -> dict[str, Any]:
    """transformers' config. Raises ``ValueError`` for keys of the architecture that are not known, or missing.

    ``factors``: the tensor ``rope_freqs`` of Llama 3, or None.
    """
    stated = {k.removeprefix(f"{row.arch}."): v for k, v in metadata.items() if k.startswith(f"{row.arch}.")}
    if unknown := sorted(stated.keys() - SIZES.keys() - KNOWN):
        raise ValueError(
            f"{path}: {row.arch}.{unknown[0]}: is not known, and may change the model: {stated[unknown[0]]!r}"
        )
    for key in ("block_count", "embedding_length", "feed_forward_length", "attention.head_count"):
        if not isinstance(stated.get(key), int) or isinstance(stated[key], bool) or stated[key] < 1:
            raise ValueError(f"{path}: {row.arch}.{key} must be a number from 1, got {stated.get(key)!r}")
    config = {theirs: _shortest(stated[ours]) for ours, theirs in SIZES.items() if stated.get(ours) is not None}
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim", width // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if stated.get(key, head_dim) != head_dim:
            raise ValueError(f"{path}: {row.arch}.{key} must be the width of a head, {head_dim}, got {stated[key]}")
    config = {"model_type": model_type, "hidden_act": "silu", "rope_theta": 10_000.0, **config}
    # without a type llama.cpp takes a factor as linear (llama_model::load_hparams)
    kind = stated.get("rope.scaling.type", "linear" if stated.get("rope.scaling.factor") else "none")
    if kind == "linear":
        config["rope_scaling"] = {"rope_type": "linear", "factor": _factor(path, row.arch, stated)}
    elif kind != "none":
        raise ValueError(f"{path}: {row.arch}.rope.scaling.type must be none or linear here, got {kind!r}")
    if factors is not None:
        config["rope_scaling"] = _llama3(path, factors, config["rope_theta"], head_dim)
    for word in ("bos", "eos"):
        if isinstance(token := metadata.get(f"tokenizer.ggml.{word}_token_id"), int):
            config[f"{word}_token_id"] = token
    return config


def _factor(path: Path, arch: str, stated: Mapping[str, Any]) -> Any:
    """The factor of linear scaling, which llama.cpp takes as 1 where it is absent."""
    if stated.get("rope.scaling.factor") is None:
        raise ValueError(
            f"{path}: {arch}.rope.scaling.factor: is missing, and {arch}.rope.scaling.type 'linear' needs it; convert "
            "the original model anew, or set it"
        )
    return _shortest(stated["rope.scaling.factor"])


def _shortest(value: Any) -> Any:
    """A number in float32 as people write it: 1e-05, not 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value))) if isinstance(value, float) else value


def _llama3(path: Path, factors: Any, base: float, head_dim: int) -> dict[str, Any]:
    """The scaling whose factors these are."""
    import numpy as np

    for factor in (8.0, 32.0):  # Llama 3.1, Llama 3.2
        if np.allclose(factors, llama3_factors(base, head_dim, factor), rtol=1e-5):
            return {**LLAMA3, "factor": factor}
    raise ValueError(f"{path}: rope_freqs.weight: must be the factors of Llama 3.1 or 3.2, and is not")


def llama3_factors(base: float, head_dim: int, factor: float) -> "np.ndarray[Any, Any]":
    """What llama.cpp divides the frequencies of Llama 3 by, float32."""
    import numpy as np

    plain = RotarySpec(head_dim=head_dim, base=base)
    scaling = Llama3(
        factor, LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"], LLAMA3["original_max_position_embeddings"]
    )
    scaled = plain.replace(scaling=scaling)
    factors: np.ndarray[Any, Any] = (plain.inv_freq() / scaled.inv_freq()).numpy().astype(np.float32)
    return factors


def metadata_of(source: Source, config: Mapping[str, Any], row: Gguf, vocab: int) -> dict[str, bytes]:
    """The same the other way: key -> its bytes, with those of its value. No tokenizer."""
    rope = rope_of(source.said("rope_theta"), config)
    length = config.get("max_position_embeddings") or LENGTH
    sizes = {**config, "max_position_embeddings": length, "rope_theta": rope["rope_theta"]}
    values: dict[str, Any] = {"general.architecture": row.arch}
    for ours, theirs in SIZES.items():
        value = needed(source.said(theirs), sizes.get(theirs))
        values[f"{row.arch}.{ours}"] = float(value) if theirs in ("rope_theta", "rms_norm_eps") else value
    values |= {f"{row.arch}.{k}": config["head_dim"] for k in ("attention.value_length", "rope.dimension_count")}
    values[f"{row.arch}.vocab_size"] = vocab
    if rope["rope_type"] == "linear":
        values |= {f"{row.arch}.rope.scaling.type": "linear", f"{row.arch}.rope.scaling.factor": float(rope["factor"])}
    elif rope["rope_type"] not in ("default", "llama3"):
        raise ValueError(
            f"{source.said('rope_scaling')}: {rope['rope_type']} scaling is not written to GGUF here; use llama.cpp's "
            "own converter"
        )
    for key, value in values.items():
        if isinstance(value, float) and value > 3.4e38:
            raise ValueError(f"{source.path}: {key} must fit into the float32 of GGUF, got {value}")
    return {key: pair(key, value) for key, value in values.items()}


def factors_of(source: Source, config: Mapping[str, Any]) -> bytes:
    """The tensor ``rope_freqs`` that a config of Llama 3 needs; empty for others."""
    rope = rope_of(source.said("rope_theta"), config)
    if rope["rope_type"] != "llama3":
        return b""
    if not is_llama3(rope):
        raise ValueError(
            f"{source.said('rope_scaling')}: llama3 scaling must be that of Llama 3 for GGUF, {LLAMA3}; got "
            f"{rope!r:.200}"
        )
    return llama3_factors(rope["rope_theta"], config["head_dim"], rope["factor"]).tobytes()
