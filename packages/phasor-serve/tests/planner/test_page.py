"""docs/planner.md: its commands run, and what they write is what the engine's reader takes for Qwen3's YaRN."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engines.cases import configs
from phasor import read_config
from phasor_serve import plan
from phasor_serve.engines import read_as

Run = Callable[[str], tuple[int, str]]
PAGE = Path(__file__).resolve().parents[4] / "docs" / "planner.md"
COMMANDS = re.findall(r"^\$ (phasor plan .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
TUTORIALS = [line for line in COMMANDS if "--write" in line and "--method" not in line]
RAISED = next(line for line in COMMANDS if "--method ntk" in line)


def expected() -> torch.Tensor:
    """Qwen3's card: YaRN by 4 over 32,768, base 1e6, 128 channels; the paper's ramp over pair indices, restated."""
    found = []
    low, high = (128 * math.log(32768 / (turns * 2 * math.pi)) / (2 * math.log(1e6)) for turns in (32, 1))
    start, end = math.floor(low), math.ceil(high)
    for pair in range(64):
        ramp = min(max((pair - start) / (end - start), 0.0), 1.0)
        plain = 1e6 ** (-2 * pair / 128)
        found.append(plain * (1 - ramp) + plain / 4 * ramp)
    return torch.tensor(found, dtype=torch.float64)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phasor: Callable[..., tuple[int, str, str]]) -> Run:
    """Run a command line in a folder: its exit code and what it wrote to stderr."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str]:
        code, _, err = phasor(*line.split()[1:])
        return code, err

    return call


@pytest.mark.parametrize("line", TUTORIALS)
def test_a_tutorial(line: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configs()["Qwen/Qwen3-8B"]))
    assert run(line) == (0, "")
    engine, folder = re.search(r"--engine (\S+) --write (\S+)", line).groups()  # type: ignore[union-attr]
    flags = (tmp_path / folder / "flags.txt").read_text()
    source = tmp_path / folder if (tmp_path / folder / "config.json").is_file() else tmp_path / "config.json"
    reading = read_as(source, engine, f"serve model --port 8000 {flags}")
    assert reading.length == 131072
    for spec in reading.model.distinct:
        torch.testing.assert_close(spec.inv_freq(131072), expected(), rtol=1e-9, atol=0.0)
        assert spec.attention_factor(131072) == pytest.approx(0.1 * math.log(4) + 1, rel=1e-9)
    code, error = run(line)
    assert code == 2
    assert "is there already" in error


ASKED = re.findall(r"^\| .*\? \| `(phasor plan .*)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
SAYS = ["tokens", "longest: ", "short prompts: 40 of 64 pairs", "PARAMETER num_ctx 131072", "not expressible: "]


@pytest.mark.parametrize("line, says", list(zip(ASKED, SAYS, strict=True)))
def test_a_question_is_answered_by_one_command(line: str, says: str, tmp_path: Path, phasor, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(
        json.dumps({**configs()["Qwen/Qwen3-8B"], "intermediate_size": 12288, "vocab_size": 151936})
    )
    code, out, _ = phasor(*line.split()[1:])
    assert code == ("tensorrt" in line) and says in out
    assert "--why" in line or len(out.splitlines()) <= 12


def test_four_engines_have_a_tutorial_with_yarn() -> None:
    found = [re.search(r"--engine (\S+)", line)[1] for line in TUTORIALS]  # type: ignore[index]
    assert found == ["vllm", "sglang", "llama.cpp", "exllamav3"]


def test_the_tutorial_with_a_raised_base(tmp_path: Path, run: Run) -> None:
    """NTK by 4 over 128 channels: base 1e6 * 4 ** (128 / 126); YaRN is refused."""
    (tmp_path / "config.json").write_text(json.dumps(configs()["Qwen/Qwen3-8B"]))
    assert run(RAISED) == (0, "")
    folder = tmp_path / RAISED.rpartition(" ")[2]
    reading = read_as(folder, "tensorrt-llm", (folder / "flags.txt").read_text())
    assert reading.length == 131072
    for spec in reading.model.distinct:
        assert spec.base == pytest.approx(1e6 * 4 ** (128 / 126), rel=1e-9)
        assert spec.scaling is None
    code, _ = run(re.sub(" --method ntk --write .*", "", RAISED))
    assert code == 1


@pytest.mark.parametrize(
    "words, message",
    [
        ("config.json --length 100kB", "--length must be a number of tokens from 1 to 2147483648, such as"),
        ("config.json --length 81920 --engine tgi", "engine must be one of"),
        ("none.json --length 81920", "there is no such file"),
        ("config.json --length 81920 --method foo", "method must be"),
        ("no_base.json --length 81920", "rope_parameters.rope_theta is missing"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, tmp_path: Path, run: Run) -> None:
    config = configs()["Qwen/Qwen3-8B"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    bare = {key: value for key, value in config.items() if key not in ("rope_theta", "rope_scaling")}
    bare["rope_parameters"] = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 20480}
    (tmp_path / "no_base.json").write_text(json.dumps(bare))
    code, error = run(f"phasor plan {words}")
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_contradicting_flags() -> None:
    config = configs()["Qwen/Qwen3-8B"]
    for engine, line in (
        ("llama.cpp", "--rope-scale 4 --rope-freq-scale 0.5"),
        ("llama.cpp", "-c 8192 -c 16384"),
        ("vllm", "--max-model-len 131072"),
        ("vllm", "--rope-scaling yarn"),
        ("vllm", "--hf-overrides '{'"),
    ):
        with pytest.raises(ValueError, match=r"keep one|override max_position|any more|JSON object"):
            read_as(config, engine, line)


def test_an_engine_that_would_not_start_is_refused() -> None:
    """ExLlamaV3 knows no dynamic NTK, and TensorRT-LLM no linear scaling of Qwen3."""
    config = {**configs()["Qwen/Qwen3-8B"], "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert "is none that ExLlamaV3" in plan(config, length=40960, engine="exllamav3").refused
    config["rope_scaling"] = {"type": "linear", "factor": 2.0}
    assert "none of its kinds of embedding" in plan(config, length=81920, engine="tensorrt-llm").refused


def test_nothing_is_half_written(tmp_path: Path) -> None:
    from phasor_serve.planner.result import write

    made = plan(configs()["openai/gpt-oss-120b"], length=262144, engine="llama.cpp")
    with pytest.raises(ValueError, match=r"nothing to write for llama\.cpp"):
        write([made], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["model", "spec"])
def test_a_model_that_was_read_already_is_named(part: str) -> None:
    model = read_config({"model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 4096})
    given = model if part == "model" else model.layers[0]
    for call in (lambda: plan(given, length=8192), lambda: read_as(given, "vllm")):
        with pytest.raises(ValueError, match=f"config must be .* got a {type(given).__name__}.*given to read_config"):
            call()
