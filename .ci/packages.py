"""What was built, installed as a stranger would: ``python .ci/packages.py DIST --scratch FOLDER``.

The wheel, and the source distribution where no compiler works, each in a new environment with torch alone. Both rotate
with the same bits; the wheel by the native kernel, the source by plain PyTorch, and it says so.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

TRY = """
import sys, torch, phasor
q, k = torch.arange(1024.0).reshape(1, 2, 4, 128).cos(), torch.arange(512.0).reshape(1, 1, 4, 128).sin()
a, b = phasor.rotate(q, k, torch.tensor([0, 1, 131_071, 2_000_000_000]), phasor.RotarySpec(head_dim=128))
kernels = phasor.kernels.available()
print("native:", kernels["native"])
print(hash(tuple(torch.cat((a.flatten(), b.flatten())).view(torch.int32).tolist())))
"""
LIMIT = 900  # seconds of one installation on a slow machine


def tried(name: str, package: Path, scratch: Path, **environment: str) -> list[str]:
    """What a new environment with this package prints."""
    folder = scratch / name
    python = folder / "bin" / "python"
    env = {**os.environ, **environment}
    constraints = Path(__file__).resolve().parents[1] / "constraints.txt"
    pip = [
        str(python),
        "-m",
        "pip",
        "--quiet",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        "-c",
        str(constraints),
    ]
    for call in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "torch", "numpy"],
        [*pip, str(package)],
    ):
        subprocess.run(call, check=True, env=env, timeout=LIMIT)
    done = subprocess.run(
        [str(python), "-c", TRY], check=True, env=env, timeout=LIMIT, cwd=scratch, stdout=subprocess.PIPE, text=True
    )
    print(f"{name}: {done.stdout.strip()}")
    return done.stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    options = parser.parse_args()
    (wheel,), (source,) = (sorted(options.dist.resolve().glob(end)) for end in ("*.whl", "*.tar.gz"))
    scratch = options.scratch.resolve()
    with_kernel = tried("wheel", wheel, scratch)
    plain = tried("source-without-compiler", source, scratch, CC="/bin/false", CXX="/bin/false")
    if with_kernel[-1] != plain[-1]:
        sys.exit("the two rotate with other bits")


if __name__ == "__main__":
    main()
