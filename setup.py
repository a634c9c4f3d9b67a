"""The native kernel: one C extension for every Python from 3.11, and optional. Everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

HERE = Path("src/phasor/rotary/kernels/native/c")
# Products and sums are rounded one by one: the bits of every kernel are those of the plain expression.
EXACT = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno"] if sys.platform != "win32" else ["/O2"]

setup(
    ext_modules=[
        Extension(
            "phasor.rotary.kernels.native._native",
            sources=[str(HERE / "module.c"), str(HERE / "rotary.c")],
            depends=[str(path) for path in sorted(HERE.glob("*.h"))],
            extra_compile_args=EXACT,
            py_limited_api=True,
            optional=True,  # without a compiler phasor installs, and its other kernels do the work
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
