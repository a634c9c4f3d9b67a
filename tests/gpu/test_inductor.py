"""What torch.compile writes for a GPU: the launches of q and k, and what goes through memory in between."""

import re
import sys
from pathlib import Path

import pytest

import limited

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

BUFFER = re.compile(r"buf\d+ = empty_strided_cuda\(\(([\d, ]+)\), \([\d, ]*\), torch\.(\w+)\)")
CALL = re.compile(r"triton_\w+\.run\(([^)]*)\)")
NODE = re.compile(r"= torch\.ops\.phasor\.(\w+)\.default\(")


def written(*cases):
    """Nodes of phasor's own, launches and buffers in the code of each case."""
    run = limited.run([sys.executable, "-W", "ignore", Path(__file__).with_name("inductor.py"), *cases])
    assert run.returncode == 0, run.stderr[-3000:]
    _, *parts = re.split(r"^### (.*)$", run.stdout, flags=re.MULTILINE)
    found = (tuple(kind.findall(text) for kind in (NODE, CALL, BUFFER)) for text in parts[1::2])
    return dict(zip(parts[::2], found, strict=True))


@pytest.mark.slow
def test_many_tokens_are_one_launch_without_a_table():
    assert written("many", "many, back") == dict.fromkeys(("many", "many, back"), (["rotate_qk"], [], []))


@pytest.mark.slow
def test_few_tokens_are_one_launch_for_q_and_one_for_k_with_their_norms_and_without_a_table():
    """Only the results are written, and no other launch is there that could read or write a table."""
    nodes, calls, buffers = written("few")["few"]
    assert buffers == [("1, 32, 64, 128", "bfloat16"), ("1, 8, 64, 128", "bfloat16")]
    assert not nodes and len(calls) == 2
    assert all(len(re.findall(r"arg\d_1", arguments)) >= 2 for arguments in calls)  # positions and q or k
