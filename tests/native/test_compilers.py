"""Every set of instructions writes what the portable one does, by every compiler, on x86-64 and on 64-bit ARM.

The C program `compare.c` is built by the compilers that are here, and for ARM, which an emulator runs. Nothing here
measures speed. The sets of this machine have the law of `core/test_law.py`; `make slow` has all that is compiled, the
build that is shipped too.
"""

import importlib.util
import os
import platform
import shutil
from pathlib import Path

import pytest

import limited

HERE = Path(__file__).parent
KERNEL = HERE.parents[1] / "src" / "phasor" / "rotary" / "kernels" / "native" / "c"
EXACT = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno"]  # as setup.py builds it, with -O3

COMPILER = shutil.which(os.environ.get("CC", "cc"))
OTHERS = ("clang", "musl-gcc")
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


def setup_script():
    """setup.py as a module, which then builds nothing."""
    spec = importlib.util.spec_from_file_location("setup_of_phasor", HERE.parents[1] / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(compiler, path, *more, for_arm=False):
    """`compare` at ``path``, each set of instructions compiled with the flags that setup.py gives to its file."""
    setup = setup_script()
    objects = []
    for name in setup.SETS:
        flags = [] if for_arm else setup.flags_of(name)
        objects.append(str(path.with_name(f"{path.name}_{name}.o")))
        source = str(KERNEL / name)
        limited.run([compiler, *EXACT, *more, *flags, f"-I{KERNEL}", "-c", source, "-o", objects[-1]], check=True)
    sources = [str(KERNEL / "rotary.c"), str(HERE / "compare.c")]
    limited.run([compiler, *EXACT, *more, f"-I{KERNEL}", "-o", str(path), *sources, *objects], check=True)
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
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_sets_of_this_machine_agree(here, seed):
    compared(here, seed=seed)


@needs_sources
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags of the sets are those of x86-64")
@pytest.mark.parametrize("name", OTHERS)
def test_other_compilers_take_the_sources(name):
    """Without a warning; what they make of them takes long, and is compared by `make slow`."""
    if not (other := shutil.which(name)):
        pytest.skip(f"there is no {name}")
    setup = setup_script()
    for source, flags in {"rotary.c": [], **{name: setup.flags_of(name) for name in setup.SETS}}.items():
        limited.run(
            [other, *EXACT, *flags, "-Wall", "-Werror", "-fsyntax-only", f"-I{KERNEL}", KERNEL / source], check=True
        )


@needs_sources
@needs_compiler
@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags of the sets are those of x86-64")
@pytest.mark.parametrize("name", OTHERS)
def test_other_compilers_write_the_same_bits(here, level, name, tmp_path):
    if not (other := shutil.which(name)):
        pytest.skip(f"there is no {name}")
    assert compared(built(other, tmp_path / "compare", level)) == compared(here)


@pytest.fixture(scope="module")
def arm(tmp_path_factory, level):
    return built(FOR_ARM, tmp_path_factory.mktemp("arm") / "compare", level, "-static", for_arm=True)


@needs_sources
@needs_arm
@pytest.mark.slow
def test_neon_agrees(arm):
    assert compared(ARM, arm, jobs=300)[0] == ["neon"]


@needs_sources
@needs_compiler
@needs_arm
@pytest.mark.slow
def test_arm_writes_the_bits_of_this_machine(here, arm):
    assert compared(ARM, arm)[1] == compared(here)[1]
