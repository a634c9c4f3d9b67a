"""The kernel in C: the bits of the reference for every set of instructions, and what it leaves to others."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad

import limited
from phasor import Layout, RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary import kernels
from phasor.rotary.kernels.native import autograd, extension, kernel

from .conftest import needs_native

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which(os.environ.get("CC", "cc"))


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [{}, {"interleaved": True}, {"blocks": 2}, {"rotary_dim": 20, "trailing": True}])
def test_the_parts_of_complex_tables_are_taken_as_they_lie(dtype, layout):
    x = torch.randn(2, 3, 5, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    layout = Layout(head_dim=32, **layout)
    table = torch.polar(
        torch.ones(5, layout.pairs).double(), torch.linspace(0, 9, 5 * layout.pairs).double().view(5, -1)
    )
    rotation = Rotation(cos=table.real, sin=table.imag, layout=layout)
    turned, _ = kernel.apply(x, None, rotation, "bhsd", None, None)
    assert torch.equal(turned, apply_rotary(x, rotation, kernel="reference"))


@pytest.mark.skipif(COMPILER is None, reason="without a C compiler the package has no native kernel")
def test_where_there_is_a_compiler_there_is_the_kernel():
    assert not kernel.MISSING
    assert "auto" in kernel.OPEN or kernels.base.CHOSEN not in ("auto", "native")


SPEC = RotarySpec(head_dim=8)
POSITIONS = torch.arange(5)


class Logged(torch.Tensor):
    """A subclass that counts what it sees."""

    seen = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen += 1
        return super().__torch_function__(function, types, args, kwargs or {})


@needs_native
def test_whoever_watches_sees_the_plain_operations():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    x, rotation = torch.randn(1, 2, 5, 8), Rotation.at(SPEC, POSITIONS)

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    for mode in (Functions, Dispatches):
        seen = []
        with mode():
            apply_rotary(x, rotation)
        assert len(seen) > 3
    apply_rotary(x.as_subclass(Logged), rotation)
    assert Logged.seen > 3


def test_what_is_kept_for_the_way_back():
    """Tables that were written to since are noticed; hooks may bring copies; positions are enough for phases."""
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    rotation = Rotation.at(SPEC, POSITIONS)
    y = apply_rotary(q, rotation)
    rotation.cos.mul_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t.clone(), lambda t: t):
        y = apply_rotary(q, rotation)
        z, _ = rotate(q, None, POSITIONS, SPEC)
    (dq,), (dz,) = torch.autograd.grad(y, q, torch.ones_like(y)), torch.autograd.grad(z, q, torch.ones_like(z))
    assert torch.equal(dq, dz)
    assert torch.equal(dq, apply_rotary(torch.ones_like(q), rotation.transpose()))
    assert {t.dtype for t in kept} == {torch.float32, torch.int64} or kernel.MISSING


@needs_native
def test_where_torch_or_python_lacks_what_it_needs_it_is_refused_when_loaded(monkeypatch):
    with monkeypatch.context() as without:
        without.delattr(torch._C, "_len_torch_dispatch_stack")
        assert "lacks what it needs (module 'torch._C' has no attribute" in extension.bind(autograd.learn)
    with monkeypatch.context() as threaded:
        threaded.setattr(extension.sysconfig, "get_config_var", lambda name: 1)
        assert extension.bind(autograd.learn).startswith("it relies on the global interpreter lock")
    assert extension.bind(autograd.learn) == ""


@needs_native
def test_without_torchs_loop_over_threads_one_works(monkeypatch):
    monkeypatch.setattr(extension.Path, "glob", lambda self, pattern: [])
    assert extension.threading() == (0, 0)
    extension.bind(autograd.learn)
    x, positions, spec = torch.randn(2, 8, 1031, 64), torch.arange(1031), RotarySpec(head_dim=64)
    assert torch.equal(rotate(x, None, positions, spec)[0], rotate(x, None, positions, spec, kernel="reference")[0])
    monkeypatch.undo()
    extension.bind(autograd.learn)
    assert 0 not in extension.threading()


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    """Tiles are shorter where more threads share them: 128 tokens on one thread, 16 on seven, with tokens left over."""
    spec, positions = RotarySpec(head_dim=64), torch.arange(1031)
    x, before = torch.randn(2, 8, 1031, 64).to(dtype), torch.get_num_threads()
    expected = rotate(x, None, positions, spec, kernel="reference")[0]
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            assert torch.equal(rotate(x, None, positions, spec)[0], expected), threads
            y = x.clone()
            rotate(y, None, positions, spec, out=(y, None))
            assert torch.equal(y, expected), threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="only a checkout has the build script")
def test_without_a_compiler_the_build_goes_on(tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "src"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, tmp_path / name)
    env = os.environ | {"CC": "no-such-compiler"}
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", "built", "--build-temp", "temporary"]
    run = limited.run(command, cwd=tmp_path, env=env)
    assert run.returncode == 0, run.stderr
    assert "no-such-compiler" in run.stdout + run.stderr
    assert not list(tmp_path.glob("built/**/*.so"))


def kernels_in(call, *given):
    """What a compiler puts into its graph for a call: the names of the operators, forward and backward."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    names = []

    def seen(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    got = torch.compile(call, fullgraph=True, backend=aot_autograd(fw_compiler=seen, bw_compiler=seen))(*given)
    if got[0].requires_grad:
        torch.autograd.grad(
            [y for y in got if y is not None],
            [x for x in given[:2] if x is not None],
            [torch.ones_like(y) for y in got if y is not None],
        )
    return got, [n for n in names if n == "phasor.rotate.default"], names


@needs_native
@pytest.mark.parametrize(
    "dtype, learns",
    [
        (torch.float32, True),
        (torch.bfloat16, False),
        (torch.float16, True),
        *(
            pytest.param(dtype, learns, marks=pytest.mark.slow)
            for dtype, learns in ((torch.float32, False), (torch.bfloat16, True), (torch.float16, False))
        ),
    ],
)
def test_compiled_code_keeps_the_plain_expression_except_in_half_precision(dtype, learns):
    """A compiler fuses the expression with its neighbours; in half precision its own code takes 3 to 6 copies."""
    tells = torch.compile(lambda x: x + int(torch.compiler.is_exporting()), backend="eager")
    if tells(torch.zeros(1)) and dtype != torch.float32:
        pytest.skip("this torch (2.10) says of compiled code that it is exported, which keeps the plain expression")
    q, k = (torch.randn(1, h, 300, 64, dtype=dtype, requires_grad=learns) for h in (32, 8))
    for tokens, few in ((300, False), (5, True)):
        rotation = Rotation.at(RotarySpec(head_dim=64), torch.arange(tokens))
        pair = [x[:, :, :tokens].detach().requires_grad_(learns) for x in (q, k)]
        got, ours, names = kernels_in(lambda q, k, r: apply_rotary_qk(q, k, r), *pair, rotation)
        expected = apply_rotary_qk(*pair, rotation)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        half = dtype != torch.float32 and not few
        assert len(ours) == (2 * (1 + learns) if half else 0)
        assert half or any("mul" in name for name in names)


@needs_native
def test_compiled_transforms_of_half_precision_keep_the_plain_expression():
    """The operator has no forward derivative and no batch rule: a tangent would be lost without a word."""
    rotation, x = Rotation.at(RotarySpec(head_dim=64), torch.arange(300)), torch.randn(2, 1, 32, 300, 64).bfloat16()

    def turn(y):
        return apply_rotary(y, rotation)

    def dual(y):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(turn(forward_ad.make_dual(y, y.flip(0)))).tangent

    calls = {
        "vmap": torch.func.vmap(turn),
        "jvp": lambda y: torch.func.jvp(turn, (y,), (y.flip(0),))[1],
        "grad": torch.func.grad(lambda y: turn(y).sum()),
        "dual": dual,
    }
    for name, call in calls.items():
        torch.compiler.reset()
        got = torch.compile(call, fullgraph=True, backend="eager")(x)
        assert torch.equal(got, call(x)), name


@needs_native
def test_the_operator_is_a_proper_one():
    x = torch.randn(1, 2, 5, 8, dtype=torch.bfloat16, requires_grad=True)
    rotation = Rotation.at(RotarySpec(head_dim=8), POSITIONS)
    given = (x, rotation.cos, rotation.sin, [8, 8, 0, 0, 1, 0, 0], "bhsd", False)
    assert set(torch.library.opcheck(torch.ops.phasor.rotate.default, given).values()) == {"SUCCESS"}
