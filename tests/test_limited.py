"""What hangs is ended with all that it started, and says where it stood; every process of the tests has a limit."""

import ast
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

import limited

TESTS = Path(__file__).parent

# A process with a child in a session of its own, as torchrun starts them. Both wait for ever, and say who they are.
HANGING = """
import os, signal, sys

def waits_for_ever():
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()

print("the last words", file=sys.stderr, flush=True)
if not os.fork():
    os.setsid()
waits_for_ever()
"""


def other(process: limited.Process) -> int:
    """The child of a process that hangs, when both do."""
    with limited.watched(process):
        (child,) = {int(process.stdout.readline()) for _ in range(2)} - {process.pid}
    return child


def assert_ended(pid: int) -> None:
    end = time.monotonic() + limited.LIMIT
    while limited._runs(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not limited._runs(pid)


def test_what_hangs_is_ended_with_its_children_and_says_where():
    with limited.started([sys.executable, "-c", HANGING], stdout=limited.PIPE, text=True) as process:
        child = other(process)
        assert limited._runs(child)
        with pytest.raises(limited.TooLong) as told, limited.watched(process, limit=0):
            process.wait()
        assert process.poll() == -signal.SIGABRT
    assert str(told.value).count("in waits_for_ever") == 2  # both of them
    assert "the last words" in str(told.value)
    assert_ended(child)


def test_what_does_not_react_is_killed(monkeypatch):
    monkeypatch.setattr(limited, "GRACE", 0.0)
    program = "import signal; signal.signal(signal.SIGABRT, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    with limited.started([sys.executable, "-c", program], stdout=limited.PIPE, text=True) as process:
        with limited.watched(process):
            assert process.stdout.readline() == "deaf\n"
        with pytest.raises(limited.TooLong), limited.watched(process, limit=0):
            process.wait()
        assert process.returncode == -signal.SIGKILL


def test_the_end_of_the_block_is_its_end():
    with limited.started([sys.executable, "-c", HANGING], stdout=limited.PIPE, text=True) as process:
        child = other(process)
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    assert_ended(child)


def test_run():
    words = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = limited.run([sys.executable, "-c", words])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(AssertionError, match=r"ended with 3\nout\n\nerr"):
        limited.run([sys.executable, "-c", words], check=True)
    with pytest.raises(limited.TooLong, match="had not ended after 0 s"):
        limited.run([sys.executable, "-c", "import signal; signal.pause()"], limit=0)


def waits_for_ever(ready: Path) -> None:
    child = os.fork()
    if child:
        ready.with_suffix(".new").write_text(str(child))
        ready.with_suffix(".new").rename(ready)
    signal.pause()


def fails() -> None:
    raise ZeroDivisionError("the last words")


def test_a_function_in_a_process(tmp_path, capsys):
    with limited.children() as start:
        bad = start(fails)
        bad.join()
        assert bad.exitcode == 1 and "ZeroDivisionError: the last words" in capsys.readouterr().err
        hanging, left = start(waits_for_ever, tmp_path / "one"), start(waits_for_ever, tmp_path / "two")
        pids = []
        for name in ("one", "two"):
            while not (tmp_path / name).exists():
                assert hanging.exitcode is left.exitcode is None
                time.sleep(0.01)
            pids.append(int((tmp_path / name).read_text()))
        with pytest.raises(limited.TooLong, match="waits_for_ever had not ended after 0 s") as told:
            hanging.join(limit=0)
        assert str(told.value).count("in waits_for_ever") == 2
        assert hanging.exitcode == -signal.SIGABRT
        assert_ended(pids[0])
        assert limited._runs(pids[1])
    assert left.exitcode == -signal.SIGKILL  # by the end of the block
    assert_ended(pids[1])


def test_a_fork_of_the_command_line_that_hangs(forking_python):
    """It is no child of what was started."""
    program = "import os, signal; os.write(1, b'%d\\n' % os.getpid())"
    command = [forking_python, "-m", "timeit", "-n", "1", "-r", "1", "-s", program, "signal.pause()"]
    with limited.started(command, stdout=limited.PIPE, text=True) as process:
        with limited.watched(process):
            fork = int(process.stdout.readline())
        with pytest.raises(limited.TooLong, match="<timeit-src>"), limited.watched(process, limit=0):
            process.wait()
    assert_ended(fork)


# --- there is no other way -------------------------------------------------------------------------------------------

MODULES = {"subprocess", "multiprocessing", "pty", "pexpect"}
CALLS = {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp", "ProcessPoolExecutor"}
CALLS |= {f"create_subprocess_{how}" for how in ("exec", "shell")} | {f"spawn{how}" for how in ("l", "v", "lp", "vp")}
STARTERS = {
    "forks.py": {"fork"},  # a process that was itself started with a limit, as the next
    "checkpoints/child.py": {"fork"},
    "test_limited.py": {"fork"},
    "checkpoints/test_bad_inputs.py": {"system"},  # what a pickle asks for, and must not get
}
CLOCKS = {"time", "perf_counter", "process_time", "monotonic", "thread_time", "time_ns", "perf_counter_ns"}
READ_CLOCKS = {  # and assert nothing about it
    "limited.py": "the limits",
    "test_limited.py": "a limit",
    "runs/test_kills.py": "how long a training takes, to kill it at any moment of that",
    "native/fuzz.py": "a program that runs for so many minutes",
    "native/leaks.py": "prints how long it took",
    "mutants.py": "prints how long it took",
}


def starts(tree: ast.AST) -> Iterator[str]:
    """What starts a process: imports and names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [node.attr] if node.value.id in ("os", "asyncio", "torch") else []
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in MODULES or name in CALLS)
        yield from (name for name in names if name.endswith("multiprocessing"))


def clocks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
            yield from {node.attr} & CLOCKS
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from {alias.name for alias in node.names} & CLOCKS


@cache
def sources() -> dict[str, ast.AST]:
    return {str(path.relative_to(TESTS)): ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}


def test_every_process_of_the_tests_has_a_limit():
    where = {name: set(starts(tree)) for name, tree in sources().items() if name != "limited.py"}
    assert {name: found for name, found in where.items() if found} == STARTERS


def test_no_test_reads_a_clock():
    assert {name for name, tree in sources().items() if any(clocks(tree))} == set(READ_CLOCKS)


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess", "from subprocess import run", "import os, subprocess as s", "import torch.multiprocessing",
        "from multiprocessing.context import Process", "import os\nos.fork()", "from os import system",
        "from concurrent.futures import ProcessPoolExecutor", "def f():\n    import multiprocessing",
        "from torch import multiprocessing", "torch.multiprocessing.spawn(f)", "import os\nos.popen('ls')",
    ],
)  # fmt: skip
def test_another_way_is_seen(source):
    assert list(starts(ast.parse(source)))


def test_a_clock_is_seen():
    assert list(clocks(ast.parse("import time\nstart = time.process_time()")))
    assert list(clocks(ast.parse("from time import perf_counter")))
    assert not list(clocks(ast.parse("import time\ntime.sleep(1)")))


def test_no_example_of_hypothesis_has_a_deadline():
    settings = hypothesis.settings()
    assert settings.deadline is None and hypothesis.HealthCheck.too_slow in settings.suppress_health_check
