"""Processes of tests: one that hangs is ended with its children, and the test says where it stood."""

import sys
import time
from pathlib import Path

import pytest

import limited

HANGING = """
import os, signal, sys
def waits_for_ever():
    os.write(1, b"%d\\n" % os.getpid())  # whole: the two share a pipe
    signal.pause()
os.fork()
waits_for_ever()
"""


def assert_ended(pid: int) -> None:
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.01)


def test_what_hangs_is_ended_with_its_children_and_says_where():
    with pytest.raises(AssertionError, match=r"(?s)had not ended after 1 s\n\d+\n\d+\n.*in waits_for_ever") as told:
        limited.run([sys.executable, "-c", HANGING], limit=1)
    for pid in str(told.value).split("after 1 s\n")[1].split()[:2]:
        assert_ended(int(pid))


def test_the_end_of_the_block_is_its_end():
    with limited.started([sys.executable, "-c", HANGING], stdout=limited.PIPE, text=True) as process:
        pids = [int(process.stdout.readline()) for _ in range(2)]
    assert process.returncode < 0
    assert_ended(*{*pids} - {process.pid})


def test_outputs_and_the_exit_code():
    words = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = limited.run([sys.executable, "-c", words])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(AssertionError, match=r"ended with 3\nout\n\nerr"):
        limited.run([sys.executable, "-c", words], check=True)


def fails() -> None:
    raise ZeroDivisionError("the last words")


def test_a_function_in_a_process(capsys):
    with limited.children() as start:
        bad, left = start(fails), start(time.sleep, 1000)
        bad.join()
        assert bad.exitcode == 1 and "ZeroDivisionError: the last words" in capsys.readouterr().err
    assert left.exitcode == -9
