"""Which kernel turns: the first that can, or the one that was named; and why one cannot."""

import os

import pytest
import torch

import limited
from forks import forking
from phasor import (
    Rotary,
    RotarySpec,
    Rotation,
    apply_qk_norm_rotary,
    apply_rotary,
    apply_rotary_qk,
    apply_rotary_qkv,
    rotate,
)
from phasor.encodings.heads import GlobalPointer
from phasor.rotary import kernels
from phasor.rotary.axes import Listed
from phasor.rotary.kernels import Angles, Eager, Native, Reference
from phasor.rotary.kernels.native import extension
from phasor.rotary.kernels.triton import plans

from .conftest import assert_refused

SPEC = RotarySpec(head_dim=8)
Q, K = torch.randn(2, 4, 5, 8), torch.randn(2, 1, 5, 8)
POSITIONS = torch.arange(5)
ROTATION = Rotation.at(SPEC, POSITIONS)


@pytest.fixture
def asked(monkeypatch):
    """The kernels that turned, in order."""
    seen = []
    monkeypatch.setattr(kernels.native, "OPEN", ())  # the short way to the first kernel passes the table by
    for kind in (Native, Eager, Reference):

        def turn(self, *given, kind=kind, before=kind.rotate):
            seen.append(kind.name)
            return before(self, *given)

        monkeypatch.setattr(kind, "rotate", turn)
    return seen


class Wrapped(torch.Tensor):
    """A tensor subclass, which wants to see every operation."""


LEARNED = ROTATION.replace(cos=ROTATION.cos.clone().requires_grad_())
WRAPPED = K.as_subclass(Wrapped)
SECOND = RotarySpec(head_dim=8, second=Listed((0,) * 4, ((1, 4),) * 4))
CANNOT = {
    "second": (lambda kernel: rotate(Q, K, POSITIONS, SECOND, kernel=kernel), "second ones"),
    "learned": (lambda kernel: apply_rotary(Q, LEARNED, kernel=kernel), "do not reach the tables"),
    "subclass": (lambda kernel: apply_rotary(WRAPPED, ROTATION, kernel=kernel), "plain tensors, got Wrapped"),
    "subclass of k": (lambda kernel: apply_rotary_qk(Q, WRAPPED, ROTATION, kernel=kernel), "got Wrapped"),
    "subclass of tables": (
        lambda kernel: apply_rotary(Q, ROTATION.replace(cos=ROTATION.cos.as_subclass(Wrapped)), kernel=kernel),
        "got Wrapped",
    ),
    "subclass of positions": (
        lambda kernel: rotate(Q, K, POSITIONS.as_subclass(Wrapped), SPEC, kernel=kernel),
        "got Wrapped",
    ),
    "vmap": (
        lambda kernel: torch.func.vmap(lambda x: apply_rotary(x, ROTATION, kernel=kernel))(Q),
        "a function transform is at work",
    ),
    "jvp": (
        lambda kernel: torch.func.jvp(lambda x: apply_rotary(x, ROTATION, kernel=kernel), (Q,), (Q,)),
        "a function transform is at work",
    ),
    "device": (
        lambda kernel: apply_rotary(
            torch.empty(1, 64, 512, 8, device="meta", requires_grad=True), rows(512, "meta"), kernel=kernel
        ),
        "its gradients go back in blocks for the cache of a CPU, and on meta each would be a launch",
    ),
}


def rows(tokens, device="cpu"):
    return Rotation.at(SPEC, torch.arange(tokens)).to(device)


@pytest.mark.parametrize("call, reason", CANNOT.values(), ids=CANNOT)
def test_a_named_kernel_runs_or_raises(call, reason, asked):
    assert_refused(lambda: call("eager"), ["kernel='eager' cannot rotate these: ", reason, "use kernel='reference'"])
    assert asked == []
    call("auto"), call("reference")
    assert asked == ["reference", "reference"]


@pytest.mark.parametrize("name", ["native", "eager", "reference"])
def test_the_name_reaches_the_kernel_through_every_door(name, asked):
    apply_rotary(Q, ROTATION, kernel=name)
    apply_rotary_qk(Q, K, ROTATION, kernel=name)
    apply_rotary_qk(Q, K, ROTATION, k_rotation=ROTATION, kernel=name)
    apply_rotary_qkv(torch.randn(2, 5, 3, 4, 8), ROTATION, kernel=name)
    rotate(Q, K, POSITIONS, SPEC, kernel=name)
    Rotary(SPEC, kernel=name)(Q, K, POSITIONS)
    GlobalPointer(6, 2, head_dim=8, kernel=name)(torch.randn(1, 5, 6))
    assert asked == [name] * 8


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What a program prints in a process that has imported torch, and nothing of phasor."""
    place = tmp_path_factory.mktemp("programs")
    with forking(place, ["torch"]) as python:

        def run(text, **variables):
            (place / "program.py").write_text(text)
            return limited.run([python, place / "program.py"], env=os.environ | variables, check=True).stdout

        yield run


WHICH = """
import torch, phasor
from phasor.kernels import Reference
seen, before = [], Reference.rotate
Reference.rotate = lambda self, *given: (seen.append(self.name), before(self, *given))[1]
try:
    phasor.rotate(torch.ones(1, 1, 2, 8), None, torch.arange(2), phasor.RotarySpec(head_dim=8))
    print(seen)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "chosen, said", [("reference", "['reference']"), ("nothing", "from the variable PHASOR_KERNEL")]
)
def test_the_variable_says_what_auto_means(chosen, said, program):
    assert said in program(WHICH, PHASOR_KERNEL=chosen)


WITHOUT = """
import sys
sys.modules["phasor.rotary.kernels.native._native"] = None
import torch, phasor
x = torch.randn(1, 2, 5, 8)
spec = phasor.RotarySpec(head_dim=8)
assert torch.equal(*(phasor.rotate(x, None, torch.arange(5), spec, kernel=k)[0] for k in ("auto", "reference")))
try:
    phasor.rotate(x, None, torch.arange(5), spec, kernel="native")
except ValueError as error:
    print(error)
print(phasor.kernels.available()["native"])
"""


def test_without_the_extension_the_others_do_its_work(program):
    said = program(WITHOUT).splitlines()
    why = (
        "it was built, and cannot be loaded here (import of" if extension.MODULE else "it was not built when phasor was"
    )
    assert said[0].startswith(f"kernel='native' cannot rotate these: {why}")
    assert said[1].startswith(f"not here: {why}")


def test_a_kernel_is_given_phases_by_rotate_and_tables_by_apply(monkeypatch):
    """What a further kernel needs is one object in the table: it sees positions before any table is formed."""
    seen: list[Angles] = []

    class Other(Reference):
        name, about = "other", "a test"

        def rotate(self, q, k, angles, order, out):
            seen.append(angles)
            return super().rotate(q, k, angles, order, out)

    monkeypatch.setattr(kernels.native, "OPEN", ())
    monkeypatch.setattr(kernels, "KERNELS", [Other(), *kernels.KERNELS])
    a = rotate(Q, K, POSITIONS, SPEC)
    b = apply_rotary_qk(Q, K, ROTATION, kernel="other")
    assert torch.equal(a[0], b[0])
    assert seen[0].spec is SPEC
    assert torch.equal(seen[0].positions[0], POSITIONS)
    assert seen[1] is ROTATION
    assert list(kernels.available()) == ["other", "native", "operator", "triton", "eager", "reference", "onnx"]


NORM = {"q_weight": torch.ones(8), "k_weight": torch.ones(8), "eps": 1e-6}
SHORT_WAYS = {
    "q": lambda **how: apply_rotary(Q, ROTATION, **how),
    "q and k": lambda **how: apply_rotary_qk(Q, K, ROTATION, **how)[0],
    "positions": lambda **how: rotate(Q, K, POSITIONS, SPEC, **how)[0],
    "normed": lambda **how: apply_qk_norm_rotary(Q, K, ROTATION, **NORM, **how)[0],
}
FLAT = {
    "q": lambda: apply_rotary(Q.transpose(1, 2).flatten(-2), ROTATION, tensor_format="bshd", num_heads=4),
    "q and k": lambda: apply_rotary_qk(
        *(x.transpose(1, 2).flatten(-2) for x in (Q, K)), ROTATION, tensor_format="bshd", num_heads=4
    ),
}


@pytest.mark.parametrize("call", SHORT_WAYS)
def test_the_short_way_of_a_gpu_is_for_its_own_kernel_alone(call, monkeypatch):
    """Where launches are kept, a kernel that was asked for by name still rotates; flat heads have no such launch."""
    taken = []
    monkeypatch.setattr(kernels.native, "OPEN", ())
    monkeypatch.setitem(plans.PLANS, ("of another call",), None)
    monkeypatch.setattr(plans, "OPEN", ["auto", "triton"])
    for name in ("apply", "rotate"):
        monkeypatch.setattr(plans, name, lambda *given: taken.append(given))
    rotated = SHORT_WAYS[call]
    expected = rotated(kernel="reference")
    assert not taken and torch.equal(rotated(), expected) and len(taken) == 1
    if call in FLAT:
        FLAT[call]()
        assert len(taken) == 1
