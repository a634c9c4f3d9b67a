"""Where there is no GPU, Triton's interpreter runs the kernel: in a process of its own, where it is settled so."""

import os
import sys
from pathlib import Path

import pytest

import limited

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

ROOT = Path(__file__).resolve().parents[2]
MANY = 3000  # seconds: they take minutes
TESTS = [f"tests/gpu/test_{name}.py" for name in ("bits", "cache", "norm", "operator")]


def run(*arguments, limit=limited.LIMIT):
    env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = limited.run(command, cwd=ROOT, env=env, limit=limit)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_bits_of_the_reference():
    run(*TESTS)


@pytest.mark.slow
def test_the_bits_of_the_reference_many_times():
    run(*TESTS, "-m", "slow", limit=MANY)
