"""Compiled and exported code: the whole call, phases inside, without a break.

What inductor makes is in one file, for a process needs eight seconds before its first program.
"""

import os
import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from phasor import RotarySpec, Rotation, apply_rotary, rotate
from phasor.encodings import sinusoids
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import YaRN

from .conftest import FEW, SEQ_LEN, SPECS, anywhere, assert_within

F64 = torch.float64
BACKEND = "inductor" if shutil.which(os.environ.get("CXX", "g++")) else "aot_eager"  # inductor needs a C++ compiler
COMPILED = {
    "plain": SPECS["plain-one-full-halves"],
    "yarn float32": SPECS["yarn-one-first-interleaved"].replace(angles="float32"),
    "mrope last": SPECS["longrope-sections-last-halves"],
}


def call(spec):
    return lambda q, k, positions: rotate(q, k, positions, spec, seq_len=SEQ_LEN)


def check_compiled(spec, backend, lengths, free="every size"):
    """``free``: what is no constant to the compiler; it raises where a length that it was told of became one."""
    torch.compiler.reset()
    dynamic = True if free == "every size" else None
    compiled = torch.compile(call(spec), fullgraph=True, dynamic=dynamic, backend=backend)
    for dtype, length in lengths:
        positions = anywhere(spec, 0, 2**20 if spec.angles == "exact" else 100, length)
        q, k = (torch.randn(2, h, length, spec.head_dim).to(dtype).requires_grad_() for h in (4, 2))
        if free == "length":
            for x, axis in ((q, 2), (k, 2), (positions, positions.ndim - 1)):
                torch._dynamo.mark_dynamic(x, axis)
        got, expected = compiled(q, k, positions), call(spec)(q, k, positions)
        # fused multiply-adds and other vector cosines: two roundings of each, tables included; half precision once
        steps = 16 if dtype.itemsize > 2 else 2
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == dtype
            assert_within(a, b, steps)
        g = torch.randn_like(q)
        (dq,), (eq,) = (torch.autograd.grad(out[0], q, g) for out in (got, expected))
        assert_within(dq, eq, steps)


@pytest.mark.parametrize(
    "name, backend, free",
    [
        # Whole numbers that wrap, sections, channels that pass by; what inductor makes of them is `together` below.
        ("mrope last", "aot_eager", "length"),
        pytest.param("mrope last", BACKEND, "length", marks=pytest.mark.slow),
        ("yarn float32", "eager", "every size"),  # what is traced, without what a backend makes of it
        *(pytest.param(name, BACKEND, "every size", marks=pytest.mark.slow) for name in COMPILED),
    ],
)
def test_compile(name, backend, free):
    """One graph serves all lengths; both angle modes; forward and backward."""
    lengths = [(torch.float32, 5), (torch.float32, 16), (torch.float32, 33)]
    check_compiled(COMPILED[name], backend, lengths, free)


def test_equal_specs_compile_once():
    torch.compiler.reset()
    counter = CompileCounter()
    tables = torch.compile(lambda spec: Rotation.at(spec, torch.arange(4)).cos, backend=counter, fullgraph=True)
    for _ in range(3):
        tables(RotarySpec(head_dim=8, base=500.0, scaling=YaRN(factor=4.0, original_max_position=64)))  # a new object
    assert counter.frame_count == 1


def test_compiled_specs_do_not_share_constants():
    """Two specs of one shape through one compiled function: each gets its own frequencies."""
    torch.compiler.reset()
    compiled = torch.compile(
        lambda q, positions, spec: apply_rotary(q, Rotation.at(spec, positions)), fullgraph=True, backend="aot_eager"
    )
    q, positions = torch.randn(1, 1, 5, 8), torch.arange(5) + 1
    for base in (10_000.0, 500.0, 10_000.0):
        spec = RotarySpec(head_dim=8, base=base)
        torch.testing.assert_close(compiled(q, positions, spec), apply_rotary(q, Rotation.at(spec, positions)))


class Model(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec

    def forward(self, q, k, positions):
        return rotate(q, k, positions, self.spec, seq_len=SEQ_LEN)


# One of each: the others are slow.
EXPORTED = {FEW[1]: "float32", FEW[2]: "exact"}


@pytest.mark.parametrize(
    "name, angles",
    [
        pytest.param(name, angles, marks=[] if EXPORTED.get(name) == angles else pytest.mark.slow)
        for name in FEW
        for angles in ("exact", "float32")
    ],
)
def test_export_with_any_length(name, angles):
    """torch.export, once, with the sequence length as a free dimension; the program runs at other lengths."""
    spec = SPECS[name].replace(angles=angles)

    def inputs(length):
        q, k = (torch.randn(2, h, length, spec.head_dim) for h in (4, 2))
        return q, k, anywhere(spec, 0, 5000, length)

    seq = torch.export.Dim("seq", min=2, max=4096)
    positions_dim = 0 if spec.axes.count == 1 else 1
    program = torch.export.export(Model(spec), inputs(8), dynamic_shapes=({2: seq}, {2: seq}, {positions_dim: seq}))
    for length in (8, 3, 100):
        arguments = inputs(length)
        got, expected = program.module()(*arguments), Model(spec)(*arguments)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])


# --- what a compiler knows of the signs of positions must not reach phases, which wrap ------------------------------

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


def together(x):
    """In one program for inductor: positions that are counted, and sections behind channels that pass."""
    at = torch.arange(x.shape[-2])
    axes = torch.stack([at, at * 2**27, 2**31 - at])
    mrope = COMPILED["mrope last"]
    passing = torch.cat((x,) * 3, -1)[..., : mrope.head_dim]
    return [rotate(x, None, at, SPEC)[0], rotate(passing, None, axes, mrope, seq_len=SEQ_LEN)[0]]


@pytest.mark.parametrize(
    "call, tokens", [(together, 7), *(pytest.param(every, n, marks=pytest.mark.slow) for n in (7, 40))]
)
def test_positions_counted_in_the_same_code(call, tokens):
    """The bits of eager code: beyond half a turn a sign was taken for that of a product that had not wrapped."""
    x = torch.randn(2, tokens, 8, generator=torch.Generator().manual_seed(1))
    torch.compiler.reset()
    for got, expected in zip(torch.compile(call, fullgraph=True, backend=BACKEND)(x), call(x), strict=True):
        assert_within(got, expected, 0 if call is every or expected.shape == x.shape else 16)
