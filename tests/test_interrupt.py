"""Ctrl-C at any moment: one line and exit code 130, no traceback, and nothing half-written."""

import os
import random
import signal
import sys
import time
import tomllib

import pytest

import limited

pytest.importorskip("typer")
pytest.importorskip("safetensors")
from house import PYTHONPATH, ROOT
from phasor import interrupt

MODULE, FUNCTION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["phasor"].split(":")
# The command as it is installed; it says when the first of the slow imports begins.
COMMAND = f"""
import sys
class Tell:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("importing", flush=True)
sys.meta_path.insert(0, Tell())
sys.argv[0] = "phasor"
from {MODULE} import {FUNCTION}
{FUNCTION}()
"""


@pytest.fixture
def training(tmp_path):
    """A training that takes hours, as far as its first import."""
    words = ["lab", "train", "--text", __file__, "--out", str(tmp_path), "--tokens", "1000000000"]
    words += ["--dim", "16", "--heads", "2", "--layers", "1", "--batch", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    with limited.started(
        [sys.executable, "-c", COMMAND, *words],
        env=environment, stdout=limited.PIPE, stderr=limited.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the tests may run behind a shell's &
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "importing\n"
        yield process


def assert_stopped(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=limited.LIMIT)
    assert (process.returncode, out, err) == (130, "", "phasor: stopped\n")


def test_while_torch_is_imported(training):
    assert_stopped(training)


@pytest.mark.slow
def test_while_a_model_is_trained(training, tmp_path):
    run = tmp_path / "rotary-seed0"
    while not (run / "checkpoint.safetensors").exists() and training.poll() is None:
        time.sleep(0.01)
    assert_stopped(training)
    assert sorted(path.name for path in run.iterdir()) == ["checkpoint.safetensors", "metrics.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_at_any_moment_of_the_first_seconds(training, seed):
    time.sleep(random.Random(seed).uniform(0, 5))
    assert_stopped(training)


def test_only_the_command_line_takes_ctrl_c_over_and_only_from_python(monkeypatch):
    taken = []
    monkeypatch.setattr(signal, "signal", lambda *what: taken.append(what))
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    interrupt.listen()  # in a run of tests
    assert taken == []
    monkeypatch.setattr(sys, "argv", ["/usr/bin/phasor", "lab"])
    interrupt.listen()
    assert taken == [(signal.SIGINT, interrupt.stop)]
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)  # as nohup has it
    interrupt.listen()
    assert len(taken) == 1
