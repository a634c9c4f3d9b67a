"""Calls of every kind, many times over: no reference and no memory is left behind.

python tests/native/leaks.py --calls 1000000
"""

import argparse
import contextlib
import gc
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary.kernels.native import autograd, kernel

SPEC = RotarySpec(head_dim=8)


@dataclass
class Kind:
    call: Callable[[], Any]
    arguments: list[Any]  # whose references are counted


def kinds() -> dict[str, Kind]:
    """All that a call can come to: results, gradients, a refusal, an error."""
    q, k, positions = torch.randn(1, 2, 5, 8), torch.randn(1, 1, 5, 8), torch.arange(5)
    rotation = Rotation.at(SPEC, positions)
    y, z = torch.empty_like(q), torch.empty_like(k)
    learning = torch.randn(1, 2, 5, 8, requires_grad=True)
    up, double, layout = torch.ones_like(q), q.double(), SPEC.layout
    plan, extension = autograd.plan_of(SPEC.key, None), kernel._native
    assert plan is not None
    capsule, steps = plan[0], bytes(8 * 4)
    given = [q, k, positions, rotation, rotation.cos, rotation.sin, rotation.layout, layout, plan, capsule]

    def gradient(turned: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(turned(learning), learning, up)

    def refused(call: Callable[[], Any]) -> Callable[[], Any]:
        def checked() -> None:
            with contextlib.suppress(TypeError, ValueError):
                call()
                raise AssertionError("it was not refused")

        return checked

    calls: dict[str, Callable[[], Any]] = {
        "new, of tables": lambda: apply_rotary_qk(q, k, rotation),
        "new, of phases": lambda: rotate(q, k, positions, SPEC),
        "given, of tables": lambda: apply_rotary_qk(q, k, rotation, out=(y, z)),
        "given, of phases": lambda: rotate(q, k, positions, SPEC, out=(y, z)),
        "given, by the extension": lambda: extension.apply(q, k, rotation, "bhsd", False, None, (y, z), None),
        "gradient of tables": gradient(lambda x: apply_rotary(x, rotation)),
        "gradient of phases": gradient(lambda x: rotate(x, None, positions, SPEC)[0]),
        "declined: dtype": lambda: extension.apply(double, None, rotation, "bhsd", False, None, None, None),
        "declined: no rotation": lambda: extension.apply(q, k, positions, "bhsd", False, None, None, None),
        "declined: no positions": lambda: extension.rotate(q, k, q, "bhsd", False, None, None, None, plan),
        "declined: output": lambda: extension.apply(q, k, rotation, "bhsd", False, None, (z, y), None),
        "declined: no output": lambda: extension.apply(q, k, rotation, "bhsd", False, None, (steps, steps), None),
        "declined: nonsense": lambda: extension.apply(steps, layout, 1, 2, 3, 4, 5, 6),
        "error: too few": refused(lambda: extension.apply(q, k, rotation)),
        "error: no plan": refused(lambda: extension.rotate(q, k, positions, "bhsd", False, None, None, None, (steps,))),
        "error: an empty plan": refused(lambda: extension.rotate(q, k, positions, "bhsd", False, None, None, None, ())),
        "error: too long": refused(lambda: apply_rotary(q[:, :, :4], rotation)),
        "a plan": lambda: extension.plan(layout, 1.0, 1.0, steps, 4),
        "error: steps": refused(lambda: extension.plan(layout, 1.0, 1.0, steps, 3)),
        "a set": lambda: extension.use(None),
        "error: no such set": refused(lambda: extension.use("none")),
    }
    counted = [*given, y, z, learning, up, double, steps, SPEC]
    return {name: Kind(call, counted) for name, call in calls.items()}


def grown(kind: Kind, calls: int) -> list[str]:
    """What there is more of after so many calls: references to the arguments, objects."""
    for _ in range(50):  # what is kept once is kept
        kind.call()
    gc.collect()
    gc.freeze()  # what there is now is not counted, and not walked again for each kind
    before = references(kind)
    for _ in range(calls):
        kind.call()
    gc.collect()
    counts = zip(kind.arguments, before, references(kind), strict=True)
    more = [f"{type(x).__name__} {after - n:+}" for x, n, after in counts if after != n]
    left = len(gc.get_objects())
    return [*more, *([f"{left} objects"] if left > 20 else [])]


def references(kind: Kind) -> list[int]:
    return [sys.getrefcount(x) for x in kind.arguments]


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=1_000_000, help="of all kinds together")
    calls = parser.parse_args().calls
    found, begun = kinds(), time.monotonic()
    each, wrong = calls // len(found), 0
    for name, kind in found.items():
        grown(kind, each // 10)
        before = resident()
        more = grown(kind, each)
        kib = (resident() - before) // 1024
        wrong += bool(more) or kib > 1024
        print(f"{name:26} {each} calls, {kib:+} KiB {', '.join(more)}", flush=True)
    print(f"{each * len(found)} calls in {time.monotonic() - begun:.0f} s, {wrong} kinds that leave something")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
