"""Run vLLM's own code, from its wheel, on the configs of `cases`: config, flags, length, rotation of the layers.

    pip download --no-deps vllm==0.33.0 && unzip vllm-*.whl 'vllm/*.py' -d FOLDER
    PYTHONPATH=tests python -m engines.run_vllm FOLDER

Needs torch and transformers; what else vLLM imports is replaced by empty modules (msgspec and openai must be there).
What runs is vLLM's: reading and overriding the config, the longest length, and the layers' constructors up to the call
of get_rope, whose tables are made and read. Linear layers and attention are left out.
"""

import copy
import importlib
import inspect
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import transformers
from torch import nn

from conformance.theirs import modules_for

from .absent import Absent
from .cases import YARN, configs, layer, save

VERSION = "0.33.0"
HARDWARE = (
    "tpu_inference", "libtpu", "amdsmi", "torch_xla", "pynvml", "habana_frameworks", "modelscope", "flashinfer",
    "runai_model_streamer",
)  # fmt: skip
UNWANTED = ("parser", "entrypoints", "reasoning", "tool_parsers", "distributed.kv_transfer", "third_party")
TEXT = {  # the text models inside composite ones
    "gemma3_text": "gemma3", "gemma4_text": "gemma4", "qwen3_vl_text": "qwen3_vl", "qwen2_vl_text": "qwen2",
    "qwen3_5_text": "qwen3_5", "llama4_text": "llama4", "phi3": "llama", "minicpm4": "minicpm",
}  # fmt: skip
THETA = {**YARN, "rope_theta": 1000000.0}
IN_TEXT = {"text_config": {"rope_parameters": YARN}}
OVERRIDES: dict[str, list[dict[str, Any]]] = {
    "Qwen/Qwen3-8B": [
        {"rope_parameters": YARN}, {"rope_parameters": THETA}, {"rope_theta": 5000000.0}, {"rope_scaling": THETA},
        {"rope_parameters": THETA, "max_position_embeddings": 131072},
        {"rope_parameters": {**THETA, "truncate": False, "attention_factor": 1.5, "beta_fast": 16}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 1e6}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e6}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e6, "max_trained_positions": 10240}},
        {"rope_parameters": {"type": "yarn", **{k: v for k, v in THETA.items() if k != "rope_type"}}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 8e6}, "max_position_embeddings": 163840},
        {"partial_rotary_factor": 0.5}, {"rope_parameters": {**THETA, "partial_rotary_factor": 0.25}},
        {"rope_theta": 7e5, "rope_scaling": YARN}, {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    ],
    "microsoft/phi-4": [{"partial_rotary_factor": 0.5}],
    "Qwen/Qwen3-30B-A3B": [{"rope_parameters": YARN}],
    "mistralai/Mixtral-8x7B-v0.1": [{"rope_parameters": YARN}],
    "openai/gpt-oss-120b": [
        {"partial_rotary_factor": 0.5}, {"rope_parameters": {**THETA, "factor": 64.0}},
        {"rope_parameters": {**THETA, "original_max_position_embeddings": 4096, "factor": 64.0, "rope_theta": 150000,
                             "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "attention_factor": 1.0}},
    ],
    "deepseek-ai/DeepSeek-V3": [
        {"rope_parameters": {**YARN, "rope_theta": 10000.0, "original_max_position_embeddings": 4096, "factor": 80.0,
                             "mscale": 1.0, "mscale_all_dim": 1.0}},
        {"rope_parameters": {**YARN, "rope_theta": 10000.0, "factor": 80.0, "mscale": 0.707, "truncate": False}},
    ],
    "Qwen/Qwen3-VL-32B-Instruct": [{"rope_parameters": THETA}, IN_TEXT, {"text_config": {"rope_theta": 5.0}}],
    "Qwen/Qwen2-VL-2B-Instruct": [IN_TEXT],
    "Qwen/Qwen3.5-27B": [IN_TEXT],
    "google/gemma-3-27b-it": [
        {"text_config": {"rope_parameters": {"full_attention": {"factor": 16.0}}, "max_position_embeddings": 262144}},
        {"text_config": {"rope_parameters": YARN}},
    ],
    "google/gemma-4-26B-A4B": [{"text_config": {"rope_parameters": {"full_attention": {"factor": 4.0}}}}],
    "microsoft/phi-2": [{"rope_parameters": {**YARN, "original_max_position_embeddings": 2048, "rope_theta": 1e4}}],
}  # fmt: skip
LENGTHS = {"LongRoPE of Phi-3, shortened": (4096, 131072)}


class Anything(nn.Module):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return MagicMock()


class Vllm:
    """vLLM's modules, imported from a folder, without a machine to run on."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        Absent("vllm", HARDWARE, tuple(f"vllm.{part}" for part in UNWANTED))
        self.rope = importlib.import_module("vllm.model_executor.layers.rotary_embedding")
        self.configs = importlib.import_module("vllm.transformers_utils.config")
        self.model = importlib.import_module("vllm.config.model")
        self.lengths = importlib.import_module("vllm.transformers_utils.model_arch_config_convertor")
        self.registry = importlib.import_module("vllm.model_executor.models.registry")
        self.current = importlib.import_module("vllm.config.vllm")
        one = MagicMock(world_size=1, rank_in_group=0)
        importlib.import_module("vllm.distributed.parallel_state")._TP = one
        self.get_rope, self.made = self.rope.get_rope, []
        einsum = torch.einsum  # tables of two positions are enough
        torch.einsum = lambda how, *on: einsum(how, *((on[0][:2], on[1]) if how == "i,j -> ij" else on))

    def config(self, data: dict[str, Any], overrides: dict[str, Any]) -> Any:
        overrides, folder = copy.deepcopy(overrides), tempfile.mkdtemp()  # both are kept and changed
        (Path(folder) / "config.json").write_text(json.dumps(data))
        flat = {key: value for key, value in overrides.items() if not isinstance(value, dict)}
        config = self.configs.get_config(folder, False, config_format="hf", hf_overrides_kw=flat)
        nested = {key: value for key, value in overrides.items() if isinstance(value, dict)}
        made = self.model.ModelConfig.__new__(self.model.ModelConfig)
        if nested:
            made._apply_dict_overrides(config, nested)
        return config

    def length(self, config: Any, asked: int | None) -> int:
        text = self.configs.get_hf_text_config(config)
        known = self.lengths.MODEL_ARCH_CONFIG_CONVERTORS
        made = known.get(config.model_type, self.lengths.ModelArchConfigConvertorBase)(config, text)
        arch = MagicMock(derived_max_model_len_and_key=made.derive_max_model_len_and_key())
        return int(self.model._get_and_verify_max_len(text, arch, None, asked, False, None))

    def layer(self, config: Any, length: int, index: int) -> Any:
        """What get_rope gave when the layer with this number was built; None where it was not called (NoPE)."""
        text = self.configs.get_hf_text_config(config)
        name = TEXT.get(text.model_type) or self.registry._VLLM_MODELS[config.architectures[0]][0]
        module = importlib.import_module(f"vllm.model_executor.models.{name}")
        around = MagicMock()
        model = around.model_config
        model.hf_config, model.hf_text_config, model.max_model_len = config, text, length
        around.speculative_config = None
        model.multimodal_config, around.quant_config, around.compilation_config.custom_ops = None, None, ["none"]
        around.parallel_config.decode_context_parallel_size = 1
        self.current._current_vllm_config = around
        types = getattr(text, "layer_types", None)
        given = {
            "config": text, "cache_config": MagicMock(sliding_window=None), "quant_config": None, "index": index,
            "vllm_config": around, "prefix": f"model.layers.{index}", "layer_idx": index, "model_config": model,
            "layer_type": types[index] if types else "full_attention", "topk_indices_buffer": None, "layer_id": index,
        }  # fmt: skip
        why = "it was built"
        self.made.clear()
        self.rope._ROPE_DICT.clear()
        for kind in self.layers(module):
            self.leave_out(module, *(sys.modules[base.__module__] for base in kind.__mro__[:-2]))
            wanted = set().union(*(inspect.signature(base.__init__).parameters for base in kind.__mro__[:2]))
            try:
                kind(**{key: value for key, value in given.items() if key in wanted})
            except Exception as error:  # of what comes after the rotation
                why = f"{type(error).__name__}: {error}"
            if self.made:
                return self.made[0]
        if "no_rope_layers" in text.to_dict() and not text.no_rope_layers[index]:
            return None
        raise LookupError(f"no layer of {name} called get_rope: {why}")

    def layers(self, module: Any) -> list[type]:
        named = [o for n, o in vars(module).items() if inspect.isclass(o) and n.endswith(("Layer", "TransformerBlock"))]
        return [o for o in named if o.__module__ == module.__name__ and issubclass(o, nn.Module)] or named

    def leave_out(self, *modules: Any) -> None:
        for module in modules:
            for name, found in list(vars(module).items()):
                if found is self.get_rope:
                    setattr(module, name, self.record)
                elif inspect.isclass(found) and issubclass(found, nn.Module) and _is_layer(found.__module__):
                    setattr(module, name, Anything)

    def record(self, *args: Any, **named: Any) -> Any:
        made = self.get_rope(*args, **named)
        self.made.append(made)
        return made


def _is_layer(module: str) -> bool:
    return module.startswith(("vllm.model_executor.layers", "vllm.attention")) and "rotary" not in module


def table(made: Any) -> dict[str, Any] | None:
    """Frequencies and factor out of the table's second row, that of position 1."""
    if made is None:
        return None
    if hasattr(made, "long_short_cos_sin_cache"):
        row = made.long_short_cos_sin_cache[3 if made.use_long_rope else 1]
    else:
        row = made.cos_sin_cache[1]
    cos, sin = row.double().chunk(2)
    return layer(torch.atan2(sin, cos).tolist(), float(torch.hypot(cos, sin)[0]))


def transformers_table(module: nn.Module, kind: str) -> dict[str, Any]:
    """Frequencies and factor of a module of transformers, which may hold them for each kind of layer (Olmo 3)."""
    own = f"{kind}_" if hasattr(module, f"{kind}_inv_freq") else ""
    frequencies = getattr(module, f"{own}inv_freq")
    return layer(frequencies.tolist(), float(getattr(module, f"{own}attention_scaling")))


def run(vllm: Vllm, name: str, overrides: dict[str, Any], asked: int | None = None) -> dict[str, Any]:
    flags = {**({"--hf-overrides": overrides} if overrides else {}), **({"--max-model-len": asked} if asked else {})}
    found: dict[str, Any] = {"config": name, "flags": flags}
    try:
        config = vllm.config(configs()[name], overrides)
        found["length"] = vllm.length(config, asked)
        text = vllm.configs.get_hf_text_config(config)
        types = getattr(text, "layer_types", None) or ["attention"]
        rotating = {kind: types.index(kind) for kind in types if kind not in ("linear_attention",)}
        if vllm.registry._VLLM_MODELS[configs()[name]["architectures"][0]][0] == "transformers":
            (module,) = modules_for(config)  # vLLM runs transformers' code, from the config that it made
            found["layers"] = {str(i): transformers_table(module, kind) for kind, i in rotating.items()}
        else:
            found["layers"] = {str(i): table(vllm.layer(config, found["length"], i)) for i in rotating.values()}
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


def main(folder: Path) -> None:
    vllm = Vllm(folder)
    cases = [run(vllm, name, {}) for name, config in configs().items() if "model_type" in config]
    cases += [run(vllm, name, override) for name, several in OVERRIDES.items() for override in several]
    cases += [run(vllm, name, {}, length) for name, lengths in LENGTHS.items() for length in lengths]
    about = {
        "engine": "vllm", "version": VERSION, "source": "vllm/config/model.py, vllm/transformers_utils/config.py, "
        "vllm/model_executor/models/*.py, vllm/model_executor/layers/rotary_embedding/*.py of the wheel",
        "with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }  # fmt: skip
    save("vllm", about, cases)
    for case in cases:
        print(case["config"], case["flags"], case.get("length"), case.get("error", "ok"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
