"""Llama as Meta's code runs it, written out: interleaved pairs as complex numbers, by its names; llama2.c's files."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def forward(weights: Mapping[str, Tensor], tokens: Tensor, *, heads: int, kv_heads: int, base: float = 1e4) -> Tensor:
    """Logits ``[S, vocab]`` of tokens ``[S]``."""
    embedding = weights["tok_embeddings.weight"]
    x, n = embedding[tokens], len(tokens)
    head_dim = weights["layers.0.attention.wq.weight"].shape[0] // heads
    angles = torch.outer(torch.arange(n).float(), base ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    wheel = torch.polar(torch.ones_like(angles), angles)[:, None]
    mask = torch.full((n, n), -torch.inf).triu(1)

    def norm(x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weights[name]

    def turn(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * wheel).flatten(-2)

    for i in range(sum(name.endswith(".attention.wq.weight") for name in weights)):
        at = f"layers.{i}"
        y = norm(x, f"{at}.attention_norm.weight")
        q, k, v = (
            (y @ weights[f"{at}.attention.{w}.weight"].T).unflatten(-1, (count, head_dim))
            for w, count in (("wq", heads), ("wk", kv_heads), ("wv", kv_heads))
        )
        q, k = turn(q), turn(k).repeat_interleave(heads // kv_heads, 1)
        v = v.repeat_interleave(heads // kv_heads, 1)
        scores = torch.einsum("mhd,nhd->hmn", q, k) / head_dim**0.5 + mask
        out = torch.einsum("hmn,nhd->mhd", scores.softmax(-1), v).flatten(-2)
        x = x + out @ weights[f"{at}.attention.wo.weight"].T
        y = norm(x, f"{at}.ffn_norm.weight")
        gate, up, down = (weights[f"{at}.feed_forward.w{j}.weight"] for j in (1, 3, 2))
        x = x + (torch.nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
    return norm(x, "norm.weight") @ weights.get("output.weight", embedding).T


def random_weights(*, layers: int, dim: int, heads: int, kv_heads: int, hidden: int, vocab: int) -> dict[str, Tensor]:
    """A model with wild weights, by Meta's names."""
    key = kv_heads * dim // heads
    shapes = {
        "attention.wq": (dim, dim), "attention.wk": (key, dim), "attention.wv": (key, dim), "attention.wo": (dim, dim),
        "feed_forward.w1": (hidden, dim), "feed_forward.w2": (dim, hidden), "feed_forward.w3": (hidden, dim),
        "attention_norm": (dim,), "ffn_norm": (dim,),
    }  # fmt: skip
    made = {f"layers.{i}.{n}.weight": 0.3 * torch.randn(s) for i in range(layers) for n, s in shapes.items()}
    tops = {"tok_embeddings": (vocab, dim), "norm": (dim,), "output": (vocab, dim)}
    return {**made, **{f"{n}.weight": 0.3 * torch.randn(s) for n, s in tops.items()}}


def llama2c_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of llama2.c's file, by Meta's names, in the order in which its ``run.c`` maps them."""
    data = path.read_bytes()
    dim, hidden, layers, heads, kv_heads, vocab, _ = struct.unpack_from("<7i", data)
    floats, at = torch.from_numpy(np.frombuffer(data, np.float32, offset=28).copy()), 0
    key = kv_heads * dim // heads

    def take(*shape: int) -> Tensor:
        nonlocal at
        at += int(np.prod(shape))
        return floats[at - int(np.prod(shape)) : at].view(shape)

    found = {"tok_embeddings.weight": take(vocab, dim)}
    for name, shape in (
        ("attention_norm", (dim,)), ("attention.wq", (dim, dim)), ("attention.wk", (key, dim)),
        ("attention.wv", (key, dim)), ("attention.wo", (dim, dim)), ("ffn_norm", (dim,)),
        ("feed_forward.w1", (hidden, dim)), ("feed_forward.w2", (dim, hidden)), ("feed_forward.w3", (hidden, dim)),
    ):  # fmt: skip
        stacked = take(layers, *shape)
        found |= {f"layers.{i}.{name}.weight": stacked[i] for i in range(layers)}
    return {**found, "norm.weight": take(dim)}


def as_meta(path: Path, folder: Path) -> Path:
    """A file of llama2.c, whose base and epsilon stand in its code, as a folder in Meta's format."""
    dim, _, layers, heads, kv_heads, _, length = struct.unpack_from("<7i", path.read_bytes())
    folder.mkdir(parents=True)
    torch.save(llama2c_weights(path), folder / "consolidated.00.pth")
    params = {"dim": dim, "n_layers": layers, "n_heads": heads, "n_kv_heads": kv_heads, "norm_eps": 1e-5,
        "rope_theta": 1e4, "vocab_size": 512, "max_seq_len": length}  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params))
    return folder
