"""Run llama.cpp itself on tiny GGUF files: keys and flags go in, the keys of attention in its cache come out.

    pip download --no-deps xllamacpp==2026.10.11549 && unzip xllamacpp-*.whl -d FOLDER    # llama.cpp b11549
    PYTHONPATH=src python -m tests.engines.run_llama_cpp FOLDER

Each file holds a model whose key projection gives 1 for the first member of every pair and 0 for the second, so the
cached key of a token at position 1 is the cosine and the sine of every frequency. The keys are those that phasor's
reader says the converter writes; the converter itself was only read. Flags are put where llama.cpp's argument parser
(only read) puts them.
"""

import ctypes
import struct
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phasor_serve.engines import load_config
from phasor_serve.engines.gguf import converted

from .cases import configs, layer, save
from .gguf_models import HALVES, LATENT, WIDTH, write

VERSION = "b11549"
YARN = {"--rope-scaling": "yarn", "--rope-scale": 4.0, "--yarn-orig-ctx": 32768}
FLAGS: dict[str, list[dict[str, Any]]] = {
    "Qwen/Qwen3-8B": [
        {}, YARN, {**YARN, "-c": 131072}, {**YARN, "--yarn-attn-factor": 40.0}, {"--rope-scale": 4.0},
        {"--rope-scaling": "linear", "--rope-scale": 4.0}, {"--rope-scaling": "none", "--rope-scale": 4.0},
        {"--rope-scaling": "yarn", "--yarn-orig-ctx": 32768}, {"--rope-freq-base": 5e6},
        {**YARN, "--yarn-beta-fast": 16.0},
        {**YARN, "--yarn-ext-factor": 0.0}, {**YARN, "--yarn-ext-factor": 0.5}, {"--rope-freq-scale": 0.25},
        {"--yarn-attn-factor": 1.5}, {"-c": 131072}, {"-c": 8192}, {"--rope-scaling": "yarn", "--rope-freq-scale": 2.0},
    ],
    "meta-llama/Llama-3.1-8B": [{}, {"--rope-freq-base": 5e6},
                                {"--rope-scaling": "yarn", "--rope-scale": 2.0, "--yarn-orig-ctx": 131072}],
    "openai/gpt-oss-120b": [{}, {"--rope-scale": 64.0}, {"--rope-scaling": "none"}],
    "google/gemma-3-27b-it": [{}, {"--rope-scale": 16.0}, {"--rope-scaling": "yarn", "--rope-scale": 16.0},
                              {"--rope-freq-base": 4e6}],
    "LongRoPE of Phi-3, shortened": [{"-c": 4096}, {"-c": 8192}, {}],
    "Qwen/Qwen2.5-7B-Instruct": [{}, YARN],
    "mistralai/Mixtral-8x7B-v0.1": [{}, YARN],
    "deepseek-ai/DeepSeek-V3": [{}, {**YARN, "--rope-scale": 80.0, "--yarn-orig-ctx": 4096}],
    "moonshotai/Kimi-K2-Instruct": [{}, {"--yarn-beta-fast": 1.0}, {
        "--rope-scaling": "yarn", "--rope-scale": 64.0, "--yarn-orig-ctx": 4096, "--yarn-beta-fast": 1.0}],
}  # fmt: skip
ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
CHANGED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [  # keys that the converter writes, and nothing reads
    ("Qwen/Qwen3-8B", {}, {"rope_scaling": {**ROPE, "attention_factor": 1.5, "beta_fast": 8.0, "beta_slow": 2.0}}),
    *(
        ("Qwen/Qwen3-8B", {"--rope-scale": scale}, {"rope_scaling": {**ROPE, "original_max_position_embeddings": 8192}})
        for scale in (1.0, 2.0, 4.0)
    ),
]
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


SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, data: None)


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
    context = model and lib.llama_init_from_model(model, params(lib, flags))
    if not context:
        raise RuntimeError("llama.cpp refuses the model or the flags")
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


def run(lib: Any, folder: Path, name: str, flags: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    seen = load_config({**configs()[name], **changes})
    meta = converted(seen)
    spec = next(iter(seen.model.distinct))
    words = seen.model.layer_types[:6]
    chosen = sorted({word: i for i, word in reversed(list(enumerate(words)))}.values())
    path = folder / "model.gguf"
    head = 2 * WIDTH if meta.arch.name == LATENT else spec.head_dim
    write(path, meta, head, spec.rotary_dim, chosen[-1] + 1)
    asked = {key: value for key, value in flags.items() if key != "-c"}
    if meta.long:  # whose choice follows the context; 0: that of the model
        asked["-c"] = flags.get("-c", 0)
    trained, rows = cached(lib, path, asked, head)
    layers, half = {}, spec.rotary_dim // 2
    # a cache of windows stands apart: full attention first, then sliding
    order = sorted(range(chosen[-1] + 1), key=lambda i: ("sliding" in words[i], i))
    for index in chosen:
        row = rows[order.index(index)][-spec.head_dim if meta.arch.name != LATENT else -WIDTH :]  # after the latent
        cos, sin = (
            (row[:half], row[half : 2 * half])
            if meta.arch.name in HALVES
            else (row[: 2 * half : 2], row[1 : 2 * half : 2])
        )
        layers[str(index)] = layer(np.arctan2(sin, cos), float(np.hypot(cos, sin)[half // 2]))
    return {
        "config": name,
        "changes": changes,
        "flags": flags,
        "length": min(flags.get("-c", trained), trained),
        "layers": layers,
    }


def quiet_library(folder: Path) -> Any:
    lib = library(folder)
    lib.llama_log_set(SILENT, None)
    return lib


def main(folder: Path) -> None:
    lib = quiet_library(folder)
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        asked = [(name, flags, {}) for name, several in FLAGS.items() for flags in several]
        for name, flags, changes in [*asked, *CHANGED]:
            cases.append(run(lib, Path(scratch), name, flags, changes))
            print(name, flags, changes, cases[-1]["length"])
    about = {
        "engine": "llama.cpp", "version": VERSION, "source": "the library inside xllamacpp 2026.10.11549, whole: from "
        "the keys of a GGUF file and context parameters to the cached keys",
        "with": {"gguf": version("gguf")},
    }  # fmt: skip
    save("llama_cpp", about, cases)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
