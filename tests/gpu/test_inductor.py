"""torch.compile for a GPU keeps the plain expression and fuses it with its neighbours: read in the code it writes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

BUFFER = re.compile(r"(buf\d+) = empty_strided_cuda\(\(([\d, ]+)\), \([\d, ]*\), torch\.(\w+)\)")
CALL = re.compile(r"(triton_\w+)\.run\(([^)]*)\)")
Q, K = "1, 32, 512, 128", "1, 8, 512, 128"


@pytest.mark.slow
def test_one_kernel_for_q_and_one_for_k_with_their_norms():
    """They read q and k once and write the results, in bfloat16; the table of all heads is written once for both."""
    script = Path(__file__).with_name("inductor.py")
    run = subprocess.run([sys.executable, "-W", "ignore", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    buffers, calls = BUFFER.findall(run.stdout), CALL.findall(run.stdout)
    assert sorted((size, dtype) for _, size, dtype in buffers if size in (Q, K)) == [(Q, "bfloat16"), (K, "bfloat16")]
    assert all(size in (Q, K, "512, 64", "1024, 64") for _, size, _ in buffers), buffers
    on_heads = [name for name, arguments in calls if re.search(r"arg[0-3]_1", arguments)]
    assert len(on_heads) == 2 and all("cat_mean" in name for name in on_heads), on_heads
    assert len(calls) <= 4  # and two for cos and sin, of tokens and pairs only
