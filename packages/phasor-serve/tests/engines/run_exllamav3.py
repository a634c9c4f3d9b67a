"""Run ExLlamaV3's own classes, from its wheel, on the CPU: config.json in, the rotation of every attention layer out.

    pip download --no-deps exllamav3==1.6.5 && unzip exllamav3-*.whl -d FOLDER
    python -m tests.engines.run_exllamav3 FOLDER

What runs is ExLlamaV3's: the class of each architecture that reads config.json, the model with its attention modules
(their weights are never loaded), the softmax scale that it hands to them, RoPE, and the cache with the shapes of its
tensors. Its compiled extension, tokenizer and generator are left out. Sizes that the configs of `cases` do not state
are 8.
"""

import copy
import importlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

from .absent import Absent
from .cases import YARN, changed, configs, layer, save

VERSION = "1.6.5"
THETA = {**YARN, "rope_theta": 1000000.0}
QWEN, OSS = "Qwen/Qwen3-8B", "openai/gpt-oss-120b"
LONG, DEEP, KIMI = "LongRoPE of Phi-3, shortened", "deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2-Instruct"
GLM, OLMO = "zai-org/GLM-4.5", "allenai/Olmo-3.1-32B"
G3, G4 = (configs()[name]["text_config"] for name in ("google/gemma-3-27b-it", "google/gemma-4-26B-A4B"))
PROPORTIONAL = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25, "factor": 4.0}
CHANGES: list[tuple[str, dict[str, Any]]] = [
    (QWEN, {"rope_scaling": YARN}), (QWEN, {"rope_scaling": YARN, "max_position_embeddings": 131072}),
    (QWEN, {"rope_theta": None, "rope_parameters": THETA}),
    (QWEN, {"rope_scaling": {**YARN, "attention_factor": 1.5, "truncate": False, "beta_fast": 16}}),
    (QWEN, {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}}),
    (QWEN, {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    (QWEN, {"rope_scaling": {"type": "dynamic", "factor": 4.0}}),
    (OSS, {"max_position_embeddings": 262144}),
    (DEEP, {"n_group": 8, "topk_group": 4}), (KIMI, {"max_position_embeddings": 262144}),
    ("google/gemma-3-27b-it", {"text_config": {**G3, "rope_local_base_freq": 20000.0}}),
    ("google/gemma-3-27b-it", {"text_config": {key: value for key, value in G3.items() if key != "rope_theta"}}),
    (QWEN, {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}),
    (KIMI, {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "rope_interleave": True,
            "indexer_rope_interleave": True, "indexer_types": ["full"] * 61, "rope_scaling": None, "rope_theta": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}}),
    (LONG, {"max_position_embeddings": 4096}),
    ("google/gemma-4-26B-A4B", {"text_config": {**G4, "attention_k_eq_v": True, "rope_parameters": {
        **G4["rope_parameters"], "full_attention": PROPORTIONAL}}}),
    ("Qwen/Qwen3.5-27B", {"text_config": {**configs()["Qwen/Qwen3.5-27B"]["text_config"], "rope_parameters": {
        **THETA, "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25}}}),
    (GLM, {"rope_scaling": {**YARN, "original_max_position_embeddings": 131072}, "max_position_embeddings": 524288}),
    (GLM, {"partial_rotary_factor": None}),
    ("google/gemma-2-9b-it", {"rope_theta": None, "rope_scaling": {
        "type": "linear", "factor": 2.0, "rope_theta": 1e6}}),
    (OLMO, {"layer_types": [f"{'full' if i % 4 == 3 else 'sliding'}_attention" for i in range(64)]}),
]  # fmt: skip
IMAGES = {
    "image_processor_type": "Gemma3ImageProcessor", "image_mean": [0.5], "image_std": [0.5], "resample": 2,
    "rescale_factor": 1.0, "size": {}, "do_convert_rgb": True, "do_rescale": True, "do_normalize": True,
    "max_soft_tokens": 8, "patch_size": 8, "pooling_kernel_size": 2,
}  # fmt: skip


class ExLlama:
    """ExLlamaV3's modules, imported from a folder, without a GPU."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        sys.modules["exllamav3"] = package = type(sys)("exllamav3")  # its __init__ looks for a GPU
        package.__path__ = [str(folder / "exllamav3")]
        Absent("exllamav3", (), tuple(f"exllamav3.{part}" for part in ("ext", "tokenizer", "generator", "vendor")))
        self.config = importlib.import_module("exllamav3.model.config").Config
        self.models = importlib.import_module("exllamav3.architecture.architectures").get_architectures()
        self.rope = importlib.import_module("exllamav3.util.rope").RoPE
        self.cache = importlib.import_module("exllamav3.cache.cache").Cache
        for name in ("qwen3_vl", "qwen3_5"):
            module = importlib.import_module(f"exllamav3.architecture.{name}")
            module.read_qwen3_vl_vision_config = module.read_qwen3_vl_pp_config = MagicMock()  # type: ignore[attr-defined]

    def model(self, data: dict[str, Any]) -> Any:
        """The model of a config; what the config leaves out, and ExLlamaV3 asks for, is 8."""
        data, missing = copy.deepcopy(data), r"Missing any of the following keys: \['([^']*)'"
        while True:
            folder = Path(tempfile.mkdtemp())
            (folder / "config.json").write_text(json.dumps(data))
            (folder / "preprocessor_config.json").write_text(json.dumps(IMAGES))
            (folder / "processor_config.json").write_text(json.dumps({"image_processor": IMAGES}))
            try:
                config = self.config.from_directory(str(folder))
                return self.models[data["architectures"][0]]["model_class"](config)
            except ValueError as error:
                if not (found := re.match(missing, str(error))):
                    raise
            *path, last = found[1].split("->")
            inner = data
            for key in path:
                inner = inner.setdefault(key, {})
            assert last not in inner, f"{found[1]} is there and is not found"
            inner[last] = 8

    def layers(self, model: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number of the layer, its rotation, the softmax scale it was given, and what its cache keeps per token."""
        paged = {attention.layer_idx for attention in model.get_cache_layers()}
        for block in model.modules:
            attention = getattr(block, "attn", None)
            if attention is None or not hasattr(attention, "rope_settings"):  # not an attention layer
                continue
            row: dict[str, Any] = {"inv_freq": None}
            if attention.rope_settings is not None:
                made = self.rope("cpu", attention.rope_settings)
                row = layer(made.inv_freq.tolist(), float(made.attn_factor))
            if hasattr(attention, "qk_head_dim"):  # latent attention
                row["softmax"] = float(f"{attention.sm_scale * attention.qk_head_dim**0.5:.7g}")
            row["paged"] = attention.layer_idx in paged
            yield attention.layer_idx, row


def run(exllama: ExLlama, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    data = {"vocab_size": 8, **changed(name, changes)}
    found: dict[str, Any] = {"config": name, "changes": changes, "flags": {}}
    if data["architectures"][0] not in exllama.models:
        return {**found, "error": f"Unknown architecture {data['architectures'][0]}"}
    try:
        model = exllama.model(data)
        rows = dict(exllama.layers(model))
    except (AssertionError, ValueError) as error:
        return {**found, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    cache = exllama.cache(model, 256)
    for index, row in rows.items():
        if row.pop("paged"):
            made = cache.layers[index, 0] if (index, 0) in cache.layers else cache.layers[index]
            shapes = (made.shape, made.shape) if hasattr(made, "shape") else (made.shape_c, made.shape_r)
            row["cached"] = sum(torch.Size(shape).numel() for shape in shapes) // 256
    kinds: dict[str, int] = {}
    for index, row in rows.items():
        kinds.setdefault(json.dumps(row), index)
    return {**found, "length": None, "layers": {str(i): rows[i] for i in sorted(kinds.values())}}


def main(folder: Path) -> None:
    exllama = ExLlama(folder)
    cases = [run(exllama, name, {}) for name in configs()]
    cases += [run(exllama, name, changes) for name, changes in CHANGES]
    about = {
        "engine": "exllamav3", "version": VERSION, "source": "exllamav3/architecture/*.py, model/config.py, "
        "modules/attn.py, util/rope.py and cache/*.py of the wheel", "with": {"torch": torch.__version__},
    }  # fmt: skip
    save("exllamav3", about, cases)
    for case in cases:
        print(case["config"], case["changes"], case.get("error") or {
            i: (row["inv_freq"] and row["inv_freq"][-1], row.get("factor"), row.get("softmax"), row.get("cached"))
            for i, row in case["layers"].items()
        })  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
