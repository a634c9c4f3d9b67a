"""Builds the native kernel with the sanitizers of gcc in a temporary folder, and runs a program with it.

    python tests/native/sanitized.py -m pytest tests/core/test_native.py tests/native
    python tests/native/sanitized.py tests/native/fuzz.py --minutes 10

Reads and writes beyond a tensor, misaligned ones, overflows and shifts too far end the program with a report.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import limited

ROOT = Path(__file__).resolve().parents[2]
HOURS = 6 * 3600  # seconds: whatever it is asked to run
FLAGS = "-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"


def runtime(name: str) -> str:
    found = limited.run(["gcc", f"-print-file-name={name}"], check=True)
    return found.stdout.strip()


def build(folder: Path) -> None:
    """A copy of the package in `folder`, with a checked extension."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src" / "phasor", folder / "phasor", ignore=ignored)
    environment = os.environ | {"CC": "gcc", "CFLAGS": FLAGS, "LDFLAGS": FLAGS}
    command = [sys.executable, "setup.py", "--quiet", "build_ext"]
    made = ["--build-lib", str(folder / "made"), "--build-temp", str(folder / "objects")]
    limited.run([*command, *made], cwd=ROOT, env=environment, check=True)
    extensions = list((folder / "made").glob("phasor/rotary/kernels/native/_native*"))
    assert extensions, "the extension was not built"
    for extension in extensions:
        shutil.copy(extension, folder / "phasor" / "rotary" / "kernels" / "native")


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        build(Path(name))
        environment = os.environ | {
            "PYTHONPATH": name,
            "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so')}",
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # Python keeps much to its end
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",  # so that Python's own small objects are watched too
            "OMP_NUM_THREADS": "2",
        }
        command = [sys.executable, *sys.argv[1:]]
        return limited.run(command, limit=HOURS, cwd=ROOT, env=environment, stdout=None, stderr=None).returncode


if __name__ == "__main__":
    sys.exit(main())
