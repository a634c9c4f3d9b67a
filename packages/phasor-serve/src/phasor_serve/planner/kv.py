"""Memory of keys and values, layer by layer: what each kind of layer stores, in each engine."""

from dataclasses import dataclass
from typing import Any

from phasor import read_config
from phasor.support.checks import whole
from phasor.support.number_text import size_text

from ..engines import EngineConfig, engine_of
from ..engines.exllamav3 import MODELS
from .choose import window_of_all

PLAIN = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}  # bits of a value
WINDOWS = {
    "sliding_attention": "sliding_window",
    "hybrid_sliding": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}
FIXED = ("linear_attention", "mamba", "conv", "recurrent", "linear", "no_op", "moe", "mlp", "cross_attention")
FP8 = 8.0  # bits
SPARSE_FP8 = 4 * 4 + 64  # bytes that are then added to 576 of a latent entry: four scales, 64 channels in 16 bits
COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}  # DeepSeek-V4: tokens an entry
UBATCH, CELLS = 512, 256  # llama.cpp: tokens of one batch (-ub), and of what its caches are multiples


@dataclass(frozen=True)
class Beside:
    """What a layer keeps beside keys and values: an entry of ``values`` for each ``every`` tokens.

    ``size``: bytes of an entry where the engine keeps it in a format of its own; 0: values in the cache's dtype.
    """

    what: str
    values: int
    every: int = 1
    size: int = 0


@dataclass(frozen=True)
class Store:
    """What the layers of one kind keep on one device: elements per token, of at most ``window`` tokens, and a state."""

    kind: str
    layers: int
    per_token: int
    window: int | None = None
    state: int = 0
    beside: tuple[Beside, ...] = ()
    shared: int = 0

    def bytes_at(self, length: int, bits: float) -> int:
        """Bytes at ``length`` tokens, with values of so many ``bits``."""
        kept = min(length, self.window) if self.window else length
        own = bits / 8 * (self.per_token * kept + self.state)
        more = sum(length // one.every * (one.size or bits / 8 * one.values) for one in self.beside)
        return int((self.layers - self.shared) * (own + more))


@dataclass(frozen=True)
class Memory:
    """Bytes of keys and values on one device. ``stores``: kind -> bytes; ``draft``: those of layers that look ahead."""

    stores: tuple[tuple[Store, int], ...]
    draft: int
    per_token: int
    length: int
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Without the draft layers."""
        return sum(size for _, size in self.stores)

    def describe(self) -> list[str]:
        lines = [f"{size_text(self.total)} at {self.length:,} tokens; the next one costs {self.per_token:,} bytes"]
        for store, size in self.stores:
            window = f", last {store.window:,} tokens" if store.window else ""
            what = f"{store.per_token:,} values a token" if store.per_token else f"a state of {store.state:,} values"
            more = "".join(f", {one.what}: {one.values:,} every {one.every:,} tokens" for one in store.beside)
            lines.append(f"  {store.layers} x {store.kind}: {size_text(size)} ({what}{window}{more})")
        if self.draft:
            lines.append(f"  and {size_text(self.draft)} for draft layers, if they are used")
        return [*lines, *(f"  {note}" for note in self.notes)]

    def to_dict(self) -> dict[str, Any]:
        kinds = {
            store.kind: {"layers": store.layers, "bytes": size, "window": store.window} for store, size in self.stores
        }
        return {
            "total": self.total,
            "per_token": self.per_token,
            "kinds": kinds,
            "draft": self.draft,
            "notes": list(self.notes),
        }


def memory(
    config: EngineConfig, engine: str, length: int, *, dtype: str = "bfloat16", tensor_parallel: int = 1, batch: int = 1
) -> Memory:
    """Bytes of keys and values of ``batch`` sequences of ``length`` tokens, on each of ``tensor_parallel`` devices.

    Weights, activations and the rounding up to pages are left out. ``dtype``: float32, bfloat16, float16, or one of the
    engine's own.
    """
    whole("tensor_parallel", tensor_parallel)
    whole("batch", batch)
    whole("length", length)
    bits, sizes, notes, serving = bits_of(dtype, engine), [], [], engine_of(engine).serving
    for store in stores(config, engine, tensor_parallel, bits):
        sizes.append((store, batch * store.bytes_at(length, bits)))
    kept = window_of_all(config.model) and serving.window_kept
    if unwindowed(config, engine) and (kept or any(word in WINDOWS for word in config.model.layer_types)):
        notes.append(serving.in_full or "windowed layers are kept in full")
    if window_of_all(config.model) and not serving.window_kept:
        shown = f"{engine} has none" if serving.window_lost else f"whether {engine} has it is not shown"
        notes.append(f"all tokens are counted, without the window of sliding_window: {shown}")
    if COMPRESSED.keys() & set(config.model.layer_types) and engine != "transformers":
        notes.append(f"as transformers keeps them; in what format {engine} keeps compressed entries is not shown")
    if any(store.state for store, _ in sizes):
        notes.append("states are counted in the cache's dtype; engines may keep them in float32")
    if image := _image(config):
        size = batch * bits * image // (8 * tensor_parallel)
        notes.append(f"an image of all tiles adds {size_text(size)} in the layers of cross-attention, once")
    draft = _draft(config, engine, tensor_parallel)
    return Memory(
        stores=tuple(sizes), draft=int(batch * bits / 8 * draft * length), length=length, notes=tuple(notes),
        per_token=sum(batch * s.bytes_at(length + 1, bits) - size for s, size in sizes),
    )  # fmt: skip


def bits_of(dtype: str, engine: str) -> float:
    """Bits of one value of a cache type, which the engine must have."""
    known = {**PLAIN, **engine_of(engine).serving.caches}
    if dtype not in known:
        raise ValueError(f"dtype must be a cache type that {engine} has, one of {', '.join(known)}, got {dtype!r}")
    return known[dtype]


def stores(config: EngineConfig, engine: str, tensor_parallel: int = 1, bits: float = 16.0) -> list[Store]:
    """What each kind of layer keeps, in the order in which the kinds first stand."""
    text, words = config.text, config.model.layer_types
    shared = int(text.get("num_kv_shared_layers") or 0)
    layers_of: dict[tuple[Any, ...], list[int]] = {}
    indexed = _indexed(config)
    for i, word in enumerate(words):
        beside = _beside(config, engine, word, indexed[i], bits)
        layers_of.setdefault((word, *_layer(config, engine, i, tensor_parallel), beside), []).append(i)
    return [
        Store(word, len(layers), values, window, state, beside, sum(i >= len(words) - shared for i in layers))
        for (word, values, window, state, beside), layers in layers_of.items()
    ]


def _indexed(config: EngineConfig) -> list[int]:
    """Per layer the width of its indexer's keys, which one head has; 0 without an indexer of its own."""
    part = ".".join(filter(None, (config.path, "indexer")))
    if part not in config.model.parts:
        return [0] * len(config.model.layers)
    return [0 if spec is None else spec.head_dim for spec in read_config(config.data, part).layers]


def _beside(config: EngineConfig, engine: str, word: str, indexed: int, bits: float) -> tuple[Beside, ...]:
    """The indexer's keys, and DeepSeek-V4's compressed entries, which its indexer sees as well."""
    every, extra, in_8_bits = COMPRESSED.get(word, 1), [], engine_of(engine).serving.index_in_8_bits
    if word in COMPRESSED:
        extra.append(Beside("compressed entries", _plain_width(config), every))
    if indexed and bits == FP8 and in_8_bits:
        extra.append(Beside("scales, and rotated channels in 16 bits", SPARSE_FP8, 1, SPARSE_FP8))
    if indexed:
        packed = indexed + 4 * -(-indexed // 128) if in_8_bits and word == "indexed_attention" else 0
        extra.append(Beside("the indexer's keys", indexed, every, packed))
    return tuple(extra)


def _image(config: EngineConfig) -> int:
    """Values that an image of Llama 3.2 Vision leaves in all layers of cross-attention; 0 without such layers."""
    vision = config.data.get("vision_config")
    if "cross_attention" not in config.model.layer_types or not isinstance(vision, dict):
        return 0
    patches = (int(vision.get("image_size") or 448) // int(vision.get("patch_size") or 14)) ** 2 + 1
    heads, width = config.model.num_kv_heads, _plain_width(config)
    layers = config.model.layer_types.count("cross_attention")
    return layers * int(vision.get("max_num_tiles") or 4) * patches * 2 * heads * width


def unwindowed(config: EngineConfig, engine: str) -> bool:
    """Whether layers with a window keep every token; ExLlamaV3 has rings for some models, and pages for the others."""
    rings = config.name in MODELS and MODELS[config.name].rings
    return bool(engine_of(engine).serving.in_full) or (engine == "exllamav3" and not rings)


def _layer(config: EngineConfig, engine: str, index: int, tensor_parallel: int) -> tuple[int, int | None, int]:
    """Values per token, the window, and the values of a state that no length changes."""
    text, word = config.text, config.model.layer_types[index]
    if word in FIXED:
        return 0, None, _state(text, word) // tensor_parallel
    window = None if unwindowed(config, engine) else _window(text, word)
    if word == "attention" and not engine_of(engine).serving.window_kept:
        window = None
    window = window and _rows(window, engine)
    if COMPRESSED.keys() & set(config.model.layer_types):  # DeepSeek-V4: keys are values, and one head has them
        return _plain_width(config), _rows(int(text.get("sliding_window") or 128), engine), 0
    latent = text.get("kv_lora_rank")
    if latent:
        return int(latent) + int(text.get("qk_rope_head_dim") or 64), window, 0
    keys, values = _heads(config, index)
    if keys[0] % tensor_parallel and tensor_parallel % keys[0]:
        raise ValueError(
            f"tensor_parallel must divide the {keys[0]} heads of keys, or be a multiple of them, got {tensor_parallel}"
        )
    per_device = max(1, keys[0] // tensor_parallel)
    return per_device * (keys[1] + values), window, 0


def _rows(window: int, engine: str) -> int:
    """Tokens that are kept for a window: in llama.cpp with a batch beside it (src/llama-kv-cache-iswa.cpp)."""
    return -(-(window + UBATCH) // CELLS) * CELLS if engine == "llama.cpp" else window


def _window(text: dict[str, Any], word: str) -> int | None:
    """How many tokens a layer keeps; a plain ``sliding_window`` holds for all layers where none are told apart."""
    window = text.get(WINDOWS.get(word, ""))
    if word == "attention" and "max_window_layers" not in text and text.get("use_sliding_window", True):
        window = text.get("sliding_window")
    return window if isinstance(window, int) and window > 0 else None


def _heads(config: EngineConfig, index: int) -> tuple[tuple[int, int], int]:
    """Key heads and their width, and the width of a value head."""
    text, model = config.text, config.model
    word, spec = model.layer_types[index], model.layers[index]
    heads, width = model.num_kv_heads, spec.head_dim if spec is not None else _plain_width(config)
    if isinstance(blocks := text.get("block_configs"), list):
        heads = model.num_heads // int(blocks[index]["attention"].get("n_heads_in_group") or 1)
    if "sliding" in word:
        heads = int(text.get("swa_num_key_value_heads") or heads)
    if word == "full_attention" and text.get("attention_k_eq_v"):
        heads = int(text.get("num_global_key_value_heads") or heads)
    values = text.get("swa_v_head_dim") if "sliding" in word else text.get("v_head_dim")
    return (heads, width), int(values or width)


def _plain_width(config: EngineConfig) -> int:
    text = config.text
    others = [spec.head_dim for spec in config.model.distinct]
    return int(text.get("head_dim") or (others[0] if others else text["hidden_size"] // config.model.num_heads))


def _state(text: dict[str, Any], word: str) -> int:
    """The states of a layer without a growing cache: a convolution's inputs, and a matrix per head."""

    def number(name: str) -> int:
        return int(text.get(name) or 0)

    keys = number("linear_num_key_heads") * number("linear_key_head_dim")
    values = number("linear_num_value_heads") * number("linear_value_head_dim")
    if word == "linear_attention" and values:
        conv = (2 * keys + values) * number("linear_conv_kernel_dim")
        return conv + values * number("linear_key_head_dim")
    if word == "conv":
        return number("hidden_size") * number("conv_L_cache")
    return 0


def _draft(config: EngineConfig, engine: str, tensor_parallel: int) -> int:
    """Values per token of the layers that predict further tokens, which attend as the last full layer does."""
    text = config.text
    count = int(text.get("num_nextn_predict_layers") or text.get("mtp_num_hidden_layers") or 0)
    full = [i for i, word in enumerate(config.model.layer_types) if word not in FIXED and word not in WINDOWS]
    return count * _layer(config, engine, full[-1], tensor_parallel)[0] if full else 0
