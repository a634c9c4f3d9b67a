"""Code that a C++ compiler makes: what it knows of the signs of positions must not reach phases, which wrap."""

import pytest
import torch

from phasor import RotarySpec, Rotation, rotate
from phasor.encodings import sinusoids
from phasor.rotary.axes import Sections

from .test_gradients import BACKEND

KNOWN = {  # positions of which the compiler sees that none is below 0, or none above
    "counted": lambda n: torch.arange(n),
    "counted far": lambda n: torch.arange(2**31 - n, 2**31),
    "counted down": lambda n: -torch.arange(n),
    "clamped": lambda n: (torch.arange(n) - 3).clamp(min=0),
    "remainders": lambda n: torch.arange(n) * 7 % 31,
    "long": lambda n: torch.arange(n) + 2**40,
}
SPEC = RotarySpec(head_dim=8)
PAIRS = RotarySpec(head_dim=8, interleaved=True, base=1.5)
AXES = RotarySpec(head_dim=8, axes=Sections((1, 1, 2)))


def every(x):
    """At once: the compiler takes seconds for each program."""
    at = torch.arange(x.shape[-2])
    found = [rotate(x, None, positions(x.shape[-2]), SPEC)[0] for positions in KNOWN.values()]
    found += [rotate(x, None, at, PAIRS)[0], rotate(x, None, torch.stack([at, at, 2 * at]), AXES)[0]]
    return [*found, x * Rotation.at(SPEC, at).sin.repeat(1, 2), x * sinusoids(at, 8)]


def counted(x):
    return rotate(x, None, torch.arange(x.shape[-2]), SPEC)[:1]


@pytest.mark.parametrize(
    "call, tokens", [(counted, 7), *(pytest.param(every, n, marks=pytest.mark.slow) for n in (7, 40))]
)
def test_positions_counted_in_the_same_code(call, tokens):
    """The bits of eager code: beyond half a turn a sign was taken for that of a product that had not wrapped."""
    x = torch.randn(2, tokens, 8, generator=torch.Generator().manual_seed(1))
    torch.compiler.reset()
    for got, expected in zip(torch.compile(call, fullgraph=True, backend=BACKEND)(x), call(x), strict=True):
        assert torch.equal(got, expected)
