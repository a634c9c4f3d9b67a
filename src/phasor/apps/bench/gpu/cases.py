"""The cases of a GPU: decoding, long prompts, training, images; beside each a copy and the libraries that are there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ....rotary.apply import rotate
from ....rotary.axes import Axial
from ....rotary.spec import RotarySpec
from ..case import Case, Setting, compared
from ..large import copies
from ..race import Calls, Times, medians
from ..result import Finding, Goal
from .given import Given, text
from .peers import PEERS

SHARE = Goal("at most", 1.11)  # nine tenths of the rate of a copy
FASTER = Goal("at least", 1.0)
MORE = Goal("at most", 1.0)
ALLOWED = 2e-6  # seconds that a decoded step may take more than a copy
COPY, STEP = "copy_", "phasor - copy_"


@dataclass(frozen=True)
class OnDevice(Case):
    """``inside``: so many calls are one CUDA graph, as decoding runs; 0: they are launched one by one."""

    inside: int = 0


def _calls(given: Given, gradient: bool = False) -> Calls:
    """phasor's call, the copy, and those of the peers that can."""
    q, k, setting = given.q, given.k, given.setting
    ours = partial(rotate, q, k, given.positions, given.spec, kernel=setting.kernel)
    copy = copies(q.detach(), k.detach())
    calls: dict[str, Callable] = {
        "phasor": _back(ours, (q, k)) if gradient else ours,
        COPY: partial(_twice, copy) if gradient else copy,
    }
    for peer in PEERS:
        able = (peer.gradient or not gradient) and (peer.interleaved or not setting.interleaved)
        if able and not peer.missing():
            try:
                call, inputs = peer.make(given)
                calls[peer.name] = _back(call, inputs) if gradient else call
            except Exception as error:  # of a library that is not ours: told where it is called
                calls[peer.name] = partial(_raised, error)
    return calls


def _raised(error: Exception) -> None:
    raise error


def _twice(copy: Callable) -> None:
    copy()
    copy()


def _back(turn: Callable, inputs: tuple[Tensor, Tensor]) -> partial:
    """Forward and backward, to the gradients of what goes in; a gradient lies in memory as its result does."""
    grads = [torch.randn_like(y) for y in turn()]
    return partial(_step, turn, inputs, grads)


def _step(turn: Callable, inputs: tuple[Tensor, Tensor], grads: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(turn(), inputs, grads)


def _decode(rows: int, setting: Setting) -> Calls:
    return _calls(text(setting, min(rows, 2) if setting.quick else rows, 1))


def _prefill(setting: Setting) -> Calls:
    return _calls(text(setting, 1, 16 if setting.quick else 8192))


def _training(setting: Setting) -> Calls:
    return _calls(text(setting, 1, 16 if setting.quick else 8192, gradient=True), gradient=True)


def _vision(setting: Setting) -> Calls:
    batch, side = (2, 4) if setting.quick else (8, 64)
    spec = RotarySpec(head_dim=80, axes=Axial((20, 20)), interleaved=setting.interleaved)
    q, k = setting.pair(batch, 16, 16, side * side, 80)
    place = torch.arange(side * side)
    rows = torch.stack((place // side, place % side)).to(setting.device)
    return _calls(Given(setting, spec, q, k, rows, torch.zeros(batch, dtype=torch.int64, device=setting.device)))


def beside(case: Case, dtype: str, times: Times) -> list[Finding]:
    """phasor in units of the copy, and every peer that ran in units of phasor."""
    found = [compared(times, "phasor", COPY, case.goals.get(dtype))]
    goal = FASTER if case.goals else None
    return found + [compared(times, name, "phasor", goal) for name in times if name not in ("phasor", COPY)]


def decoded(case: Case, dtype: str, times: Times) -> list[Finding]:
    """The same, and what a step takes more than a copy, in units of what it may."""
    more = [(a - b) / ALLOWED for a, b in zip(times["phasor"], times[COPY], strict=True)]
    middle = medians({"more": more})["more"]
    extra = Finding(STEP, "2 us", middle * ALLOWED * 1e6, ALLOWED * 1e6, middle, None, "", MORE)
    first, *others = beside(case, dtype, times)
    return [first, extra, *others]


def _case(name: str, about: str, make: Callable[[Setting], Calls], **more: object) -> OnDevice:
    return OnDevice(name, about, make, unit=COPY, **{"dtypes": ("bfloat16",), "judge": beside, **more})  # type: ignore[arg-type]


def _decoding(rows: int) -> OnDevice:
    about = (
        f"{rows} decoded {'token' if rows == 1 else 'tokens, each at a position of its own'}, q [{rows}, 32, 1, 128] "
        f"and k [{rows}, 8, 1, 128], 20 calls in one CUDA graph"
    )
    said = "at most 2 us more than a copy"
    return _case(
        f"decode-{rows}", about, partial(_decode, rows), judge=decoded, said=said, layouts=("halves",), inside=20
    )


CASES: tuple[OnDevice, ...] = (
    *(_decoding(rows) for rows in (1, 8, 64, 256)),
    _case(
        "prefill-8192",
        "`rotate` from positions to new outputs, q [1, 32, 8192, 128] and k [1, 8, 8192, 128]",
        _prefill,
        goals={"bfloat16": SHARE, "float32": SHARE},
        dtypes=("float32", "bfloat16"),
        repeat=10,
    ),
    _case(
        "training-8192",
        "forward and backward of the same, in units of two copies",
        _training,
        goals={"bfloat16": SHARE},
        layouts=("halves",),
        gradient=True,
        repeat=5,
    ),
    _case(
        "vision",
        "8 images of 64 x 64 patches by two axes, q and k [8, 16, 4096, 80]",
        _vision,
        layouts=("halves",),
        repeat=10,
    ),
)


def named(names: Sequence[str]) -> tuple[OnDevice, ...]:
    """The cases of these names; all for none. ``ValueError`` for a name of no case.

    >>> [case.name for case in named(["vision", "decode-1"])]
    ['decode-1', 'vision']
    """
    known = [case.name for case in CASES]
    for name in names:
        if name not in known:
            raise ValueError(
                f"--cases must be names out of {', '.join(known)} on a GPU, with commas between, got {name!r}"
            )
    return tuple(case for case in CASES if not names or case.name in names)
