"""Scripts of this folder in several processes."""

import os
import socket
import sys
from pathlib import Path

import limited


def run(script: str, *arguments: str, processes: int = 2) -> str:
    """What a script prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    path = str(Path(__file__).with_name(script))
    done = limited.run([*launcher, path, *arguments], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def environments(processes: int) -> list[dict[str, str]]:
    """What torchrun tells each of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**common, "RANK": str(rank)} for rank in range(processes)]
