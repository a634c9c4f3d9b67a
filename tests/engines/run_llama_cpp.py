"""Run llama.cpp itself on tiny GGUF files: keys and flags go in, the keys of attention in its cache come out.

    pip download --no-deps xllamacpp==2026.10.11549 && unzip xllamacpp-*.whl -d FOLDER    # llama.cpp b11549
    PYTHONPATH=src python -m tests.engines.run_llama_cpp FOLDER

Each file holds a model whose key projection gives 1 for the first member of every pair and 0 for the second, so the
cached key of a token at position 1 is the cosine and the sine of every frequency. The keys are those that phasor's
reader says the converter writes; the converter itself was only read. Flags are put where llama.cpp's argument parser
(only read) puts them.
"""

import ctypes
import importlib
import struct
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phasor.engines import look
from phasor.engines.gguf import Metadata, converted

from .cases import configs, layer, save

VERSION = "b11549"
HALVES = ("qwen3", "gemma3", "phi3", "gpt-oss", "qwen2", "qwen3moe")
YARN = {"--rope-scaling": "yarn", "--rope-scale": 4.0, "--yarn-orig-ctx": 32768}
FLAGS: dict[str, list[dict[str, Any]]] = {
    "Qwen/Qwen3-8B": [
        {}, YARN, {**YARN, "-c": 131072}, {**YARN, "--yarn-attn-factor": 40.0}, {"--rope-scale": 4.0},
        {"--rope-scaling": "linear", "--rope-scale": 4.0}, {"--rope-scaling": "none", "--rope-scale": 4.0},
        {"--rope-scaling": "yarn", "--yarn-orig-ctx": 32768}, {"--rope-freq-base": 5e6},
        {**YARN, "--yarn-beta-fast": 16.0},
        {**YARN, "--yarn-ext-factor": 0.0}, {**YARN, "--yarn-ext-factor": 0.5}, {"--rope-freq-scale": 0.25},
        {"--yarn-attn-factor": 1.5}, {"-c": 131072}, {"-c": 8192},
    ],
    "meta-llama/Llama-3.1-8B": [{}, {"--rope-scaling": "yarn", "--rope-scale": 2.0, "--yarn-orig-ctx": 131072}],
    "openai/gpt-oss-120b": [{}, {"--rope-scale": 64.0}, {"--rope-scaling": "none"}],
    "google/gemma-3-27b-it": [{}, {"--rope-scale": 16.0}, {"--rope-scaling": "yarn", "--rope-scale": 16.0},
                              {"--rope-freq-base": 4e6}],
    "LongRoPE of Phi-3, shortened": [{"-c": 4096}, {"-c": 8192}, {}],
    "Qwen/Qwen2.5-7B-Instruct": [{}, YARN],
    "mistralai/Mixtral-8x7B-v0.1": [{}, YARN],
}  # fmt: skip
TYPES = {"none": 0, "linear": 1, "yarn": 2, "longrope": 3}
# Where llama_context_params of this build keeps what is set here: found from its defaults, which are all different.
PLACES = {
    "--rope-scaling": (40, "i"), "--rope-freq-base": (56, "f"), "--rope-freq-scale": (60, "f"),
    "--yarn-ext-factor": (64, "f"), "--yarn-attn-factor": (68, "f"), "--yarn-beta-fast": (72, "f"),
    "--yarn-beta-slow": (76, "f"), "--yarn-orig-ctx": (80, "I"), "-c": (0, "I"), "type_k": (104, "i"),
    "type_v": (108, "i"),
}  # fmt: skip


class Params(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * 512),)


class Batch(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int32), *((name, ctypes.c_void_p) for name in
                ("token", "embd", "pos", "n_seq", "seq", "logits")))  # fmt: skip


def library(folder: Path) -> Any:
    lib = ctypes.CDLL(str(folder / "xllamacpp" / "xllamacpp.abi3.so"))
    for name in ("llama_context_default_params", "llama_model_default_params"):
        getattr(lib, name).restype = Params
    for name, arguments in (
        ("llama_model_load_from_file", ctypes.c_char_p),
        ("llama_init_from_model", ctypes.c_void_p),
    ):
        getattr(lib, name).restype = ctypes.c_void_p
        getattr(lib, name).argtypes = [arguments, Params]
    lib.llama_model_n_ctx_train.argtypes = lib.llama_free.argtypes = lib.llama_model_free.argtypes = [ctypes.c_void_p]
    lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    lib.llama_state_seq_get_size.restype = lib.llama_state_seq_get_data.restype = ctypes.c_size_t
    lib.llama_state_seq_get_size.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.llama_state_seq_get_data.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    lib.llama_backend_init()
    return lib


def write(path: Path, meta: Metadata, head: int, turning: int, blocks: int) -> None:
    """A model of this architecture with two query heads and one key head, whose keys before rotation are known."""
    gguf = importlib.import_module("gguf")
    arch, width = meta.arch.name, 2 * head
    writer = gguf.GGUFWriter(str(path), arch)
    keys: dict[str, Any] = {
        "block_count": blocks, "embedding_length": width, "feed_forward_length": 32, "attention.head_count": 2,
        "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-12, "vocab_size": 8,
        "attention.key_length": head, "attention.value_length": head, "attention.sliding_window": 16,
        "expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 32, **meta.keys,
    }  # fmt: skip
    if arch not in ("gpt-oss", "qwen3moe"):
        keys = {key: value for key, value in keys.items() if "expert" not in key}
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    for key, value in keys.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        (writer.add_uint32 if isinstance(value, int) else add)(f"{arch}.{key}", value)
    for name, values in tensors(meta, head, turning, blocks).items():
        writer.add_tensor(f"{name}", np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(meta: Metadata, head: int, turning: int, blocks: int) -> dict[str, Any]:
    arch, width, q = meta.arch.name, 2 * head, 2 * head
    first = np.zeros(head)
    first[np.arange(turning // 2) if arch in HALVES else np.arange(0, turning, 2)] = 1
    keys = np.zeros((head, width))
    keys[:, 0] = first
    none, ones = np.zeros((q, width)), np.ones(width)
    found: dict[str, Any] = {"token_embd.weight": np.ones((8, width)), "output_norm.weight": ones,
                             "output.weight": np.ones((8, width))}  # fmt: skip
    for name, values in (
        ("rope_freqs", meta.freqs),
        ("rope_factors_long", meta.long),
        ("rope_factors_short", meta.short),
    ):
        if values:
            found[f"{name}.weight"] = np.array(values)
    for block in range(blocks):
        own = {"attn_norm": ones, "attn_q": none, "attn_k": keys, "attn_v": np.zeros((head, width)),
               "attn_output": np.zeros((width, q)), "ffn_norm": ones, "ffn_gate": np.zeros((32, width)),
               "ffn_up": np.zeros((32, width)), "ffn_down": np.zeros((width, 32))}  # fmt: skip
        if arch in ("qwen3", "gemma3"):
            own |= {"attn_q_norm": np.ones(head), "attn_k_norm": np.full(head, (turning / 2 / head) ** 0.5)}
        if arch == "gemma3":
            own |= {"post_attention_norm": ones, "post_ffw_norm": ones}
        if arch == "phi3":
            own["attn_qkv"] = np.concatenate((own.pop("attn_q"), own.pop("attn_k"), own.pop("attn_v")))
            own |= {"ffn_up": np.zeros((64, width))}
            del own["ffn_gate"]
        biases = {"attn_q.bias": np.zeros(q), "attn_k.bias": np.zeros(head), "attn_v.bias": np.zeros(head)}
        if arch == "qwen2":
            found |= {f"blk.{block}.{name}": values for name, values in biases.items()}
        if arch == "gpt-oss":
            own["post_attention_norm"] = own.pop("ffn_norm")
            own |= {"ffn_gate_exps": np.zeros((2, 32, width)), "ffn_up_exps": np.zeros((2, 32, width)),
                    "ffn_down_exps": np.zeros((2, width, 32)), "ffn_gate_inp": np.zeros((2, width)),
                    "attn_sinks": np.zeros(2)}  # fmt: skip
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                del own[name]
            biases |= {"attn_output.bias": np.zeros(width), "ffn_gate_inp.bias": np.zeros(2),
                       "ffn_gate_exps.bias": np.zeros((2, 32)), "ffn_up_exps.bias": np.zeros((2, 32)),
                       "ffn_down_exps.bias": np.zeros((2, width))}  # fmt: skip
            found |= {f"blk.{block}.{name}": values for name, values in biases.items()}
        found |= {f"blk.{block}.{name}.weight": values for name, values in own.items()}
    return found


def params(lib: Any, flags: dict[str, Any]) -> Params:
    raw = bytearray(bytes(lib.llama_context_default_params().bytes))
    given = {"-c": 64, "type_k": 0, "type_v": 0, **flags}
    if "--rope-scale" in given:
        given["--rope-freq-scale"] = 1 / given.pop("--rope-scale")
    if "--rope-scaling" in given:
        given["--rope-scaling"] = TYPES[given["--rope-scaling"]]
    for name, value in given.items():
        offset, form = PLACES[name]
        struct.pack_into(f"<{form}", raw, offset, value)
    return Params((ctypes.c_ubyte * 512)(*raw))


def cached(lib: Any, path: Path, flags: dict[str, Any], head: int) -> tuple[int, list[Any]]:
    """The training length that the library tells, and the cached key of each layer for one token at position 1."""
    model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
    context = lib.llama_init_from_model(model, params(lib, flags))
    one = (ctypes.c_int32 * 1)(1)
    zero, none = (ctypes.c_int32 * 1)(0), (ctypes.c_int8 * 1)(0)
    several = (ctypes.c_void_p * 1)(ctypes.addressof(zero))
    at = ctypes.addressof
    if lib.llama_decode(context, Batch(1, at(one), None, at(one), at(one), at(several), at(none))):
        raise RuntimeError("llama_decode failed")
    size = lib.llama_state_seq_get_size(context, 0)
    state = ctypes.create_string_buffer(size)
    size = lib.llama_state_seq_get_data(context, state, size, 0)
    data = state.raw[:size]
    trained = lib.llama_model_n_ctx_train(model)
    lib.llama_free(context)
    lib.llama_model_free(model)
    mark, found, start = struct.pack("<iQ", 0, 4 * head), [], 0  # float32, bytes of a row
    while (start := data.find(mark, start)) >= 0:
        if start % 4 == 0:
            found.append(np.frombuffer(data, np.float32, head, start + 12).astype(np.float64))
        start += 1
    return trained, [row for row in found if row.any()]


def run(lib: Any, folder: Path, name: str, flags: dict[str, Any]) -> dict[str, Any]:
    seen = look(configs()[name])
    meta = converted(seen)
    spec = next(iter(seen.model.distinct))
    words = seen.model.layer_types[:6]
    chosen = sorted({word: i for i, word in reversed(list(enumerate(words)))}.values())
    path = folder / "model.gguf"
    write(path, meta, spec.head_dim, spec.rotary_dim, chosen[-1] + 1)
    asked = {key: value for key, value in flags.items() if key != "-c"}
    if meta.long:  # whose choice follows the context; 0: that of the model
        asked["-c"] = flags.get("-c", 0)
    trained, rows = cached(lib, path, asked, spec.head_dim)
    layers, half = {}, spec.rotary_dim // 2
    # a cache of windows stands apart: full attention first, then sliding
    order = sorted(range(chosen[-1] + 1), key=lambda i: ("sliding" in words[i], i))
    for index in chosen:
        row = rows[order.index(index)]
        cos, sin = (
            (row[:half], row[half : 2 * half])
            if meta.arch.name in HALVES
            else (row[: 2 * half : 2], row[1 : 2 * half : 2])
        )
        layers[str(index)] = layer(np.arctan2(sin, cos), float(np.hypot(cos, sin)[half // 2]))
    return {"config": name, "flags": flags, "length": min(flags.get("-c", trained), trained), "layers": layers}


def main(folder: Path) -> None:
    lib = library(folder)
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)
    lib.llama_log_set(quiet, None)
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, several in FLAGS.items():
            for flags in several:
                cases.append(run(lib, Path(scratch), name, flags))
                print(name, flags, cases[-1]["length"])
    about = {
        "engine": "llama.cpp", "version": VERSION, "source": "the library inside xllamacpp 2026.10.11549, whole: from "
        "the keys of a GGUF file and context parameters to the cached keys",
        "with": {"gguf": version("gguf")},
    }  # fmt: skip
    save("llama_cpp", about, cases)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
