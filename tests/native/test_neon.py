"""Every set of instructions writes what the portable one does, and that is the same on x86-64 and on 64-bit ARM.

The C program `compare.c` is built for this machine and for ARM, which an emulator runs. Nothing here measures speed.
What one writes in C decides most of it, and a build that hardly optimizes says of that the same in a fifth of the time;
`make slow` has the build that is shipped.
"""

import os
import shutil
from pathlib import Path

import pytest

import limited

HERE = Path(__file__).parent
KERNEL = HERE.parents[1] / "src" / "phasor" / "rotary" / "kernels" / "native" / "c"
EXACT = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno"]  # as setup.py builds it, with -O3

COMPILER = shutil.which(os.environ.get("CC", "cc"))
FOR_ARM = shutil.which("aarch64-linux-gnu-gcc")
ARM = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

needs_sources = pytest.mark.skipif(not KERNEL.exists(), reason="only a checkout has the sources of the kernel")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
needs_arm = pytest.mark.skipif(
    FOR_ARM is None or ARM is None, reason="there is no aarch64-linux-gnu-gcc, or no qemu-aarch64 to run what it builds"
)


@pytest.fixture(scope="module", params=["-Og", pytest.param("-O3", marks=pytest.mark.slow)])
def level(request):
    return request.param


def built(compiler, path, *more):
    sources = [str(KERNEL / "rotary.c"), str(HERE / "compare.c")]
    limited.run([compiler, *EXACT, *more, f"-I{KERNEL}", "-o", str(path), *sources], check=True)
    return str(path)


def compared(*command, seed=1, jobs=1000):
    """The sets that agreed with `portable`, and the checksum of what it wrote."""
    run = limited.run([*command, str(seed), str(jobs)])
    assert run.returncode == 0, run.stdout + run.stderr
    *sets, checksum = run.stdout.split()
    return sets, checksum


@pytest.fixture(scope="module")
def here(tmp_path_factory, level):
    return built(COMPILER, tmp_path_factory.mktemp("here") / "compare", level)


@needs_sources
@needs_compiler
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_sets_of_this_machine_agree(here, seed):
    compared(here, seed=seed)


@needs_sources
@needs_compiler
@needs_arm
def test_neon_agrees_and_arm_writes_the_bits_of_this_machine(here, level, tmp_path):
    arm, jobs = built(FOR_ARM, tmp_path / "compare", level, "-static"), 1000 if level == "-O3" else 300
    sets, checksum = compared(ARM, arm, jobs=jobs)
    assert sets == ["neon"]
    assert checksum == compared(here, jobs=jobs)[1]
