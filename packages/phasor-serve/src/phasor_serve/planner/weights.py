"""Bytes of a model's weights: from the headers of their files, else from the shapes that its config gives."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from phasor.support.checks import number
from phasor.support.number_text import size_text
from phasor.tools.checkpoints.formats.gguf_file import read_header as read_gguf
from phasor.tools.checkpoints.formats.safetensors_file import read_header as read_safetensors
from phasor.tools.doctor.folder import examine
from phasor.tools.doctor.model_folder import ModelFolder

from ..engines import EngineConfig, load_config
from ..engines.base import facts_of

SHARD = re.compile(r"-\d{5}-of-(\d{5})\.(gguf|safetensors)$")
WIDE = 16.0  # bits of what a quantizer leaves as it was: embeddings, and the last layer
MIXED = 1.0  # bits that scales and mixed types add at most: Q4_K_M has 4.85 bits a weight (llama.cpp, tools/quantize)
GROUPED = 0.25  # bits of scales and zeros in groups of 128 or 64 (GPTQ, AWQ)
METHODS = {"fp8": 8.0, "mxfp4": 4.25}  # quant_method -> bits a weight, with its scales
USUAL = facts_of("usual decoders", lambda experts: str(experts))  # types of one make, and the key that counts experts


@dataclass(frozen=True)
class Weights:
    """From ``low`` to ``high`` bytes, the same where they were read; ``source``: of what."""

    low: int
    high: int
    source: str

    def describe(self) -> str:
        span = size_text(self.high) if self.low == self.high else f"{size_text(self.low)} to {size_text(self.high)}"
        return f"{span} ({self.source})"


def read_weights(path: Path) -> Weights:
    """The bytes of the tensors in a GGUF or safetensors file with its shards, or in the safetensors of a folder.

    Raises ``ValueError`` where there are none, a shard is missing, or a header does not agree with its file.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        inside = ", ".join(sorted(file.name for file in path.glob("*.gguf"))) or "none"
        raise ValueError(f"{path}: must hold *.safetensors; of GGUF files name one (there: {inside})")
    files = sorted({part for file in files for part in _shards(file)})
    headers = [read_gguf(file) if file.suffix == ".gguf" else read_safetensors(file) for file in files]
    size = sum(tensor.size for header in headers for tensor in header.tensors.values())
    name = files[0].name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return Weights(size, size, f"the headers of {name}")


def doubts_of(config: Any) -> list[str]:
    """What the doctor finds in a folder before its model is loaded: the plan is then for other weights than these.

    Headers, shapes and stored frequencies are looked at; none where a config alone was named.
    """
    if not isinstance(config, str) or not Path(config).is_dir() or not ModelFolder(Path(config)).has_weights:
        return []
    if find_spec("transformers") is None:
        return ["not shown: the doctor's folder checks need transformers (pip install 'phasor-rope[hf]')"]
    return [f"{fault.where}: {fault.reason}" for fault in examine(Path(config)).findings]


def weights_for(config: Any, files: Path | None, bits: float | None, draft: Any = None) -> Weights:
    """The weights of a config, and of a draft's: of ``files``, else those beside the config, else counted."""
    if files is not None and bits is not None:
        raise ValueError("--weights reads how many bits the weights have; leave --weights-bits out")
    folder = Path(config) if isinstance(config, str) and Path(config).is_dir() else None
    if files is None and bits is None and folder is not None and any(folder.glob("*.safetensors")):
        files = folder
    own = count_weights(load_config(config), bits) if files is None else read_weights(files)
    if draft is None:
        return own
    more = weights_for(draft, None, None)
    return Weights(own.low + more.low, own.high + more.high, f"{own.source}; draft: {more.source}")


def _shards(file: Path) -> list[Path]:
    found = SHARD.search(file.name)
    if found is None:
        return [file]
    count, start = int(found[1]), file.name[: found.start()]
    shards = [file.with_name(f"{start}-{i:05d}-of-{count:05d}.{found[2]}") for i in range(1, count + 1)]
    if missing := [shard.name for shard in shards if not shard.is_file()]:
        raise ValueError(f"{file.parent}: must hold all {count} shards of {start}, and {missing[0]} is missing")
    return shards


def count_weights(config: EngineConfig, bits: float | None = None) -> Weights:
    """The weights of the model that transformers builds for a config, without memory, in ``bits`` each.

    Of usual decoders the matrices by the config alone, without the import of transformers, which takes seconds.
    ``bits``: by default what the config states. Below 16 a range: all in ``bits``, or the matrices with scales beside
    embeddings in 16 bits.
    """
    stated = bits if bits is not None else _stated(config.data)
    number("weights_bits", stated, above=0)
    shapes = _matrices(config) or _shapes(config.data)
    total = sum(count for count, _ in shapes)
    wide = sum(count for count, outside in shapes if outside)
    source = f"{total / 1e9:.3g}e9 weights by the config, {stated:g} bits each"
    if stated >= WIDE:
        size = int(total * stated / 8)
        return Weights(size, size, source)
    high = ((total - wide) * (stated + (GROUPED if bits is None else MIXED)) + wide * WIDE) / 8
    return Weights(int(total * stated / 8), int(high), f"{source}, estimated")


def _matrices(config: EngineConfig) -> list[tuple[int, bool]]:
    """What `_shapes` finds, without norms and biases (under 0.1 %); empty where a config leaves a size to its class.

    Four matrices of attention and the three of a gated feed-forward, or of each expert beside the one that chooses.
    """
    data, model = config.data, config.model
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "tie_word_embeddings")
    experts = USUAL.get(str(data.get("model_type")))
    if (
        experts is None
        or not model.distinct
        or any(data.get(key) is None for key in (*sizes, *filter(None, [experts])))
    ):
        return []
    hidden, vocabulary = int(data["hidden_size"]), int(data["vocab_size"]) * int(data["hidden_size"])
    attention = 2 * hidden * next(iter(model.distinct)).head_dim * (model.num_heads + model.num_kv_heads)
    feeding = 3 * hidden * int(data.get("moe_intermediate_size") or data["intermediate_size"])
    feeding = int(data[experts]) * (feeding + hidden) if experts else feeding
    outer = [(vocabulary, True)] * (1 if data["tie_word_embeddings"] else 2)
    return [(len(model.layers) * (attention + feeding), False), *outer]


def _shapes(data: dict[str, Any]) -> list[tuple[int, bool]]:
    """The size of each parameter, and whether it is one of the vocabulary, as a quantizer leaves them."""
    import torch

    from phasor.eye.tiny.config import config_of
    from phasor.eye.tiny.model import model_class
    from phasor.support.transformers_log import quiet

    with quiet(), torch.random.fork_rng([]), torch.device("meta"):
        config = config_of({key: value for key, value in data.items() if key != "quantization_config"})
        model = model_class(config)(config)
    text = config.get_text_config()
    vocabulary = int(text.vocab_size)
    found = [(p.numel(), p.ndim == 2 and p.shape[0] == vocabulary) for p in model.parameters()]
    tied = getattr(config, "tie_word_embeddings", None) or getattr(text, "tie_word_embeddings", False)
    return found if tied else [*found, (vocabulary * int(text.hidden_size), True)]


def _stated(data: dict[str, Any]) -> float:
    quantized = data.get("quantization_config") or data.get("text_config", {}).get("quantization_config")
    if not quantized:
        return 32.0 if "float32" in (data.get("dtype"), data.get("torch_dtype")) else WIDE
    bits = quantized.get("bits") or METHODS.get(str(quantized.get("quant_method")))
    if bits is None:
        raise ValueError(
            f"quantization_config of method {quantized.get('quant_method')!r} does not say how many bits a weight has; "
            "state them (--weights-bits), or name the files (--weights)"
        )
    return float(bits)
