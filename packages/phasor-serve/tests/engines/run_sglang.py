"""Run SGLang's own rotations, override and length, from its wheel, on the configs of `cases`.

    pip download --no-deps sglang==0.5.23 && unzip sglang-*.whl '*.py' -d FOLDER
    python -m tests.engines.run_sglang FOLDER

What runs is SGLang's: the lines of get_config that apply an override, get_context_length, and get_rope with its tables.
What a model's file passes to get_rope was only read: base and dictionary out of rope_parameters.
"""

import ast
import copy
import importlib
import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PretrainedConfig

from .absent import Absent
from .cases import YARN, configs, layer, save

VERSION = "0.5.23"
LATENT = ("deepseek_v3",)
THETA = {**YARN, "rope_theta": 1000000.0}
OVERRIDES: dict[str, list[dict[str, Any]]] = {
    "Qwen/Qwen3-8B": [
        {"rope_parameters": YARN}, {"rope_scaling": YARN, "max_position_embeddings": 131072},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
        {"rope_parameters": {**YARN, "attention_factor": 1.5}}, {"rope_parameters": {**YARN, "attn_factor": 1.5}},
        {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 8e6}}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": YARN, "rope_scaling": {"factor": 2.0, "rope_theta": 5e5}},
        {"rope_scaling": YARN, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
    "Qwen/Qwen3-VL-32B-Instruct": [
        {"text_config": {"rope_parameters": {**THETA, "mrope_section": [24, 20, 20], "mrope_interleaved": True}}},
        {"rope_parameters": THETA},
    ],
    "openai/gpt-oss-120b": [{"rope_parameters": {"factor": 64.0}, "max_position_embeddings": 262144}],
    "deepseek-ai/DeepSeek-V3": [
        {"rope_parameters": {"factor": 80.0}}, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
    "allenai/Olmo-3.1-32B": [
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 16.0,
                             "original_max_position_embeddings": 8192}, "max_position_embeddings": 131072},
    ],
    "microsoft/phi-4": [
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192}},
    ],
    "meta-llama/Llama-4-Maverick": [{"text_config": {"rope_theta": 7e5, "rope_scaling": {"factor": 8.0}}}],
}  # fmt: skip
SKIPPED = (
    "google/gemma-4-26B-A4B",
    "openbmb/MiniCPM4-0.5B",
    "mistralai/Mixtral-8x7B-v0.1",
    "LongRoPE of Phi-3, shortened",
    "moonshotai/Kimi-K2-Instruct",  # a type that transformers does not know
)


class Sglang:
    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        Absent(
            "sglang",
            ("amdsmi", "torch_npu", "habana_frameworks", "torch_xla", "torch_musa", "intel_extension_for_pytorch"),
            ("sglang.kernels", "sglang.srt.distributed"),
        )
        importlib.import_module("sglang.kernels.fused_op").BaseFusedOp = torch.nn.Module  # type: ignore[attr-defined]
        self.factory = importlib.import_module("sglang.srt.layers.rotary_embedding.factory")
        variant = importlib.import_module("sglang.srt.layers.rotary_embedding.rope_variant")
        variant.get_device = lambda: "cpu"  # type: ignore[attr-defined]
        own = runpy.run_path(str(folder / "sglang/srt/configs/olmo3.py"))["Olmo3Config"]
        AutoConfig.register("olmo3", own, exist_ok=True)  # as get_config does, by _CONFIG_REGISTRY
        files = folder / "sglang" / "srt" / "utils" / "hf_transformers"
        self.length = self._function(files / "common.py", "get_context_length")
        tree = ast.parse((files / "config.py").read_text())
        (loop,) = (
            node for node in ast.walk(tree)
            if isinstance(node, ast.For) and "model_override_args" in ast.unparse(node.iter)
        )  # fmt: skip
        self.override = compile(ast.Module([loop], []), "config.py", "exec")
        einsum = torch.einsum
        torch.einsum = lambda how, *on: einsum(how, *((on[0][:2], on[1]) if "i,j" in how else on))

    def _function(self, path: Path, name: str) -> Any:
        tree = ast.parse(path.read_text())
        wanted = [
            n for n in tree.body if getattr(n, "name", "") == name or "CONTEXT_LENGTH_KEYS" in ast.unparse(n)[:20]
        ]
        space: dict[str, Any] = {}
        exec(compile(ast.Module(wanted, []), str(path), "exec"), space)
        return space[name]

    def config(self, data: dict[str, Any], overrides: dict[str, Any]) -> Any:
        folder = tempfile.mkdtemp()
        (Path(folder) / "config.json").write_text(json.dumps(data))
        config = AutoConfig.from_pretrained(folder)
        exec(
            self.override,
            {"config": config, "model_override_args": copy.deepcopy(overrides), "PretrainedConfig": PretrainedConfig},
        )
        return config

    def layer(self, text: Any, rope: dict[str, Any]) -> dict[str, Any]:
        rope = dict(rope)
        data = text.to_dict()
        head = data.get("head_dim") or text.hidden_size // text.num_attention_heads
        if text.model_type in LATENT:
            head = text.qk_rope_head_dim
            if rope["rope_type"] != "default":
                rope["rope_type"] = "deepseek_yarn"
        if rope["rope_type"] == "proportional":
            head = data["global_head_dim"]
        turned = int(head * rope.get("partial_rotary_factor", 1.0))
        self.factory._ROPE_DICT.clear()
        base = rope.get("rope_theta", 1000000 if text.model_type == "qwen3" else 10000)
        made = self.factory.get_rope(head, turned, text.max_position_embeddings, base, True, rope, torch.float32)
        cos, sin = made.cos_sin_cache[1].double().chunk(2)
        return layer(torch.atan2(sin, cos).tolist(), float(torch.hypot(cos, sin)[0]))


def run(sglang: Sglang, name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"config": name, "flags": {"--json-model-override-args": overrides} if overrides else {}}
    config = sglang.config(configs()[name], overrides)
    text = config.get_text_config()
    found["length"] = sglang.length(text)
    types = getattr(text, "layer_types", None) or ["attention"]
    rope = text.rope_parameters
    nested = set(rope) & set(types)
    chosen = {kind: types.index(kind) for kind in types if kind != "linear_attention"}
    if text.model_type == "olmo3":  # as models/olmo2.py passes it to get_rope
        rope = {kind: {**rope, **({"rope_type": "default"} if "sliding" in kind else {})} for kind in chosen}
        nested = set(rope)
    found["layers"] = {str(i): sglang.layer(text, rope[kind] if nested else rope) for kind, i in chosen.items()}
    return found


def main(folder: Path) -> None:
    sglang = Sglang(folder)
    cases = [run(sglang, name, {}) for name in configs() if name not in SKIPPED]
    cases += [run(sglang, name, override) for name, several in OVERRIDES.items() for override in several]
    about = {
        "engine": "sglang", "version": VERSION, "source": "sglang/srt/layers/rotary_embedding/*.py, get_config and "
        "get_context_length of sglang/srt/utils/hf_transformers, of the wheel",
        "with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }  # fmt: skip
    save("sglang", about, cases)
    for case in cases:
        print(case["config"], case["flags"], case["length"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
