"""Where a run takes place: the processor, the C library's memory, the versions."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from phasor.kernels import available
from phasor.support.cores import cores

# By glibc's allocator: blocks over the first threshold are mapped anew each time, and the kernel of the system clears
# their pages; blocks under it are taken from what was freed before.
GLIBC = {
    "fresh": {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    "reused": {"MALLOC_MMAP_THRESHOLD_": "8000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"},
}
AS_FOUND = "as found"  # whatever the allocator does by itself


def memories(large: bool, quick: bool) -> tuple[str, ...]:
    """In which memory a case is measured: where sizes are large, fresh and reused pages are two different things."""
    return tuple(GLIBC) if large and not quick and platform.libc_ver()[0] == "glibc" else (AS_FOUND,)


def environment(memory: str) -> dict[str, str]:
    """The variables of a process whose memory is of that kind, and which imports this folder and this phasor first."""
    here = Path(__file__).resolve().parents[1]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    path = os.pathsep.join(filter(None, [str(here), str(here.parent / "src"), variables.get("PYTHONPATH")]))
    return variables | {"PYTHONPATH": path} | GLIBC.get(memory, {})


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def about() -> dict[str, Any]:
    """The fields of a `Record` that no option decides."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "phasor": version("phasor-rope"),
        "kernels": available(),
    }
