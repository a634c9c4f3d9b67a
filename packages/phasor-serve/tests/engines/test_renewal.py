"""An engine's evidence made again from its package: a small one, written here in the words of vLLM's and SGLang's."""

import json
from pathlib import Path

import pytest

from phasor_serve.engines import ENGINES, load_config, read_as, support
from phasor_serve.engines.renewal import renew

PASSED = "get_rope(head, rope_parameters=config.rope_parameters)\n"
VLLM = {
    "llama": f"class LlamaAttention:\n    def __init__(self, config):\n        {PASSED}",
    "granite": "get_rope(head, rope_parameters={**config.rope_parameters, 'rope_theta': base})\n",
    "glm4": f"config.rope_parameters['partial_rotary_factor'] = 0.5\n{PASSED}",
    "qwen2": "from .llama import LlamaAttention\n",
    "qwen3_vl": "from .qwen2 import Qwen2Model\nget_rope(head, rope_parameters={'partial_rotary_factor': 0.5})\n",
    "gpt2": "import torch\n",
}
REGISTRY = """
_TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "L"), "GraniteForCausalLM": ("granite", "G"),
    "Glm4ForCausalLM": ("glm4", "G"), "Qwen2ForCausalLM": ("qwen2", "Q"), "GPT2LMHeadModel": ("gpt2", "G"),
    "DeepseekV32ForCausalLM": ("vllm.models.deepseek_v32", "D")}
_MULTIMODAL_MODELS = {"Qwen3VLForConditionalGeneration": ("qwen3_vl", "Q")}
_EMBEDDING_MODELS = {**_MULTIMODAL_MODELS}
_TRANSFORMERS_SUPPORTED_MODELS = {"OlmoForCausalLM": ("transformers", "T")}
_PREVIOUSLY_SUPPORTED_MODELS = {"MptForCausalLM": "0.28.0"}
"""
SGLANG = {
    "mixtral": "get_rope(h, base=int(self.rope_theta))\nEntryClass = MixtralForCausalLM\n",
    "gemma2": "get_rope(h, base=self.rope_theta)\nEntryClass = [Gemma2ForCausalLM]\n",
    "llama": "get_rope(h, base=rope_theta, rope_scaling=rope_scaling)\nEntryClass = LlamaForCausalLM\n",
    "mistral": "from sglang.srt.models.llama import LlamaForCausalLM\nget_rope(h, base=1.0)\n"
    "class MistralForCausalLM(LlamaForCausalLM):\n    pass\nEntryClass = MistralForCausalLM\n",
}


def package(root: Path, engine: str, version: str, files: dict[str, str]) -> Path:
    """A folder as `unzip` of a wheel leaves it."""
    for name, text in {**files, f"{engine}-{version}.dist-info/METADATA": f"Version: {version}\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def vllm(root: Path, version: str = "0.33.0", rotary: str = "x = 1\n") -> Path:
    models = {f"vllm/model_executor/models/{name}.py": text for name, text in VLLM.items()}
    files = {**models, "vllm/model_executor/models/registry.py": REGISTRY,
             "vllm/model_executor/layers/rotary_embedding/base.py": rotary,
             "vllm/models/deepseek_v32/attention.py": PASSED}  # fmt: skip
    return package(root, "vllm", version, files)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "has.json"
    path.write_text(support.EVIDENCE.read_text())
    return path


def test_what_vllm_has_and_what_its_files_pass_on(tmp_path: Path, kept: Path) -> None:
    lines = renew(ENGINES["vllm"], vllm(tmp_path / "new"), kept)
    has = json.loads(kept.read_text())["vllm"]["has"]
    passes = {name: word for word, names in has.items() for name in names}
    assert {name: passes[name] for name in ("llama", "qwen2", "qwen3_vl", "deepseek_v32")} == dict.fromkeys(
        ("llama", "qwen2", "qwen3_vl", "deepseek_v32"), "rope"
    )
    assert (passes["granite"], passes["glm4"], passes["gpt2"], passes["olmo"]) == ("own", "own", "none", "backend")
    assert json.loads(kept.read_text())["vllm"]["gone"] == {"mpt": ["MptForCausalLM", "0.28.0"]}
    assert lines[0] == "vllm 0.33.0 -> 0.33.0" and "qwen3: passes rope -> not listed" in lines
    assert not any(line.startswith("llama:") for line in lines)
    assert renew(ENGINES["vllm"], tmp_path / "new" / "vllm", kept) == lines[:1]  # nothing changes twice


def test_code_that_nobody_read_is_not_shown(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotations of another version: the plans that follow the old ones say so, until the old ones are back."""
    monkeypatch.setattr(support, "EVIDENCE", kept)
    config = load_config({"model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 4096})
    for version, rotary, verdict in (
        ("0.33.0", "x = 1\n", "right"), ("0.34.0", "x = 1\n", "right"), ("0.35.0", "x = 2\n", "not shown"),
        ("0.35.1", "x = 1\n", "right"),
    ):  # fmt: skip
        lines = renew(ENGINES["vllm"], vllm(tmp_path / version, version, rotary), kept)
        support._evidence.cache_clear()
        found = support.support_of(ENGINES["vllm"], config)
        assert found.verdict == verdict and ("base.py is another than in 0.33.0" in lines[-1]) == (rotary == "x = 2\n")
    support._evidence.cache_clear()


def test_what_sglang_passes_on(tmp_path: Path, kept: Path) -> None:
    files = {f"sglang/srt/models/{name}.py": text for name, text in SGLANG.items()}
    renew(ENGINES["sglang"], package(tmp_path / "new", "sglang", "0.5.23", files), kept)
    has = json.loads(kept.read_text())["sglang"]["has"]
    passes = {name: word for word, names in has.items() for name in names}
    expected = {"mixtral": "whole base", "gemma2": "base", "llama": "rope", "mistral": "rope"}
    assert passes | expected == passes and "qwen2" not in passes


def test_a_scaling_that_sglang_does_not_pass_on_is_not_read() -> None:
    """sglang 0.5.23, gemma2.py, phi.py and starcoder2.py call get_rope without rope_scaling."""
    yarn = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}
    for model_type in ("gemma2", "phi", "starcoder2"):
        config = {"model_type": model_type, "num_hidden_layers": 1, "max_position_embeddings": 8192}
        reading = read_as(config, "sglang", {"--json-model-override-args": yarn})
        assert [spec.scaling for spec in reading.model.distinct] == [None]
        assert any("yarn is not read" in rule.text for rule in reading.rules)


@pytest.mark.parametrize(
    "engine, make, says",
    [
        ("llama.cpp", lambda root: root.mkdir(), "reads the packages of vllm, sglang, mlx-lm, exllamav3"),
        ("vllm", lambda root: root.mkdir(), "must hold vllm/model_executor/models/registry.py"),
        ("mlx-lm", lambda root: (root / "mlx_lm/models").mkdir(parents=True), "must say its version"),
    ],
)
def test_what_is_no_package_is_refused(engine: str, make, says: str, tmp_path: Path, phasor) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "new")
    before = support.EVIDENCE.read_bytes()
    code, _, err = phasor("engine", engine, "--renew", tmp_path / "new")
    assert code == 2 and says in err and support.EVIDENCE.read_bytes() == before
    assert phasor("engine", engine)[0] == 2  # neither a config nor a package
