"""What `phasor.patching.HookedRotary` costs beside the function of the model that it stands in for.

    OMP_NUM_THREADS=1 python benchmarks/hooked.py

Llama's definition, heads [1, 32 and 8, 1024, 128], one thread; forward and backward, and forward alone. Both take
turns; the median of 31 ratios, model's function / phasor.
"""

import statistics
import time
from collections.abc import Callable
from types import MethodType

import torch
from torch import nn

from phasor.patching import HookedRotary


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def definition(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Function(nn.Module):
    """As kernels makes it of a function."""

    def forward(self, *args, **kwargs):
        return definition(*args, **kwargs)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    hooked = Function()
    hooked.forward = MethodType(HookedRotary.forward, hooked)
    angles = torch.outer(torch.arange(1024.0), 10_000.0 ** (-torch.arange(64) / 64)).repeat(1, 2)[None]
    for dtype in (torch.float32, torch.bfloat16):
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        for learns in (True, False):
            heads = [torch.randn(1, n, 1024, 128).to(dtype).requires_grad_(learns) for n in (32, 8)]
            gradients = [torch.randn_like(x) for x in heads]

            def run(function: Callable, heads=heads, gradients=gradients, cos=cos, sin=sin, learns=learns) -> None:
                results = function(*heads, cos, sin)
                if learns:
                    torch.autograd.grad(results, heads, gradients)

            for function in (definition, hooked) * 3:
                run(function)
            ratios = [seconds(lambda: run(definition)) / seconds(lambda: run(hooked)) for _ in range(31)]
            print(f"{dtype!s:16} {'training' if learns else 'inference':10} {statistics.median(ratios):.1f} x")


if __name__ == "__main__":
    main()
