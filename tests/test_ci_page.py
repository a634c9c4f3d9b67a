"""docs/ci.md: its file of tests passes under pytest, its hook is one of .pre-commit-hooks.yaml, and its steps run."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

import limited
from blocks import LLAMA, ROOT, blocks
from pytest_runs import run_tests

PAGE = list(blocks((ROOT / "docs/ci.md").read_text(encoding="utf-8")))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
PYTHON, HOOKS, CONSOLE, STEPS = (block.body for block in PAGE)
TINY = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}


def test_the_file_of_tests_passes(python, tmp_path):
    pytest.importorskip("transformers")
    assert run_tests(python, tmp_path, PYTHON)[0] == {"passed": 10}


def test_the_hook_of_the_page_is_ours():
    (repository,) = yaml.safe_load(HOOKS)["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == [HOOK["id"]]


@pytest.mark.parametrize("path", ["config.json", "models/a/config.json"])
def test_the_hook_is_for_configs_alone(path):
    """pre-commit searches the path, with `/` on every system."""
    assert re.search(HOOK["files"], path)
    assert not re.search(HOOK["files"], path.replace("config", "tokenizer_config"))
    assert not re.search(HOOK["files"], path + ".md")
    assert re.search(re.search(r"`files: (\S+)`", (ROOT / "docs/ci.md").read_text())[1], "models/a/b.json")


def test_the_hook_stops_a_commit_as_the_page_shows(tmp_path, monkeypatch, phasor):
    monkeypatch.chdir(tmp_path)
    Path("other").mkdir()
    Path("config.json").write_text(json.dumps(TINY))
    Path("other/config.json").write_text(json.dumps(LLAMA | {"rope_thetta": 500000.0}))
    (line,) = [line for line in CONSOLE.splitlines() if line.startswith("$ ")]
    assert line.startswith(f"$ {HOOK['entry']} ") and HOOK["language"] == "python"
    code, said, err = phasor(*line.split()[2:])
    assert code == 2 and not err
    for shown, written in zip(CONSOLE.splitlines()[1:], said.splitlines(), strict=True):
        assert written.startswith(shown.removesuffix("..."))
    assert phasor(*HOOK["entry"].split()[1:], "config.json")[0] == 0


@pytest.fixture
def steps(tmp_path, python):
    """Runs the steps of the page in a repository, all but the installation; the exit codes and outputs by step."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    shim = tmp_path / "bin/phasor"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {python} -m phasor "$@"\n')
    shim.chmod(0o755)
    there = tmp_path / "repository"
    there.mkdir()

    def run(config, rotation):
        (there / "config.json").write_text(json.dumps(config))
        function = re.search(r"^def my_rotation.*?\n\n", PYTHON, re.MULTILINE | re.DOTALL)[0]
        script = f"""import torch
from safetensors.torch import load_file, save_file
{function}
v = load_file("golden/vectors.safetensors")
x, positions, inv_freq = (v[f"attention.{{name}}"] for name in ("q_in", "positions", "exact.inv_freq"))
save_file({{"attention.exact.float32.q_out": {rotation}}}, "mine.safetensors")
"""
        (there / "my_vectors.py").write_text(script)
        limited.run(["git", "init", "--quiet"], cwd=there, check=True)
        limited.run(["git", "add", "config.json"], cwd=there, check=True)
        results = []
        for step in yaml.safe_load(STEPS)["steps"]:
            command = step["run"]
            if command.startswith("pip install 'phasor-rope["):
                continue
            if command == "python my_vectors.py":
                exec(script.replace('"golden/', f'"{there}/golden/').replace('"mine', f'"{there}/mine'), {})
                continue
            done = limited.run(["bash", "-c", f'PATH="{shim.parent}:$PATH"; {command}'], cwd=there)
            results.append((done.returncode, done.stdout + done.stderr))
            if done.returncode:
                break
        return results

    return run


def test_the_steps_pass_what_is_right(steps):
    pytest.importorskip("safetensors")
    assert [code for code, _ in steps(TINY, "my_rotation(x, positions, inv_freq)")] == [0, 0, 0]


def test_the_steps_stop_at_wrong_vectors(steps):
    pytest.importorskip("safetensors")
    *_, (code, said) = steps(TINY, "my_rotation(x, positions + 1, inv_freq)")
    assert code == 1 and "attention" in said


def test_the_steps_stop_at_a_config_that_is_not_understood(steps):
    ((code, said),) = steps(TINY | {"rope_thetta": 1e6}, "x")
    assert code != 0 and "rope_thetta" in said
