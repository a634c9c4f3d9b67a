"""Every reader against what the engine's own code gave, and the engine's refusals against the reader's."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from phasor.serving.engines import ENGINES, read_as

from .cases import RESULTS, configs

ENGINE_OF = {"llama_cpp": "llama.cpp", "mlx_lm": "mlx-lm", "tensorrt_llm": "tensorrt-llm"}
RUNS = {ENGINE_OF.get(path.stem, path.stem): json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
CASES = [(engine, case) for engine, run in RUNS.items() for case in run["cases"]]


def called(engine: str, case: dict[str, Any]) -> str:
    return f"{engine} {case['config']} {json.dumps(case['flags'])} {json.dumps(case.get('changes', ''))}"[:150]


@pytest.mark.parametrize("engine, case", CASES, ids=[called(*case) for case in CASES])
def test_a_reader_agrees_with_the_engines_own_code(engine: str, case: dict[str, Any]) -> None:
    config = {**configs()[case["config"]], **case.get("changes", {})}
    config = {key: value for key, value in config.items() if value is not None}
    if "error" in case:
        refused = r"must be written as|is missing|no class for|is none that|does not load it|stops TensorRT|holds every"
        with pytest.raises(ValueError, match=refused):
            read_as(config, engine, case["flags"])
        return
    reading = read_as(config, engine, case["flags"])
    assert reading.version == RUNS[engine]["version"]
    assert "length" in case or engine == "tensorrt-llm"  # whose longest length was only read
    assert reading.length == case.get("length", reading.length)
    for index, theirs in case["layers"].items():
        spec = reading.model.layers[int(index)]
        if theirs is None or theirs["inv_freq"] is None:
            assert spec is None
        if spec is None:  # some engines make tables that such a layer never uses
            continue
        seq_len = reading.seq_len if reading.seq_len is not None else reading.length
        ours = spec.inv_freq(seq_len)
        torch.testing.assert_close(ours, torch.tensor(theirs["inv_freq"], dtype=torch.float64), rtol=3e-6, atol=1e-12)
        assert spec.attention_factor(seq_len) == pytest.approx(theirs["factor"], rel=1e-6)
        if "softmax" in theirs:
            assert reading.model.softmax_factor == pytest.approx(theirs["softmax"], rel=1e-6)


def test_every_engine_was_run() -> None:
    assert {*RUNS, "transformers"} == set(ENGINES)  # transformers is run live: tests/planner/test_table.py
    assert all((Path(__file__).parent / f"run_{re.sub('[.-]', '_', engine)}.py").is_file() for engine in RUNS)


def test_every_case_says_something() -> None:
    assert [case for _, case in CASES if not ("error" in case or any(case["layers"].values()))] == []


# Of the sources of rules: those whose code was only read. All others were run; docs/planner.md has the table.
ONLY_READ = {
    "exllamav3": {"exllamav3/cache/cache.py: Cache"},
    "llama.cpp": {"llama.cpp conversion/base.py: TextModel.set_gguf_parameters", "src/models/deepseek2.cpp",
                  "tools/server/server-context.cpp"},
    "mlx-lm": {"mlx_lm/generate.py", "mlx_lm/models/deepseek_v3.py"},
    "sglang": {"sglang/srt/models/deepseek_common/utils.py: compute_mla_mscale_scaling"},
    "tensorrt-llm": {"tensorrt_llm/_torch/models", "tensorrt_llm/_torch/modules/attention.py: MLA"},
    "vllm": {"vllm/model_executor/models/deepseek_v2.py", "vllm/model_executor/models/registry.py"},
}  # fmt: skip


@pytest.mark.parametrize("engine", list(RUNS))
def test_a_rule_says_whether_the_engines_code_was_run(engine: str) -> None:
    rules = set()
    for case in (case for name, case in CASES if name == engine and "error" not in case):
        config = {**configs()[case["config"]], **case.get("changes", {})}
        config = {key: value for key, value in config.items() if value is not None}
        rules |= set(read_as(config, engine, case["flags"]).rules)
    assert {rule.source for rule in rules if not rule.run} == ONLY_READ[engine]
    assert not {rule.source for rule in rules if rule.run} & ONLY_READ[engine]
    assert all(rule.describe().endswith("; read, not run]") != rule.run for rule in rules)
