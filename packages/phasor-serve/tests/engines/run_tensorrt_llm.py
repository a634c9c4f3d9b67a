"""Run TensorRT-LLM's own rope code, cut out of its files, on the CPU: config.json in, the row of position 1 out.

    in a clone of https://github.com/NVIDIA/TensorRT-LLM, for each of `PIECES`: git show COMMIT:PATH > FOLDER/PATH
    pip install --no-deps --target OLD transformers==4.56.0 huggingface_hub==0.34.4 tokenizers==0.22.0
    PYTHONPATH=OLD python -m tests.engines.run_tensorrt_llm FOLDER

What runs is TensorRT-LLM's: RopeParams.from_config and its tables, RopeEmbeddingUtils, and compute_yarn_parameters of
the attention with norms, on configs read by the transformers that it pins. What was only read: what a model's file
passes on (`KINDS`), the kernels that take a table of one width or of two, and the longest length.
"""

import ast
import json
import math
import sys
import tempfile
import types
import weakref
from collections import namedtuple
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
import transformers
from transformers import AutoConfig, PretrainedConfig

from .cases import YARN, changed, configs, layer, save

VERSION = "1.2.0rc2"
QWEN, LLAMA, OSS = "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-120b"
DEEP, KIMI, GEMMA = "deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2-Instruct", "google/gemma-3-27b-it"
PIECES = {  # file -> commit, and what is taken; the second is 1.2.0rc2, the others have the functions that it calls
    "tensorrt_llm/functional.py":
        ("0071496dc625910229bf433821453636ef3770eb", ("RotaryScalingType", "RopeEmbeddingUtils")),
    "tensorrt_llm/_torch/attention_backend/interface.py":
        ("b35ac1b64368513d215c57d2ed01d62d910df8da", ("RopeParams",)),
    "tensorrt_llm/_torch/modules/qk_norm_attention.py":
        ("034c3f0a0d1d5d90e5567c8d953019bdf5243b77", ("compute_yarn_parameters",)),
}  # fmt: skip
FUSED = ("qwen3", "qwen3_moe")  # whose kernel norms and turns by a base and YaRN's four numbers
KINDS = {"qwen2": ("yarn", "mrope"), "qwen3": ("yarn", "mrope"), "qwen3_moe": ("yarn", "mrope")}
LATENT = ("deepseek_v3", "kimi_k2")
CASES: list[tuple[str, dict[str, Any]]] = [
    (QWEN, {}), (QWEN, {"rope_scaling": YARN}), (QWEN, {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    ("Qwen/Qwen3-30B-A3B", {}), ("Qwen/Qwen3-30B-A3B", {"rope_scaling": YARN}), ("Qwen/Qwen2.5-7B-Instruct", {}),
    ("Qwen/Qwen2.5-7B-Instruct", {"rope_theta": 5e6}), (LLAMA, {}), (LLAMA, {"rope_scaling": YARN}),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 4.0}}), (OSS, {}),
    (OSS, {"rope_scaling": {**configs()[OSS]["rope_scaling"], "factor": 64.0}, "max_position_embeddings": 262144}),
    (DEEP, {}), (DEEP, {"rope_scaling": {**configs()[DEEP]["rope_scaling"], "factor": 80.0, "mscale": 0.7}}),
    (KIMI, {}), (GEMMA, {}), ("LGAI-EXAONE/EXAONE-4.0-32B", {}), ("mistralai/Mixtral-8x7B-v0.1", {}),
    ("microsoft/phi-4", {}), ("LongRoPE of Phi-3, shortened", {}),
    ("LongRoPE of Phi-3, shortened", {"max_position_embeddings": 4096}),
]  # fmt: skip


class Pieces:
    """The classes and functions of `PIECES`, cut out of their files."""

    def __init__(self, folder: Path) -> None:
        cpu = types.ModuleType("torch")
        cpu.__dict__.update(torch.__dict__)
        cpu.tensor = lambda values, dtype, device: torch.tensor(values, dtype=dtype)  # type: ignore[attr-defined]
        space: dict[str, Any] = {
            "math": math, "np": np, "torch": cpu, "IntEnum": IntEnum, "dataclass": dataclass, "weakref": weakref,
            "namedtuple": namedtuple, "Optional": Optional, "List": list, "Tuple": tuple, "Tensor": torch.Tensor,
            "PretrainedConfig": PretrainedConfig, "get_model_extra_attrs": lambda: None,
        }  # fmt: skip
        for file, (_, names) in PIECES.items():
            tree = ast.parse((folder / file).read_text())
            found = [node for node in tree.body if getattr(node, "name", "") in names]
            assert len(found) == len(names), f"{file} must hold {names}"
            for node in found:  # other methods make TensorRT networks
                if node.name == "RopeEmbeddingUtils":
                    node.body = [part for part in node.body if getattr(part, "name", "").startswith(("apply_llama3",
                                 "create_sin")) and "tensor: Tensor" not in ast.unparse(part)[:200]]  # fmt: skip
            exec(compile(ast.Module(found, []), file, "exec"), space)
        self.params, self.types = space["RopeParams"], space["RotaryScalingType"]
        self.yarn = space["compute_yarn_parameters"]


def config_of(data: dict[str, Any]) -> Any:
    """The text model's config, as transformers 4.56 makes it; kimi_k2 is DeepSeek V3's class there."""
    data = {**data, "model_type": "deepseek_v3"} if data["model_type"] == "kimi_k2" else data
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(data))
    return AutoConfig.from_pretrained(folder).get_text_config()


def row_of(params: Any) -> tuple[Any, int]:
    """Cos and sin of position 1, and how often the table holds each angle."""
    table = params.create_rope_const_params()[1].numpy()
    width = table.size // (max(params.max_positions, 1) * params.dim)
    return table.reshape(-1, 2)[params.dim // 2 * width :][: params.dim // 2].astype(np.float64), width


def params_of(pieces: Pieces, config: Any, kind: str) -> Any:
    """What the attention of each model makes of from_config."""
    if config.model_type == "gpt_oss":
        rope = config.rope_scaling
        return pieces.params(
            dim=config.head_dim, theta=config.rope_theta, scale_type=pieces.types.yarn, scale=rope["factor"],
            max_positions=config.max_position_embeddings, beta_fast=rope["beta_fast"], beta_slow=rope["beta_slow"],
            original_max_positions=rope["original_max_position_embeddings"], duplicate_data=False,
        )  # fmt: skip
    params = pieces.params.from_config(config)
    if config.model_type == "gemma3_text" and kind == "sliding_attention":
        params.theta, params.scale_type, params.scale = config.rope_local_base_freq, pieces.types.none, 1.0
    return params


def layer_of(pieces: Pieces, config: Any, kind: str) -> dict[str, Any]:
    rope = getattr(config, "rope_scaling", None) or {}
    scheme = rope.get("type") or rope.get("rope_type")
    if rope and scheme not in KINDS.get(config.model_type, (scheme,)):
        raise ValueError(f"Unsupported position embedding type: {scheme}")
    params = params_of(pieces, config, kind)
    if config.model_type in FUSED:
        factor, _, _, attention = pieces.yarn(config)
        assert factor == 1, "the ramp is the kernel's"
        return layer(params.theta ** (-np.arange(0, params.dim, 2) / params.dim), attention)
    row, width = row_of(params)
    if width > 1 and config.model_type not in LATENT:
        raise ValueError(f"the table holds every angle {width} times, and attention reads it at single width")
    found = layer(np.arctan2(row[:, 1], row[:, 0]), float(np.hypot(*row[0])))
    if config.model_type in LATENT:
        mscale = 0.1 * params.mscale_all_dim * math.log(params.scale) + 1 if params.scale > 1 else 1.0
        found["softmax"] = float(f"{mscale * mscale:.7g}")
    return found


def run(pieces: Pieces, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    data = changed(name, changes)
    found: dict[str, Any] = {"config": name, "changes": changes, "flags": {}}
    try:
        config = config_of(data)
        words = getattr(config, "layer_types", None) or ["attention"]
        chosen = {word: i for i, word in reversed(list(enumerate(words)))}
        rows = {str(i): layer_of(pieces, config, word) for word, i in chosen.items()}
    except ValueError as error:
        return {**found, "error": f"ValueError: {' '.join(str(error).split())[:200]}"}
    return {**found, "layers": rows}


def main(folder: Path) -> None:
    assert transformers.__version__ == "4.56.0", "TensorRT-LLM 1.2.0rc2 pins transformers 4.56.0"
    pieces = Pieces(folder)
    cases = [run(pieces, name, changes) for name, changes in CASES]
    about = {
        "engine": "tensorrt-llm", "version": VERSION,
        "source": [f"{', '.join(names)} of {file} at {commit[:8]}" for file, (commit, names) in PIECES.items()],
        "with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }  # fmt: skip
    save("tensorrt_llm", about, cases)
    for case in cases:
        print(case["config"], case["changes"], case.get("error") or {
            i: (row["inv_freq"][-1], row["factor"], row.get("softmax")) for i, row in case["layers"].items()
        })  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
