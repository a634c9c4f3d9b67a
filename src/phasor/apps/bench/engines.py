"""The CPU kernels of vLLM and SGLang, in their own mode: in place, tokens in front, by a table of positions.

They come as libraries, built from single files of the engines: benchmarks/peers/README.md.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk
from .case import Case, Setting, at_least
from .large import WIDTH, clones, prefill
from .race import Calls

FOLDER = "PHASOR_PEERS"  # the variable that names the folder of the libraries


def library(engine: str) -> Path | None:
    path = Path(os.environ.get(FOLDER, "")) / f"{engine}_rotary.so"
    return path if os.environ.get(FOLDER) and path.is_file() else None


def missing(engine: str) -> str:
    if path := library(engine):
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            return f"{path} cannot be loaded ({error.__cause__ or error}); build it again with this torch"
        return ""
    return f"no {engine}_rotary.so in the folder that {FOLDER} names; benchmarks/peers/README.md says how to build it"


def kernel_of(engine: str) -> Any:
    """``kernel(positions, q, k, head_dim, table, halves)``: writes q and k ``[tokens, heads * head_dim]``."""
    torch.ops.load_library(str(library(engine)))
    return getattr(torch.ops, f"peers_{engine}").rotary_embedding


def _beside(engine: str, setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    rotation = setting.rotation(WIDTH, positions)
    table = torch.cat((rotation.cos, rotation.sin), -1).to(setting.dtype)
    q, k = (x[0].transpose(0, 1).flatten(1) for x in (q, k))  # [tokens, heads * head_dim]
    theirs, ours = clones(q, k), clones(q, k)
    turn = partial(apply_rotary_qk, *ours, rotation, tensor_format="thd", num_heads=32, kernel=setting.kernel, out=ours)
    kernel = kernel_of(engine)
    return {
        engine: partial(_in_place, kernel, positions, *theirs, table, not setting.interleaved),
        "phasor": turn,
    }


def _in_place(
    kernel: Any, positions: Tensor, q: Tensor, k: Tensor, table: Tensor, halves: bool
) -> tuple[Tensor, Tensor]:
    kernel(positions, q, k, WIDTH, table, halves)
    return q, k


def _case(engine: str, title: str, dtypes: tuple[str, ...]) -> Case:
    return Case(
        engine,
        f"{title}'s CPU kernel, in place on q [4096, 32 * {WIDTH}] and k [4096, 8 * {WIDTH}], by a table in their "
        "dtype, in units of `apply_rotary_qk` in place on the same",
        partial(_beside, engine),
        measured=engine,
        unit="phasor",
        goals=at_least(1),
        dtypes=dtypes,
        large=True,
        why_not=partial(missing, engine),
    )


ENGINES = (
    _case("vllm", "vLLM", ("float32", "bfloat16", "float16")),
    _case("sglang", "SGLang", ("bfloat16", "float16")),
)
