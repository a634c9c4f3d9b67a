"""Make `phasor_serve/engines/has.json` again: which model types the wheels of engines list.

pip download --no-deps vllm==0.33.0 sglang==0.5.23 mlx-lm==0.32.2 exllamav3==1.6.5; unzip all into FOLDER
python -m tests.engines.list_models FOLDER
"""

import ast
import json
import re
import sys
import textwrap
from pathlib import Path

from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from phasor.models.rows import ROWS

OWN_CODE = {  # of types that transformers does not know: what "architectures" says in published configs
    "baichuan": "BaichuanForCausalLM", "bailing_moe": "BailingMoeForCausalLM", "chatglm": "ChatGLMModel",
    "exaone": "ExaoneForCausalLM", "internlm": "InternLMForCausalLM", "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM", "kimi_k2": "DeepseekV3ForCausalLM", "kimi_linear": "KimiLinearForCausalLM",
    "mimo": "MiMoForCausalLM", "mimo_v2_flash": "MiMoV2FlashForCausalLM", "minicpm": "MiniCPMForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM", "minicpmv": "MiniCPMV", "molmo": "MolmoForCausalLM",
    "nemotron-nas": "DeciLMForCausalLM", "orion": "OrionForCausalLM", "phi3small": "Phi3SmallForCausalLM",
    "qwen": "QWenLMHeadModel", "telechat2": "TeleChat2ForCausalLM", "xverse": "XverseForCausalLM",
}  # fmt: skip
# No wheel of TensorRT-LLM holds its list, and llama.cpp has one of its own names: what was looked up of each.
BY_HAND = {
    "llama.cpp": {"source": "llama.cpp b11549: the names of architectures in its library", "lacks": ["mllama"]},
    "tensorrt-llm": {"source": "TensorRT-LLM docs/source/models/supported-models.md, 1.0 to 1.2",
                     "lacks": ["gemma2", "gemma4", "gemma4_text", "olmo3"]},
}  # fmt: skip


def architectures() -> dict[str, set[str]]:
    """Model type -> the names under "architectures" of its configs."""
    found = {name: {own} for name, own in OWN_CODE.items()}
    for name in {*ROWS, *CONFIG_MAPPING_NAMES}:
        for mapping in (getattr(modeling_auto, m) for m in dir(modeling_auto) if m.endswith("_MAPPING_NAMES")):
            classes = dict(mapping).get(name) or ()
            found.setdefault(name, set()).update([classes] if isinstance(classes, str) else classes)
    return found


def lacking_in_exllamav3(folder: Path, types: dict[str, set[str]]) -> list[str]:
    """Model types of `ROWS` none of whose classes the wheel names; parts of composites that it reads are left out."""
    from phasor_serve.engines.exllamav3 import MODELS

    def plain(name: str) -> str:  # Ernie4_5_ForCausalLM in some files, Ernie4_5ForCausalLM in others
        return name.replace("_", "").lower()

    files = (folder / "exllamav3/architecture").glob("*.py")
    known = {plain(m) for path in files for m in re.findall(r'^    arch_string = "(\w+)"', path.read_text(), re.M)}
    names = {*ROWS, *(name for name in types if f"{name}_text" in ROWS)} - set(MODELS)
    return sorted(name for name in names if types.get(name) and not {plain(c) for c in types[name]} & known)


def assigned(path: Path) -> dict[str, ast.expr]:
    """The values of the names that a file assigns at its top."""
    nodes = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value]
    pairs = [(n.target if isinstance(n, ast.AnnAssign) else n.targets[0], n.value) for n in nodes]
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name) and value is not None}


def main(folder: Path) -> None:
    lists = assigned(folder / "vllm/model_executor/models/registry.py")

    def listed(*kinds: str) -> set[str]:
        keys = [key for kind in kinds for key in lists[f"_{kind}_MODELS"].keys]  # type: ignore[attr-defined]
        return {key.value for key in keys if key is not None}

    own, backend = listed("TEXT_GENERATION", "MULTIMODAL", "EMBEDDING"), listed("TRANSFORMERS_SUPPORTED")
    vllm = own | backend
    gone = ast.literal_eval(lists["_PREVIOUSLY_SUPPORTED_MODELS"])
    files = (folder / "sglang/srt/models").rglob("*.py")
    entries = [found["EntryClass"] for path in files if "EntryClass" in (found := assigned(path))]
    sglang = {node.id for entry in entries for node in ast.walk(entry) if isinstance(node, ast.Name)}
    types = architectures()
    mlx = {path.stem for path in (folder / "mlx_lm/models").glob("*.py")}
    renamed = ast.literal_eval(assigned(folder / "mlx_lm/utils.py")["MODEL_REMAPPING"])

    def having(known: set[str]) -> list[str]:
        return sorted(name for name, classes in types.items() if classes & known)

    last = {name: [c, gone[c]] for name, classes in types.items() for c in sorted(classes & gone.keys())}
    made = {
        "vllm": {"source": "vllm 0.33.0: vllm/model_executor/models/registry.py", "has": having(vllm),
                 "backend": sorted({*having(backend)} - {*having(own)}),
                 "gone": {name: last[name] for name in sorted(last) if name not in having(vllm)}},
        "sglang": {"source": "sglang 0.5.23: EntryClass of sglang/srt/models/*.py",
                   "has": sorted({*having(sglang), "olmo3"})},  # its config class names Olmo2ForCausalLM instead
        "mlx-lm": {"source": "mlx-lm 0.32.2: mlx_lm/models/*.py and MODEL_REMAPPING",
                   "lacks": sorted(set(ROWS) - mlx - set(renamed))},
        "exllamav3": {"source": "exllamav3 1.6.5: arch_string in exllamav3/architecture/*.py",
                      "lacks": lacking_in_exllamav3(folder, types)},
        **BY_HAND,
    }  # fmt: skip
    (Path(__file__).parents[2] / "src/phasor_serve/engines/has.json").write_text(_wrapped(made), encoding="utf-8")
    print(f"{len(made['vllm']['has'])} types in vllm, {len(made['sglang']['has'])} in sglang")


def _wrapped(made: dict[str, dict[str, object]]) -> str:
    fields = []
    for engine, table in made.items():
        lines = [textwrap.fill(f"{json.dumps(key)}: {json.dumps(value)}", 118, break_on_hyphens=False)
                 for key, value in table.items()]  # fmt: skip
        fields.append(f'"{engine}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
