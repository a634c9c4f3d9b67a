import json
import os
import sys
from pathlib import Path

import pytest

import limited
from house import PYTHONPATH

pytest.importorskip("typer")
from typer.testing import CliRunner

from phasor_lab.cli.lab import app
from phasor_lab.lab import SCHEMES

TINY = ["--tokens", "640", "--length", "16", "--batch", "8", "--dim", "16", "--heads", "2", "--threads", "1"]


def call(*words: object) -> str:
    """What the command prints; its error is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_text_to_report(text_file, tmp_path):
    pytest.importorskip("matplotlib")
    runs = tmp_path / "runs"
    both = ["--encoding", "rotary", "--encoding", "learned"]
    trained = json.loads(call("train", "--text", text_file, "--out", runs, *both, *TINY, "--json"))
    steps = [(Path(run["folder"]).name, run["steps"]) for run in trained]
    assert steps == [("rotary-seed0", 5), ("learned-seed0", 5)]
    out = ["--out", tmp_path / "report"]
    reported = json.loads(call("report", runs, *out, "--times", "1,2", "--tokens", "256", "--json"))
    curves = {name: section["curves"] for name, section in reported["sections"].items()}
    assert [length for length, _ in curves["loss_by_length"]["rotary"]] == [16, 32]
    assert [factor for factor, _ in curves["extension"]["yarn"]] == [2] and list(curves["extension"]) == list(SCHEMES)
    text = (tmp_path / "report" / "report.txt").read_text()
    assert "windows of the context length do not overlap" in text and "No fine-tuning" in text
    assert "Hardly trained: rotary-seed0" in text  # by five steps


def test_for_people_there_are_tables_and_the_protocol(text_file, tmp_path):
    runs = tmp_path / "runs"
    assert "5 steps, last loss" in call("train", "--text", text_file, "--out", runs, *TINY)
    assert "already finished" in call("train", "--text", text_file, "--out", runs, *TINY)
    shown = call("report", runs, "--out", tmp_path / "report", "--times", "1,2", "--tokens", "256")
    assert "rotary" in shown and "yarn" in shown and str(tmp_path / "report" / "report.txt") in shown
    pytest.importorskip("safetensors")
    call("export", runs / "rotary-seed0", tmp_path / "llama")
    assert (tmp_path / "llama" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "words, message",
    [
        (["train", "--text", "nowhere.txt"], "text path must exist, got 'nowhere.txt'"),
        (["train", "--encoding", "rope"], "encoding must be 'rotary', 'alibi'"),
        (["train", "--layers", "1000000000"], "layers must be at most 1,024, got 1,000,000,000; make it smaller"),
        (["train", "--dim", "16384", "--layers", "1000"], "the number of weights must be at most 2,147,483,648, got"),
        (
            ["train", "--batch", "1000000000"],
            r"batch \* length must be at most 4,194,304, got 64,000,000,000; make the b",
        ),
        (["train", "--threads", "1025"], "--threads must be at most 1024, got 1025"),
        (["train", "--fsdp"], "fsdp needs two processes or more, got 1; start them by: torchrun --nproc-per-node 2"),
        (["report", "nowhere"], "folder must hold runs as `phasor lab train` makes them, got 'nowhere'"),
        (["export", "nowhere", "x"], "run must be a folder with checkpoint.safetensors"),
    ],
)
def test_mistakes_are_value_errors(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call(*words)
    assert list(tmp_path.iterdir()) == []


def test_lists_of_numbers_are_checked(text_file, tmp_path):
    call("train", "--text", text_file, "--out", tmp_path, *TINY)
    for bad in ("1;2", "nan", "1,inf", ""):
        with pytest.raises(ValueError, match=f"--times must be numbers with commas, got '{bad}'"):
            call("report", tmp_path, "--times", bad)
    with pytest.raises(ValueError, match="times must give contexts of at most 1,048,576 bytes, got 1e"):
        call("report", tmp_path, "--times", "1e9")
    with pytest.raises(ValueError, match="times must be positive multiples of the training length, got"):
        call("report", tmp_path, "--times", "0")


@pytest.mark.slow
def test_torchrun_gives_the_losses_of_one_process(text_file, tmp_path):
    words = ["-m", "phasor", "lab", "train", "--text", str(text_file), *TINY]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, launcher in (("one", [sys.executable]), ("two", torchrun)):
        command = [*launcher, *words, "--out", str(tmp_path / name)]
        done = limited.run(command, env=env, check=True)
        assert done.stdout.count("last loss") == 1  # one process prints
    logs = [tmp_path / name / "rotary-seed0" / "metrics.jsonl" for name in ("one", "two")]
    one, two = ([json.loads(line)["loss"] for line in log.read_text().splitlines()] for log in logs)
    assert two == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_a_process_says_in_one_line_that_another_has_ended(text_file):
    """The first alone writes, and cannot."""
    words = ["-m", "phasor", "lab", "train", "--text", str(text_file), *TINY, "--out", "/proc/phasor"]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    said = limited.run([*torchrun, *words], env=env).stderr
    own = sorted(line for line in said.splitlines() if line.startswith("phasor:"))
    assert len(own) == 2 and "/proc/phasor" in own[0] and "another process of this run has ended" in own[1], said
