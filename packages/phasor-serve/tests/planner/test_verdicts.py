"""Thirteen configs, three lengths, every engine: the verdict of each cell, and the reason where it is not "right"."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engines.cases import configs
from found_data import found_data
from phasor_serve.engines import ENGINES
from phasor_serve.planner import plan

from .test_table import check

RESULTS = Path(__file__).parent / "results/verdicts.json"
VERDICTS: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(RESULTS.read_text())
LENGTHS = (1, 2, 4)  # times the declared one
PUBLISHED: dict[str, dict[str, Any]] = {  # rope keys and sizes of published configs that the shared files lack
    "meta-llama/Llama-3.2-11B-Vision": {
        "architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama", "text_config": {
            "model_type": "mllama_text_model", "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 40, "max_position_embeddings": 131072,
            "rope_theta": 500000.0, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192}},
        "vision_config": {"model_type": "mllama_vision_model", "image_size": 560, "patch_size": 14},
    },
}  # fmt: skip
FILES = (
    "Qwen__Qwen3-8B", "Qwen__Qwen3-30B-A3B", "Qwen__Qwen2.5-7B-Instruct", "Qwen__Qwen3-VL-32B-Instruct",
    "meta-llama__Meta-Llama-3.1-8B", "google__gemma-2-9b-it", "google__gemma-3-27b-it", "google__gemma-4-26B-A4B",
    "openai__gpt-oss-120b", "deepseek-ai__DeepSeek-V3",
)  # fmt: skip
OTHERS = ("allenai/Olmo-3.1-32B", "meta-llama/Llama-3.2-11B-Vision", "zai-org/GLM-4.5")
CONFIGS = (*FILES, *OTHERS)


def cells(name: str) -> dict[str, dict[str, dict[str, str]]]:
    """Engine -> length in multiples of the declared one -> verdict and reason."""
    data = (
        PUBLISHED.get(name)
        or configs().get(name)
        or json.loads(((found_data() or Path()) / f"configs/full/{name}.json").read_text())
    )
    declared = data.get("text_config", data)["max_position_embeddings"]
    found: dict[str, dict[str, dict[str, str]]] = {}
    for engine in ENGINES:
        for times in LENGTHS:
            made = plan(data, length=times * declared, engine=engine)
            check(made)
            reason = {"reason": made.proof.reason} if made.proof.reason else {}
            found.setdefault(engine, {})[str(times)] = {"verdict": made.verdict, **reason}
    return found


SOON = ("Qwen__Qwen3-8B", "google__gemma-3-27b-it", "openai__gpt-oss-120b", "deepseek-ai__DeepSeek-V3", OTHERS[1])


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in SOON)) for n in CONFIGS])
def test_every_cell_has_the_committed_verdict(name: str, shared_data: Path) -> None:
    assert cells(name) == VERDICTS[name]


def test_every_verdict_but_right_has_a_reason() -> None:
    each = [cell for engines in VERDICTS.values() for row in engines.values() for cell in row.values()]
    assert len(each) == len(CONFIGS) * len(LENGTHS) * len(ENGINES) == 273
    assert all(cell["verdict"] == "right" or len(cell["reason"]) > 20 for cell in each)
    page = (Path(__file__).parents[4] / "docs/planner.md").read_text(encoding="utf-8")
    counted = re.search(r"273 cells: (\d+) right, (\d+) wrong, (\d+) not shown", page)
    assert counted is not None
    verdicts = [cell["verdict"] for cell in each]
    assert [int(n) for n in counted.groups()] == [verdicts.count(word) for word in ("right", "wrong", "not shown")]
