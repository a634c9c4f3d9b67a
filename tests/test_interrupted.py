"""Ctrl-C while torch is still being imported: no traceback, and the exit code of an interrupt."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "src/phasor_command.py"


@pytest.mark.parametrize("after", [0.3, 1.0])
def test_an_interrupt_leaves_no_traceback(after, tmp_path):
    command = subprocess.Popen(
        [sys.executable, str(SCRIPT), "demo", "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(after)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert "Traceback" not in said and command.returncode in (130, -signal.SIGINT)
