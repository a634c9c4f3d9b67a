"""What torch.compile writes for a GPU: the launches of q and k, and what goes through memory in between."""

import re
import sys
from pathlib import Path

import pytest

import limited

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

BUFFER = re.compile(r"(buf\d+) = empty_strided_cuda\(\(([\d, ]+)\), \([\d, ]*\), torch\.(\w+)\)")
CALL = re.compile(r"(triton_\w+)\.run\(([^)]*)\)")
NODE = re.compile(r"= torch\.ops\.phasor\.(\w+)\.default\(")
FAST = ["halves/turned/512", "halves/turned/512 back", "halves/own_norm/64"]
SLOW = [
    "halves/turned/64", "halves/norm/512", "halves/norm/64", "halves/own_norm/512", "halves/own_norm/1/64",
    "halves/turned/32/2", "halves/plain/512", "halves/plain_own_norm/512", "halves/tables/64", "interleaved/turned/64",
    "interleaved/own_norm/64", "halves/norm/512 back", "halves/tables/512 back", "halves/own_norm/512 back",
    "halves/turned/64 back", "halves/plain/512 back", "halves/norm/64 back",
]  # fmt: skip


class Code:
    """Buffers, launches and nodes of phasor's own in the code of one case."""

    def __init__(self, text):
        self.buffers = [(size, dtype) for _, size, dtype in BUFFER.findall(text)]
        self.calls, self.nodes = CALL.findall(text), NODE.findall(text)

    def results(self, tokens, batch=1):
        """The sizes of q and k, in bfloat16: the buffers that are results."""
        return [(f"{batch}, {heads}, {tokens}, 128", "bfloat16") for heads in (32, 8)]


def written(cases):
    script = Path(__file__).with_name("inductor.py")
    run = limited.run([sys.executable, "-W", "ignore", script, *cases])
    assert run.returncode == 0, run.stderr[-3000:]
    names, texts = re.findall(r"^### (.*)$", run.stdout, re.MULTILINE), re.split(r"^### .*$", run.stdout, flags=re.M)
    assert names == cases
    return dict(zip(names, map(Code, texts[1:]), strict=True))


@pytest.fixture(scope="module")
def fast():
    return written(FAST)


@pytest.fixture(scope="module")
def slow():
    return written(SLOW)


def test_many_tokens_are_one_launch_without_a_table(fast):
    code = fast["halves/turned/512"]
    assert (code.nodes, code.calls, code.buffers) == (["rotate_qk"], [], [])


def test_so_is_their_way_back(fast):
    code = fast["halves/turned/512 back"]
    assert (code.nodes, code.calls, code.buffers) == (["rotate_qk"], [], [])


@pytest.mark.slow
@pytest.mark.parametrize("name, node", [("tables", "rotate_qk"), ("norm", "norm_and_rotate_qk_back")])
def test_so_is_that_by_tables_and_of_a_norm_in_the_same_call(slow, name, node):
    code = slow[f"halves/{name}/512 back"]
    assert (code.nodes, code.calls, code.buffers) == ([node], [], [])


@pytest.mark.slow
def test_the_way_back_of_a_norm_of_its_own_is_three_launches_for_each_tensor_more(slow):
    code = slow["halves/own_norm/512 back"]
    assert (code.nodes, len(code.calls)) == (["rotate_qk"], 6)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["halves/turned/64 back", "halves/plain/512 back"])
def test_the_way_back_of_the_plain_expression_forms_tables_again(slow, case):
    """In a launch of their own; q and k, which are not kept, are turned back in one launch each."""
    code, tokens = slow[case], int(case.split("/")[2].split()[0])
    assert not code.nodes and len(code.calls) == 3
    assert sorted(code.buffers) == sorted([*code.results(tokens), *[(f"{tokens}, 64", "float32")] * 2])


@pytest.mark.slow
def test_the_way_back_of_few_tokens_and_a_norm_is_three_launches_for_each_tensor(slow):
    code = slow["halves/norm/64 back"]
    assert not code.nodes and len(code.calls) == 7


def test_few_tokens_are_one_launch_for_q_and_one_for_k_with_their_norms_and_without_a_table(fast):
    check_inlined(fast["halves/own_norm/64"], 64)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["halves/turned/64", "interleaved/turned/64", "interleaved/own_norm/64"])
def test_so_are_those_without_norms_and_of_interleaved_pairs(slow, case):
    check_inlined(slow[case], 64)


@pytest.mark.slow
def test_so_are_batches(slow):
    check_inlined(slow["halves/own_norm/1/64"], 1, 64)
    check_inlined(slow["halves/turned/32/2"], 32, 2)


def check_inlined(code, tokens, batch=1):
    """Only the results are written, and no other launch is there that could read or write a table."""
    assert code.buffers == code.results(tokens, batch)
    assert not code.nodes and len(code.calls) == 2
    assert all(len(re.findall(r"arg\d_1", arguments)) >= 2 for _, arguments in code.calls)  # positions and q or k


@pytest.mark.slow
def test_a_norm_in_the_same_call_is_in_the_same_launch(slow):
    """By tables of a rotation that layers share, which are written once: in three launches."""
    code = slow["halves/norm/512"]
    assert code.nodes == ["norm_and_rotate_qk"]
    assert len(code.calls) <= 3 and all(size in ("512, 64", "1024, 64") for size, _ in code.buffers)


@pytest.mark.slow
def test_a_norm_of_its_own_goes_through_memory_before_many_tokens(slow):
    code = slow["halves/own_norm/512"]
    assert (code.nodes, len(code.calls)) == (["rotate_qk"], 2)
    assert sorted(code.buffers) == sorted(code.results(512))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["halves/plain/512", "halves/plain_own_norm/512"])
def test_the_plain_expression_of_many_tokens_reads_q_and_k_once_and_a_table(slow, case):
    code = slow[case]
    on_heads = [name for name, arguments in code.calls if "mean" in name or "cat" in name]
    assert not code.nodes and len(code.calls) <= 4 and len(on_heads) == 2
    assert set(code.results(512)) <= set(code.buffers)
    assert all(b in code.results(512) or b[0] in ("512, 64", "1024, 64") for b in code.buffers), code.buffers


@pytest.mark.slow
@pytest.mark.parametrize("case", ["halves/tables/64", "halves/norm/64"])
def test_tables_are_written_once_for_q_and_k(slow, case):
    """Where a rotation is formed before: two launches more."""
    code = slow[case]
    assert not code.nodes and len(code.calls) <= 4
    tables = [b for b in code.buffers if b not in code.results(64)]
    assert set(code.results(64)) <= set(code.buffers) and all(size.count(",") == 1 for size, _ in tables), tables
