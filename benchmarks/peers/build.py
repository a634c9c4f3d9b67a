"""Build the rotary kernel of vLLM or SGLang for CPUs, from a single file of theirs, as a library that torch loads.

    python benchmarks/peers/build.py vllm FOLDER/csrc/cpu/pos_encoding.cpp --out build/peers
    python benchmarks/peers/build.py sglang FOLDER/sgl-kernel/csrc/cpu/rope.cpp --out build/peers
    PHASOR_PEERS=build/peers python benchmarks/bench.py --cases vllm,sglang

Nothing of theirs is part of phasor. Needs g++, ninja, and the headers that stand beside the file.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from torch.utils.cpp_extension import load

# What the file defines, and how it is called with six arguments.
DECLARED = {
    "vllm": (
        "void rotary_embedding(at::Tensor&, at::Tensor&, std::optional<at::Tensor>, int64_t, at::Tensor&, bool, "
        "int64_t, bool);",
        "rotary_embedding(positions, q, k, head_dim, table, halves, 0, false);",
    ),
    "sglang": (
        "std::tuple<at::Tensor, at::Tensor> rotary_embedding_cpu(at::Tensor&, at::Tensor&, at::Tensor&, int64_t, "
        "at::Tensor&, bool);",
        "rotary_embedding_cpu(positions, q, k, head_dim, table, halves);",
    ),
}
BINDING = """#include <torch/all.h>
#include <torch/library.h>
#include <optional>
#include <tuple>

{declaration}

static void turn(at::Tensor positions, at::Tensor q, at::Tensor k, int64_t head_dim, at::Tensor table, bool halves) {{
  {call}
}}

TORCH_LIBRARY(peers_{engine}, library) {{
  library.def(
      "rotary_embedding(Tensor positions, Tensor(a!) q, Tensor(b!) k, int head_dim, Tensor table, bool halves) -> ()");
}}

TORCH_LIBRARY_IMPL(peers_{engine}, CPU, library) {{ library.impl("rotary_embedding", &turn); }}
"""
FLAGS = ["-O3", "-march=native", "-fopenmp", "-std=c++20"]  # both engines build for the machine at hand


def build(engine: str, source: Path, out: Path) -> Path:
    """``out/ENGINE_rotary.so``, which defines ``torch.ops.peers_ENGINE.rotary_embedding``."""
    out.mkdir(parents=True, exist_ok=True)
    declaration, call = DECLARED[engine]
    with tempfile.TemporaryDirectory() as folder:
        binding = Path(folder) / "binding.cpp"
        binding.write_text(BINDING.format(engine=engine, declaration=declaration, call=call), encoding="utf-8")
        name = f"{engine}_rotary"
        load(
            name,
            [str(binding), str(source.resolve())],
            extra_cflags=FLAGS,
            extra_ldflags=["-fopenmp"],
            extra_include_paths=[str(place) for place in source.resolve().parents[:2]],
            build_directory=folder,
            is_python_module=False,
        )
        return Path(shutil.copy(Path(folder) / f"{name}.so", out / f"{name}.so"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=DECLARED)
    parser.add_argument("source", type=Path, help="pos_encoding.cpp of vLLM, rope.cpp of SGLang")
    parser.add_argument("--out", type=Path, default=Path("build/peers"))
    args = parser.parse_args()
    if not args.source.is_file():
        sys.exit(f"SOURCE must be the file of {args.engine} that defines its kernel, and there is no {args.source}")
    print(f"wrote {build(args.engine, args.source, args.out)}")
