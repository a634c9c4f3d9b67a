"""Run mlx-lm's own layers, from its wheel, on the CPU: config.json in, a turned unit vector out.

    pip download --no-deps mlx-lm==0.32.2 && unzip mlx_lm-*.whl -d FOLDER; pip install mlx-cpu mlx
    python -m tests.engines.run_mlx_lm FOLDER

What runs is mlx-lm's: the class of arguments of each model, its attention's constructor, and the rotation that it made.
"""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .cases import YARN, changed, layer, save

VERSION = "0.32.2"
THETA = {**YARN, "rope_theta": 1000000.0}
QWEN, LLAMA, OSS = "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-120b"
CASES: list[tuple[str, dict[str, Any]]] = [
    (QWEN, {}), (QWEN, {"rope_scaling": YARN}), (QWEN, {"rope_theta": None, "rope_parameters": THETA}),
    (QWEN, {"rope_scaling": {**YARN, "attention_factor": 1.5, "truncate": False}}),
    (QWEN, {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    (QWEN, {"rope_scaling": {"type": "linear", "factor": 4.0}}), (LLAMA, {}),
    (LLAMA, {"rope_scaling": None, "rope_theta": None, "rope_parameters": THETA}), (OSS, {}),
    ("google/gemma-3-27b-it", {}),
    ("Qwen/Qwen3-30B-A3B", {}), ("Qwen/Qwen3-30B-A3B", {"rope_scaling": YARN}), ("Qwen/Qwen2.5-7B-Instruct", {}),
    ("Qwen/Qwen2.5-7B-Instruct", {"rope_scaling": YARN}), ("mistralai/Mixtral-8x7B-v0.1", {}),
    ("mistralai/Mixtral-8x7B-v0.1", {"rope_scaling": YARN}), ("deepseek-ai/DeepSeek-V3", {}),
]  # fmt: skip
CLASSES = ("Attention", "AttentionBlock", "MixtralAttention", "DeepseekV3Attention")


def attention(text: dict[str, Any], index: int) -> Any:
    module = importlib.import_module(f"mlx_lm.models.{text['model_type']}")
    known = inspect.signature(module.ModelArgs).parameters
    filled = {name: 8 for name, p in known.items() if p.default is inspect.Parameter.empty and name not in text}
    args = module.ModelArgs.from_dict({**filled, **text})
    cls = next(getattr(module, name) for name in CLASSES if hasattr(module, name))
    return cls(args, index) if len(inspect.signature(cls.__init__).parameters) > 2 else cls(args)


def turned(made: Any, text: dict[str, Any]) -> dict[str, Any]:
    """The rotation of a vector with 1 as the first member of each pair, at position 1."""
    width = text.get("qk_rope_head_dim") or text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    paired = text["model_type"].startswith("deepseek")
    first = np.zeros(width, np.float32)
    first[np.arange(0, width, 2) if paired else np.arange(width // 2)] = 1
    mx = importlib.import_module("mlx.core")
    out = np.array(made.rope(mx.array(first)[None, None, None], offset=1))[0, 0, 0].astype(np.float64)
    cos, sin = (out[::2], out[1::2]) if paired else (out[: width // 2], out[width // 2 :])
    return layer(np.arctan2(sin, cos), float(np.hypot(cos, sin)[0]))


def find_package(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    sys.modules["mlx_lm"] = package = type(sys)("mlx_lm")  # its __init__ wants transformers' tokenizers
    package.__path__ = [str(folder / "mlx_lm")]


def run(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    config = changed(name, changes)
    text = config.get("text_config", config)
    words = text.get("layer_types") or ["attention"]
    chosen = sorted({word: i for i, word in reversed(list(enumerate(words)))}.values())
    rows = {str(i): turned(attention(text, i), text) for i in chosen}
    return {"config": name, "changes": changes, "flags": {}, "length": None, "layers": rows}


def main(folder: Path) -> None:
    find_package(folder)
    cases = []
    for name, changes in CASES:
        cases.append(run(name, changes))
        print(name, changes, {i: row["inv_freq"][-1] for i, row in cases[-1]["layers"].items()})
    about = {
        "engine": "mlx-lm", "version": VERSION, "source": "mlx_lm/models/*.py and rope_utils.py of the wheel",
        "with": {"mlx": importlib.import_module("mlx.core").__version__},
    }  # fmt: skip
    save("mlx_lm", about, cases)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
