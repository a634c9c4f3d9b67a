"""The process group ends with its block; how trainings leave it: lab/test_train.py."""

import os
import socket
import sys
from pathlib import Path

import pytest

import limited

# `torch.distributed.nn` is what torch imports for an optimizer.
CHILD = """
import os
from pathlib import Path
from phasor_lab.processes import process_group

def threads():
    return [name for task in Path("/proc/self/task").iterdir() if "gloo" in (name := (task / "comm").read_text())]

child = os.fork()
os.environ["RANK"] = "0" if child else "1"
with process_group() as group:
    import torch.distributed.nn
    group.barrier()
    assert threads()
assert not threads(), threads()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells the names of threads there")
def test_what_is_imported_while_the_group_stands_does_not_keep_it():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = {**os.environ, **shared, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = limited.run([sys.executable, "-c", CHILD], env=environment)
    assert run.returncode == 0, run.stderr
