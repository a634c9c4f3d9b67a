"""The file of llama2.c (``export.py``, version 0): seven integers, then float32, one kind of tensor after the other.

Source: github.com/karpathy/llama2.c, ``run.c`` (``memory_map_weights``) and ``export.py`` (``legacy_export``). Its base
is 10000 and its epsilon 1e-5, in the code; pairs are interleaved. Its tables of cos and sin are not read any more.
"""

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....models.rows import LLAMA
from ....support.regular_files import opened
from ..opening import read_at, size_of
from ..output import Output, merged, segment
from ..qk_tensors import Move
from ..source import Source
from ..stored import Stored, Tensor
from .plain import LENGTH, META, TIED, check_dtypes, check_plain, needed, of_layers, rope_of

HEADER = struct.Struct("<7i")
FILE = "model.bin"
KINDS = (
    "model.embed_tokens.weight", "model.layers.{}.input_layernorm.weight", "model.layers.{}.self_attn.q_proj.weight",
    "model.layers.{}.self_attn.k_proj.weight", "model.layers.{}.self_attn.v_proj.weight",
    "model.layers.{}.self_attn.o_proj.weight", "model.layers.{}.post_attention_layernorm.weight",
    "model.layers.{}.mlp.gate_proj.weight", "model.layers.{}.mlp.down_proj.weight",
    "model.layers.{}.mlp.up_proj.weight", "model.norm.weight",
)  # fmt: skip
BASE, EPSILON = 10_000.0, 1e-5


def recognised(path: Path) -> bool:
    file = path / FILE if path.is_dir() else path
    if file.suffix != ".bin" or not file.is_file() or (path.is_dir() and (path / "config.json").exists()):
        return False
    with opened(file) as fd:
        head = os.pread(fd, HEADER.size, 0)
    return len(head) == HEADER.size and all(0 < abs(n) < 2**24 for n in HEADER.unpack(head))


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` where the seven numbers do not describe the file."""
    file = path / FILE if path.is_dir() else path
    with opened(file) as fd:
        dim, hidden, layers, heads, kv_heads, vocab, length = HEADER.unpack(read_at(fd, 0, HEADER.size, file))
    shared, vocab = vocab > 0, abs(vocab)
    if min(dim, hidden, layers, heads, kv_heads, length) < 1 or dim % heads or heads % kv_heads:
        raise ValueError(f"{file}: sizes must be those of a model, got dim {dim}, heads {heads} and {kv_heads}")
    key = kv_heads * (dim // heads)
    shapes = dict(zip(KINDS, ((vocab, dim), (dim,), (dim, dim), (key, dim), (key, dim), (dim, dim), (dim,),
        (hidden, dim), (dim, hidden), (hidden, dim), (dim,)), strict=True))  # fmt: skip
    sizes = {kind: (layers if "{}" in kind else 1) * math.prod(shape) for kind, shape in shapes.items()}
    wanted = HEADER.size + 4 * (sum(sizes.values()) + length * (dim // heads) + (0 if shared else vocab * dim))
    if (size := size_of(file)) != wanted:
        raise ValueError(f"{file}: must have the {wanted} bytes that its sizes ask for, got {size}")
    tensors: dict[str, Tensor] = {}
    at = HEADER.size
    for kind, shape in shapes.items():
        for i in range(layers if "{}" in kind else 1):
            size = 4 * math.prod(shape)
            tensors[kind.format(i)] = Stored("F32", shape, file, at, size)
            at += size
    table = 4 * length * (dim // heads // 2)
    tables, at = at, at + 2 * table
    if not shared:
        tensors[TIED] = Stored("F32", (vocab, dim), file, at, 4 * vocab * dim)
    _check_tables(file, tables, length, dim // heads)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": LLAMA, "hidden_size": dim, "intermediate_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "hidden_act": "silu",
        "vocab_size": vocab, "max_position_embeddings": length, "rms_norm_eps": EPSILON, "rope_theta": BASE,
        "tie_word_embeddings": shared, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    tokenizers = tuple(sorted(p.name for p in file.parent.glob("tok*.bin") if p.is_file() and p != file))
    return Source(
        format="llama2c", path=path, tensors=tensors, config=config, layout="interleaved",
        why="llama2.c rotates pairs (2i, 2i + 1)", files=(file,), other_files=tokenizers, stated=file,
    )  # fmt: skip


def outputs(source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str) -> list[Output]:
    """One file. Raises ``ValueError`` for what llama2.c's code cannot run: other bases, scaling, biases, data types."""
    layers = config["num_hidden_layers"]
    check_plain(source, config, of_layers(META, layers), (LLAMA,))
    heads = config["num_attention_heads"]
    dim, hidden, epsilon = (
        needed(source.said(key), config.get(key)) for key in ("hidden_size", "intermediate_size", "rms_norm_eps")
    )
    rope = rope_of(source.said("rope_theta"), config)
    for name, value, wanted in (
        ("rope_theta", rope["rope_theta"], BASE), ("rope_type", rope["rope_type"], "default"),
        ("rms_norm_eps", epsilon, EPSILON),
        ("head_dim", config["head_dim"], dim // heads),
    ):  # fmt: skip
        if value != wanted:
            raise ValueError(f"{source.said(name)} must be {wanted!r}, which stands in llama2.c's code, got {value!r}")
    check_dtypes(source, ("F32",))
    order = [kind.format(i) for kind in KINDS for i in range(layers if "{}" in kind else 1)]
    shared = TIED not in source.tensors
    vocab, length = source.tensors[KINDS[0]].shape[0], config.get("max_position_embeddings") or LENGTH
    head = HEADER.pack(
        dim, hidden, layers, heads, config["num_key_value_heads"],
        vocab if shared else -vocab, length,
    )  # fmt: skip
    segments = [segment(source.tensors[name], moves.get(name)) for name in order]
    last = [] if shared else [segment(source.tensors[TIED], moves.get(TIED))]
    return [Output(FILE, (head, *merged(segments), tables_of(length, dim // heads), *last))]


def tables_of(length: int, head_dim: int) -> bytes:
    """Cos and sin as llama2.c's ``precompute_freqs_cis`` forms them, in float32."""
    import torch

    frequencies = 1.0 / (BASE ** (torch.arange(0, head_dim, 2)[: head_dim // 2].float() / head_dim))
    angles = torch.outer(torch.arange(length), frequencies).float()
    return bytes(angles.cos().numpy().tobytes() + angles.sin().numpy().tobytes())


def _check_tables(file: Path, at: int, length: int, head_dim: int) -> None:
    """Other tables are another base, which the file has no other place for."""
    import numpy as np

    wanted = np.frombuffer(tables_of(min(length, 64), head_dim), np.float32).reshape(2, -1)
    with opened(file) as fd:
        for i, table in enumerate(wanted):
            start = at + i * 4 * length * (head_dim // 2)
            stored = np.frombuffer(read_at(fd, start, table.nbytes, file), np.float32)
            if not np.allclose(stored, table, atol=1e-4):
                raise ValueError(f"{file}: its tables of cos and sin must be those of base {BASE:g}, and are not")
