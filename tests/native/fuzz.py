"""Random calls, good and bad, for so many minutes: the law of `tests/calls.py`, for the kernel in C and the eager one.

    python tests/native/fuzz.py --minutes 10 --seed 1
    python tests/native/fuzz.py --case 1:4711                 # one of them again

Three in ten are calls of the extension itself, which no check stands before. ``tests/native/sanitized.py`` runs it
under the sanitizers.
"""

import argparse
import collections
import faulthandler
import logging
import random
import struct
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from calls import (
    EAGER,
    FLOATS,
    HOSTILE,
    JUNK,
    LENGTH,
    NOT_A_CALL,
    Call,
    Draw,
    bits,
    built,
    check,
    described,
    native_ways,
    shown,
)  # fmt: skip
from core.conftest import sets
from phasor import Layout, RotarySpec, Rotation, apply_rotary_qk
from phasor.rotary.apply.outputs import overlaps_itself
from phasor.rotary.kernels.native import autograd
from phasor.rotary.kernels.native import kernel as native

SETS = ("", "", "avx512_bf16", "avx512", "avx2", "portable", "neon", "\ud800")
LAYOUT = ("head_dim", "rotary_dim", "trailing", "interleaved", "blocks", "permuted")


def freed(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.untyped_storage().resize_(0)
    return y


LETHAL: dict[str, Callable[[Tensor], Any]] = {  # to torch itself, and so for the extension alone
    "without memory": freed,
    "endless": lambda x: x.flatten()[:1].expand(2**40),
}


def hostile(rng: random.Random, x: Tensor) -> Any:
    try:
        return (HOSTILE | LETHAL)[rng.choice(list(HOSTILE | LETHAL))](x)
    except Exception:  # not every tensor can be made so
        return x


# ---- The extension itself ----


def broken_rotation(rng: random.Random, rotation: Rotation) -> Any:
    """One that no constructor made."""
    made = object.__new__(Rotation)
    names = ("cos", "sin", "layout", "per_head", "magnitude", "promoted", "second")
    fields = {name: getattr(rotation, name) for name in names}
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(names)
        if isinstance(fields.get(name), Tensor) and rng.random() < 0.7:
            fields[name] = hostile(rng, fields[name])
        elif name == "layout" and rng.random() < 0.7:
            fields[name] = broken_layout(rng, rotation.layout)
        elif rng.random() < 0.5:
            fields[name] = rng.choice(JUNK)
        else:
            fields.pop(name, None)
    made.__dict__.update(fields)
    return made


def broken_layout(rng: random.Random, layout: Layout) -> Any:
    fields = {name: getattr(layout, name) for name in LAYOUT}
    fields[rng.choice(list(fields))] = rng.choice((*JUNK, False, 0, 1, 2, 4, 7, 8, 128, 512, 2**31, 2**62))
    for name in ("head_dim", "rotary_dim", "blocks"):  # True is 1
        fields[name] = None if fields[name] is True else fields[name]
    return SimpleNamespace(**fields)


def some_plan(rng: random.Random, spec: RotarySpec) -> Any:
    if rng.random() < 0.7 and (plan := autograd.plan_of(spec.key, LENGTH)) is not None:
        return plan
    pairs = spec.layout.pairs if rng.random() < 0.7 else rng.choice((0, -1, 1, 512, 513, 2**61))
    axes = rng.choice((0, 1, 1, 2, 4))
    steps = struct.pack(f"{max(0, min(pairs, 600)) * axes}q", *range(max(0, min(pairs, 600)) * axes))
    args: list[Any] = [spec.layout, rng.choice((1.0, -1.0)), 1.0, steps[: rng.choice((None, None, -1, 7))], pairs]
    if rng.random() < 0.3:
        args[0] = broken_layout(rng, spec.layout)
    if rng.random() < 0.2:
        args[rng.randrange(5)] = rng.choice(JUNK)
    return native._native.plan(*args), spec, None


def raw_call(seed: str) -> tuple[Any, list[Any], Any] | None:
    """A function of the extension, its arguments, and whether memory of outputs is at stake."""
    draw = Draw(seed)
    rng, one, often, extension = draw.rng, draw.one, draw.often, native._native
    draw.lead, draw.dtype = [one(1, 2)] * one(1, 1, 1, 0, 2, 4, 5), one(*FLOATS)
    draw.heads, draw.seq = one(1, 2, 3), one(0, 1, 5, 17, 40)
    draw.batch = one([], [], draw.lead[-1:], [1]) if draw.format in ("bhsd", "bshd") else []
    kind = one("apply", "rotate", "rotate", "plan", "use")
    try:
        if kind == "use":
            return extension.use, [one(*JUNK, *SETS)], None
        if kind == "plan":
            return (lambda: some_plan(rng, draw.spec)), [], None
        q: Any = draw.tensor(draw.shape(draw.heads), draw.dtype)
        k: Any = one(draw.tensor(q.shape, draw.dtype), None)
        y: Any = one(None, None, torch.zeros(q.shape, dtype=draw.dtype))
        outputs = None if y is None else (y, None if k is None else torch.zeros(q.shape, dtype=draw.dtype))
        args = [q, k, None, draw.format, often(0.3), None, outputs, None]
        if kind == "apply":
            args[2] = draw.rotation()
            if often(0.3):
                args[2] = broken_rotation(rng, args[2])
        else:
            args[2] = draw.positions()
            args.append(some_plan(rng, draw.spec))
        for at in rng.sample(range(len(args)), one(0, 0, 1, 1, 2)):
            args[at] = hostile(rng, args[at]) if isinstance(args[at], Tensor) and often(0.7) else one(*JUNK)
        if often(0.05):
            args = args[: rng.randrange(len(args))] if often(0.5) else [*args, *args]
    except NOT_A_CALL:
        return None
    return getattr(extension, kind), args, kind


def check_raw(seed: str, seen: collections.Counter[str]) -> str:
    """Whatever it is given, it returns None, refuses, or has the bits of the reference."""
    made = raw_call(seed)
    if made is None:
        seen["not a call"] += 1
        return ""
    function, args, kind = made
    seen["calls"] += 1
    try:
        got = function(*args)
    except (TypeError, ValueError, OverflowError, MemoryError, RuntimeError) as error:
        if isinstance(error, SystemError) or sys.exc_info()[0] is SystemError:
            return f"{kind}: {error!r}"
        seen["raw: refused"] += 1
        return ""
    except Exception as error:
        return f"{kind}: {error!r}"
    finally:
        native._native.use(None)
    if got is None or kind is None:
        seen["raw: declined" if got is None else "raw: plans and sets"] += 1
        return ""
    again = raw_call(seed)
    assert again is not None
    q, k, angles, tensor_format, transposed, *_ = again[1]
    try:
        if kind == "rotate":
            plan = again[1][8]
            angles = Rotation.at(plan[1], angles, LENGTH) if plan is autograd.plan_of(plan[1].key, LENGTH) else None
        if angles is None:  # a plan of other steps, which nothing else knows
            seen["raw: unknown steps"] += 1
            return ""
        if isinstance(angles.layout, SimpleNamespace):
            angles = angles.replace(magnitude=1.0, layout=Layout(**vars(angles.layout)))
        if transposed is True:
            angles = angles.replace(magnitude=1.0, layout=angles.layout).transpose()
        expected = apply_rotary_qk(q, k, angles, tensor_format=tensor_format, kernel="reference")
    except Exception as error:
        return f"{kind} gave a result, and the reference {error!r}: {described(Call(None, args, {}))}"
    if any(x is not None and overlaps_itself(x) for x in got):  # which the checks of outputs refuse
        seen["raw: outputs that overlap"] += 1
        return ""
    got, expected = ([None if x is None else x.detach() for x in pair] for pair in (got, expected))
    if [bits(x) for x in got] != [bits(x) for x in expected]:
        return f"{kind}: {' and '.join(map(shown, got, expected))}"
    seen["raw: same bits"] += 1
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="SEED:NUMBER of one case")
    parser.add_argument("--trace", help="a file that has the case at work, for a crash")
    given = parser.parse_args()
    assert native._native is not None, native.MISSING
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # of fake tensors
    faulthandler.enable()
    of_native, seen = native_ways(sets()), collections.Counter[str]()
    begun, number, wrong = time.monotonic(), 0, 0
    trace = open(given.trace, "w") if given.trace else None  # noqa: SIM115
    while time.monotonic() < begun + 60 * given.minutes:
        seed = given.case or f"{given.seed}:{number}"
        if trace:
            trace.seek(0)
            trace.write(f"{seed}\n")
            trace.flush()
        choice = random.Random(f"ways of {seed}")
        torch.set_num_threads(2 if choice.random() < 0.05 else 1)
        ways = {name: way for name, way in of_native.items() if name.startswith("auto") or choice.random() < 0.4}
        ways |= dict([choice.choice(list(EAGER.items()))])
        if choice.random() < 0.3:
            difference = check_raw(seed, seen)
        else:
            difference = check(lambda seed=seed: built(seed), ways, lambda what: seen.update([what]))  # type: ignore[misc]
        if difference:
            wrong += 1
            print(f"{seed}: {difference}", flush=True)
        number += 1
        if given.case or wrong == 20:
            break
    print(f"{number} cases in {time.monotonic() - begun:.0f} s, {wrong} wrong:", dict(sorted(seen.items())))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
