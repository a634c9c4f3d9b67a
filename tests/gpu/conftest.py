"""The Triton kernel: on a GPU where there is one; else in Triton's interpreter, in a process of its own."""

import os
from importlib.util import find_spec

import pytest
import torch

from interpreted import FEW_PROGRAMS

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"

# Whether Triton compiles or interprets is settled when its source is imported: test_interpreted.py starts these.
NEED_IT = ["test_bits.py", "test_cache.py", "test_norm.py", "test_operator.py"]
collect_ignore = [] if INTERPRETED or DEVICE == "cuda" else NEED_IT
if find_spec("triton") is None:  # there is none for this system
    collect_ignore += ["assembly.py", "inductor.py", "test_compiled.py"]


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is interpreted."""
    if not INTERPRETED and DEVICE == "cpu":  # named on the command line, so not ignored
        pytest.fail("there is no GPU here: say TRITON_INTERPRET=1, or run tests/gpu/test_interpreted.py", pytrace=False)
    if INTERPRETED:
        for name, value in FEW_PROGRAMS.items():
            monkeypatch.setattr(f"phasor.rotary.kernels.triton.launch.{name}", value)
