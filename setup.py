"""The native kernel: one C extension for every Python from 3.11, and optional. Everything else is in pyproject.toml."""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path("src/phasor/rotary/kernels/native/c")
# Products and sums are rounded one by one: the bits of every kernel are those of the plain expression.
EXACT = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno"] if sys.platform != "win32" else ["/O2"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mf16c"]
# Each set of instructions is a file, compiled with flags of its own; which of them a machine has is seen at run time.
SETS = {
    "set_portable.c": [],
    "set_avx2.c": ["-mavx2", "-mf16c"],
    "set_avx512.c": AVX512,
    "set_avx512_bf16.c": [*AVX512, "-mavx512bf16"],
    "set_neon.c": [],
}


def flags_of(name: str) -> list[str]:
    """None for machines of another family. A compiler for two families at once is told for which they are."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    return [x for flag in SETS[name] for x in (["-Xarch_x86_64", flag] if sys.platform == "darwin" else [flag])]


class BuildKernel(build_ext):
    def build_extension(self, ext: Extension) -> None:
        def compiled(name: str) -> list[str]:
            options = {"output_dir": self.build_temp, "include_dirs": ext.include_dirs, "depends": ext.depends}
            return self.compiler.compile(
                [str(HERE / name)], extra_postargs=[*ext.extra_compile_args, *flags_of(name)], **options
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a compiler
            ext.extra_objects += [made for files in pool.map(compiled, SETS) for made in files]
        super().build_extension(ext)


if __name__ == "__main__":
    setup(
        cmdclass={"build_ext": BuildKernel},
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
