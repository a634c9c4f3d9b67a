"""A checkpoint of Llama's shape in sharded safetensors, made without a framework: for kills, full disks, timing."""

import json
import shutil
from pathlib import Path

import numpy as np


def write(folder: Path, *, layers: int, hidden: int, heads: int, kv_heads: int, wide: int, per_shard: int = 4) -> Path:
    """``layers`` layers of bfloat16 noise, ``per_shard`` in each file."""
    from phasor.tools.checkpoints.formats.safetensors_file import write_header

    head_dim = hidden // heads
    shapes = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden), "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide),
    }  # fmt: skip
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    count = -(-layers // per_shard)
    noise = (np.random.default_rng(0).standard_normal(2**19).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    for shard in range(count):
        name = f"model-{shard + 1:05d}-of-{count:05d}.safetensors"
        tensors = [
            (f"model.layers.{i}.{part}.weight", "BF16", shape, 2 * shape[0] * shape[1])
            for i in range(shard * per_shard, min(layers, (shard + 1) * per_shard))
            for part, shape in shapes.items()
        ]
        weight_map |= {tensor[0]: name for tensor in tensors}
        with open(folder / name, "wb") as file:
            file.write(write_header(tensors, {"format": "pt"}))
            left = sum(tensor[3] for tensor in tensors)
            while left:
                shift = left // 2 % 1001  # no two tensors alike
                left -= file.write(noise[shift : shift + left // 2].tobytes())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {
        "model_type": "llama", "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "num_hidden_layers": layers, "intermediate_size": wide, "max_position_embeddings": 4096, "vocab_size": 32000,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target
