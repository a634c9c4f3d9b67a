"""Under torchrun: the files are shared among the processes, and the result is that of one."""

import os
import socket
import subprocess
import sys

from phasor.checkpoints import convert

from . import synthetic
from .models import contents

SIZES = {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}
CHILD = "import sys; from phasor.checkpoints import convert; convert(sys.argv[1], sys.argv[2], to='interleaved')"


def test_two_processes_write_what_one_writes(tmp_path):
    source = synthetic.write(tmp_path / "source", **SIZES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", CHILD, str(source), str(tmp_path / "two")]
    running = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0]
    convert(source, tmp_path / "one", to="interleaved")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
