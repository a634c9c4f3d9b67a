"""The cases of a GPU: decoding, long prompts, training, images; beside each a copy and the libraries that are there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from phasor import RotarySpec, rotate
from phasor.axes import Axial

from ..cases import copies, with_backward
from ..measure import COPY, Calls, Case, Times, Variant, chosen, compared, medians
from ..result import Goal, Ratio
from .libraries import LIBRARIES, Workload, text

SHARE = Goal("at most", 1.11)  # nine tenths of the rate of a copy
FASTER = Goal("at least", 1.0)
MORE = Goal("at most", 1.0)
ALLOWED = 2e-6  # seconds that a decoded step may take more than a copy
STEP = "phasor - copy_"


def _calls(work: Workload, gradient: bool = False) -> Calls:
    """phasor's call, the copy, and those of the libraries that can do the same."""
    q, k, variant = work.q, work.k, work.variant
    ours = partial(rotate, q, k, work.positions, work.spec, kernel=variant.kernel)
    copy = copies(q.detach(), k.detach())
    calls: dict[str, Callable] = {
        "phasor": with_backward(ours, (q, k)) if gradient else ours,
        COPY: (lambda: (copy(), copy())) if gradient else copy,
    }
    for library in LIBRARIES:
        able = (library.gradient or not gradient) and (library.interleaved or not variant.interleaved)
        if able and not library.missing():
            try:
                call, inputs = library.make(work)
                calls[library.name] = with_backward(call, inputs) if gradient else call
            except Exception as error:  # of a library that is not ours: reported where it is called
                calls[library.name] = partial(_raise, error)
    return calls


def _raise(error: Exception) -> None:
    raise error


def _decode(rows: int, variant: Variant) -> Calls:
    return _calls(text(variant, min(rows, 2) if variant.quick else rows, 1))


def _prompt(variant: Variant, gradient: bool = False) -> Calls:
    return _calls(text(variant, 1, 16 if variant.quick else 8192, gradient), gradient)


def _vision(variant: Variant) -> Calls:
    batch, side = (2, 4) if variant.quick else (8, 64)
    spec = RotarySpec(head_dim=80, axes=Axial((20, 20)), interleaved=variant.interleaved)
    q, k = variant.pair(batch, 16, 16, side * side, 80)
    patch = torch.arange(side * side)
    rows = torch.stack((patch // side, patch % side)).to(variant.device)
    return _calls(Workload(variant, spec, q, k, rows, torch.zeros(batch, dtype=torch.int64, device=variant.device)))


def all_ratios(case: Case, dtype: str, times: Times) -> list[Ratio]:
    """phasor in units of the copy, and every library that ran in units of phasor."""
    ours = compared(times, "phasor", COPY, case.goals.get(dtype))
    goal = FASTER if case.goals else None
    return [ours, *(compared(times, name, "phasor", goal) for name in times if name not in ("phasor", COPY))]


def decoding_ratios(case: Case, dtype: str, times: Times) -> list[Ratio]:
    """The same, and what a step takes more than a copy, in units of what it may."""
    more = [(a - b) / ALLOWED for a, b in zip(times["phasor"], times[COPY], strict=True)]
    middle = medians({"more": more})["more"]
    extra = Ratio(STEP, "2 us", middle * ALLOWED * 1e6, ALLOWED * 1e6, middle, None, "", MORE)
    first, *others = all_ratios(case, dtype, times)
    return [first, extra, *others]


_HALVES: Any = partial(Case, unit=COPY, dtypes=("bfloat16",), layouts=("halves",), ratios=all_ratios)


def _decoding(rows: int) -> Case:
    tokens = "token" if rows == 1 else "tokens, each at a position of its own"
    about = f"{rows} decoded {tokens}, q [{rows}, 32, 1, 128] and k [{rows}, 8, 1, 128], 20 calls in one CUDA graph"
    goal = "at most 2 us more than a copy"
    case: Case = _HALVES(
        f"decode-{rows}", about, partial(_decode, rows), ratios=decoding_ratios, goal_text=goal, in_graph=20
    )
    return case


CASES: tuple[Case, ...] = (
    *(_decoding(rows) for rows in (1, 8, 64, 256)),
    Case(
        "prefill-8192", "`rotate` from positions to new outputs, q [1, 32, 8192, 128] and k [1, 8, 8192, 128]",
        _prompt, unit=COPY, goals={"bfloat16": SHARE, "float32": SHARE}, dtypes=("float32", "bfloat16"), repeat=10,
        ratios=all_ratios,
    ),
    _HALVES(
        "training-8192", "forward and backward of the same, in units of two copies",
        partial(_prompt, gradient=True), goals={"bfloat16": SHARE}, gradient=True, repeat=5,
    ),
    _HALVES("vision", "8 images of 64 x 64 patches by two axes, q and k [8, 16, 4096, 80]", _vision, repeat=10),
)  # fmt: skip

named = partial(chosen, cases=CASES, device=" on a GPU")
