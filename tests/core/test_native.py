"""The kernel in C: the bits of the reference for every set of instructions, and what it leaves to others."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad

import limited
from phasor import Layout, RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary import kernels
from phasor.rotary.axes import Axial, OneAxis, Sections
from phasor.rotary.kernels.native import autograd, extension, kernel

from .conftest import needs_native

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which(os.environ.get("CC", "cc"))


@pytest.mark.skipif(COMPILER is None, reason="without a C compiler the package has no native kernel")
def test_where_there_is_a_compiler_there_is_the_kernel():
    assert not kernel.MISSING
    assert "auto" in kernel.OPEN or kernels.base.CHOSEN not in ("auto", "native")


AXES = [
    lambda pairs: OneAxis(),
    lambda pairs: Axial((pairs - pairs // 2, pairs // 2)),
    lambda pairs: Sections((pairs // 2, pairs - pairs // 2)),
]


def a_case(rng):
    """A spec, positions, and q and k of any order of axes, strides and dtype."""
    width = rng.choice([2, 4, 6, 10, 16, 34, 64, 80, 96, 128, 192, 256])
    turned = rng.choice([r for r in (2, 4, 16, 32, 64, 80, width) if r <= width])
    pairs, interleaved = turned // 2, rng.random() < 0.5
    spec = RotarySpec(
        head_dim=width, rotary_dim=turned, trailing=turned < width and rng.random() < 0.5, interleaved=interleaved,
        permuted=interleaved and rng.random() < 0.3, base=rng.choice([1e2, 1e4, 5e5]), reverse=rng.random() < 0.2,
        blocks=1 if interleaved else rng.choice([b for b in (1, 1, 2, 5) if pairs % b == 0]),
        axes=rng.choice(AXES)(pairs) if pairs > 1 else OneAxis(),
        angles=rng.choice(["exact", "exact", "float32"]), tables=rng.choice(["activation", "float32", "rounded"]),
    )  # fmt: skip
    batch, seq = rng.choice([1, 2, 3]), rng.choice([1, 2, 5, 17, 33])
    tensor_format = rng.choice(["bhsd", "bshd", "sbhd", "thd"])
    per_batch = () if tensor_format == "thd" else rng.choice([(), (), (batch,), (1,)])
    axes = () if spec.axes.count == 1 else (spec.axes.count,)
    positions = torch.randint(
        -(2**31), 2**31 - 1, (*axes, *per_batch, seq), dtype=rng.choice([torch.int64, torch.int32])
    )
    dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])

    def tensor(heads):
        shape = {
            "bhsd": (batch, heads, seq),
            "bshd": (batch, seq, heads),
            "sbhd": (seq, batch, heads),
            "thd": (seq, heads),
        }
        shape = shape[tensor_format]
        if tensor_format in ("bhsd", "bshd") and rng.random() < 0.2:
            shape = (2, *shape)
        kind = rng.choice(["rows", "wide", "strided", "turned", "expanded"])
        if kind == "strided":
            return torch.randn(*shape, 3 * width).to(dtype)[..., ::3]
        if kind == "turned":
            return torch.randn(*shape[:-1], width, shape[-1]).to(dtype).mT
        if kind == "expanded":
            return torch.randn(*shape[:-1], 1, width).to(dtype).expand(*shape, width)
        extra = 0 if kind == "rows" else rng.choice([1, 3, 16])
        return torch.randn(*shape, width + 2 * extra).to(dtype)[..., extra : extra + width]

    return spec, positions, tensor(rng.choice([1, 2, 5])), tensor(rng.choice([1, 3])), tensor_format


@pytest.mark.parametrize("seed", range(6))
def test_the_bits_of_the_reference(seed, instructions):
    """Tables and phases, new results, gradients, given results and in place."""
    rng = random.Random(seed)
    for _ in range(40):
        spec, positions, q, k, tensor_format = a_case(rng)
        rotation = Rotation.at(spec, positions, dtype=q.dtype)
        if q.shape[:-3] != k.shape[:-3]:
            k = None
        given = (q, k, rotation)
        expected = apply_rotary_qk(*given, tensor_format=tensor_format, kernel="reference")
        named = apply_rotary_qk(*given, tensor_format=tensor_format, kernel="native")
        phases = rotate(q, k, positions, spec, tensor_format=tensor_format, kernel="native")
        quick = apply_rotary_qk(*given, tensor_format=tensor_format)
        for got in (named, phases, quick):
            for a, b in zip(got, expected, strict=True):
                assert (a is None and b is None) or (torch.equal(a, b) and a.is_contiguous() and a.dtype == b.dtype)
        out = torch.empty(*q.shape[:-1], 2 * q.shape[-1], dtype=q.dtype)[..., ::2]
        assert torch.equal(
            apply_rotary(q, rotation, tensor_format=tensor_format, kernel="native", out=out), expected[0]
        )
        here = q.clone(memory_format=torch.contiguous_format)
        assert torch.equal(
            apply_rotary(here, rotation, tensor_format=tensor_format, kernel="native", out=here), expected[0]
        )
        x = q.detach().requires_grad_()
        up = torch.randn_like(expected[0]).mT.contiguous().mT
        back = [
            torch.autograd.grad(apply_rotary(x, rotation, tensor_format=tensor_format, kernel=name), x, up)[0]
            for name in ("native", "reference")
        ]
        assert torch.equal(*back)
        if spec.angles == "exact":
            y = rotate(x, None, positions, spec, tensor_format=tensor_format)[0]
            assert torch.equal(torch.autograd.grad(y, x, up)[0], back[1])


@needs_native
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", kernel.DTYPES)
def test_angles_of_its_own_for_every_head(dtype, interleaved, instructions):
    q, k = torch.randn(2, 3, 19, 40).to(dtype), torch.randn(2, 3, 19, 40).to(dtype)
    rotation = Rotation.from_angles(torch.randn(2, 3, 19, 20), per_head=True, interleaved=interleaved)
    for tensor_format in ("bhsd", "bshd"):
        pair = (q, k) if tensor_format == "bhsd" else (q.transpose(1, 2), k.transpose(1, 2))
        expected = apply_rotary_qk(*pair, rotation, tensor_format=tensor_format, kernel="reference")
        got = apply_rotary_qk(*pair, rotation, tensor_format=tensor_format, kernel="native")
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@needs_native
@pytest.mark.parametrize("dtype", kernel.DTYPES)
def test_large_ones_too(dtype, instructions):
    """Past the sizes at which outputs get large pages, go past the cache, and are shared among threads."""
    q, k, positions = (
        torch.randn(2, 16, 1031, 128).to(dtype),
        torch.randn(2, 4, 1031, 128).to(dtype),
        torch.arange(1031),
    )
    for spec in (
        RotarySpec(head_dim=128),
        RotarySpec(head_dim=128, interleaved=True),
        RotarySpec(head_dim=128, rotary_dim=64),
    ):
        expected = rotate(q, k, positions, spec, kernel="reference")
        before = torch.get_num_threads()
        for threads in (1, 2):
            torch.set_num_threads(threads)
            got = rotate(q, k, positions, spec)
            torch.set_num_threads(before)
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@needs_native
@pytest.mark.parametrize("dtype", kernel.DTYPES)
def test_not_a_number_stays_none(dtype, instructions):
    """Infinities and NaN of any payload, in the activations and in the tables: none becomes a number."""
    worst = torch.tensor([0x7FFFFFFF, -1, 0x7F800001, 0x7F800000], dtype=torch.int32).view(torch.float32)
    cos, sin = torch.randn(4, 32), torch.randn(4, 32)
    cos[:, 0], sin[:, 17] = worst, worst
    x = torch.randn(1, 2, 4, 64).to(dtype)
    x[0, 1, 2, 3], x[0, 0, 1, 5], x[0, 0, 0, 9] = float("nan"), float("inf"), torch.finfo(dtype).max
    rotation = Rotation(cos=cos, sin=sin, layout=Layout(head_dim=64))
    got, expected = (apply_rotary(x, rotation, kernel=name) for name in ("native", "reference"))
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@needs_native
def test_subnormal_numbers_keep_their_bits(instructions):
    for dtype in kernel.DTYPES:
        tiny = torch.finfo(dtype).tiny
        x = (torch.randn(1, 2, 40, 64, dtype=torch.float64) * tiny).to(dtype)
        rotation = Rotation.at(RotarySpec(head_dim=64), torch.arange(40))
        for tables in (rotation, rotation.replace(cos=rotation.cos.to(dtype), sin=rotation.sin.to(dtype))):
            got, expected = (apply_rotary(x, tables, kernel=name) for name in ("native", "reference"))
            assert torch.equal(got, expected)


def lazy_zeros():
    """A gradient that has no memory."""
    return torch.ops.aten._efficientzerotensor((1, 2, 5, 8))


SPEC = RotarySpec(head_dim=8)
POSITIONS = torch.arange(5)
HOSTILE = {
    "the lazy sign of a conjugate": lambda: torch.randn(1, 2, 5, 8, dtype=torch.complex64).conj().imag,
    "zeros without memory": lazy_zeros,
    "one row for all": lambda: torch.randn(1, 1, 1, 8).expand(1, 2, 5, 8),
    "one number for all": lambda: torch.randn(1).expand(1, 2, 5, 8),
    "no tokens": lambda: torch.randn(1, 2, 0, 8),
    "no heads": lambda: torch.randn(1, 0, 5, 8),
    "no batch": lambda: torch.randn(0, 2, 5, 8),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(1, 2, 5, 8), requires_grad=False),
    "no batch axis": lambda: torch.randn(2, 5, 8),
    "many batch axes": lambda: torch.randn(1, 2, 1, 2, 1, 2, 5, 8),
    "float64": lambda: torch.randn(1, 2, 5, 8, dtype=torch.float64),
    "from numpy": lambda: torch.from_numpy(torch.randn(1, 2, 5, 8).numpy()),
    "an odd address": lambda: torch.randn(81)[1:].view(1, 2, 5, 8),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_tensors_that_are_not_what_they_seem(make):
    x = make()
    positions = torch.arange(x.shape[-2])
    expected = apply_rotary(x, Rotation.at(SPEC, positions, dtype=x.dtype), kernel="reference")
    assert torch.equal(apply_rotary(x, Rotation.at(SPEC, positions, dtype=x.dtype)), expected)
    assert torch.equal(rotate(x, None, positions, SPEC)[0], expected)


REFUSED = {
    "meta": (lambda x: x.to("meta"), "same device"),
    "complex": (lambda x: x.to(torch.complex64), "must be float64, float32"),
    "integer": (lambda x: x.long(), "must be float64, float32"),
    "sparse": (lambda x: x.to_sparse(), "dense tensor"),
    "too short": (lambda x: x[:, :, :4], "4 tokens"),
    "too wide": (lambda x: torch.cat((x, x), -1), "8 channels"),
    "a list": (lambda x: x.tolist(), "must be a torch tensor"),
    "None": (lambda x: None, "must be a torch tensor"),
    "two axes": (lambda x: x[0, 0], "must be [..., heads, seq, head_dim]"),
}


@pytest.mark.parametrize("change, words", REFUSED.values(), ids=REFUSED)
def test_the_short_way_words_no_errors(change, words):
    x, rotation = torch.randn(1, 2, 5, 8), Rotation.at(SPEC, POSITIONS)
    for call in (
        lambda: apply_rotary(change(x), rotation),
        lambda: apply_rotary_qk(x, change(x), rotation) if change(x) is not None else apply_rotary(None, rotation),
        lambda: rotate(change(x), None, POSITIONS, SPEC),
    ):
        with pytest.raises(ValueError, match=words.replace("[", r"\[").replace("...", r"\.\.\.")):
            call()
    assert kernel.apply(x, x, rotation, 7, None, None) is None
    assert kernel.apply(x, x, None, "bhsd", None, None) is None
    assert kernel.rotate(x, x, POSITIONS, SPEC, True, "bhsd", None, None, None) is None
    assert kernel.rotate(x, x, POSITIONS.double(), SPEC, None, "bhsd", None, None, None) is None


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


def test_a_frozen_tensor_has_no_gradient():
    q, k = torch.randn(1, 2, 5, 8, requires_grad=True), torch.randn(1, 2, 5, 8)
    rotation = Rotation.at(SPEC, POSITIONS)
    for a, b in ((q, k), (k, q)):
        y, z = apply_rotary_qk(a, b, rotation)
        assert (y.requires_grad, z.requires_grad) == (a.requires_grad, b.requires_grad)
        y, z = rotate(a, b, POSITIONS, SPEC)
        assert (y.requires_grad, z.requires_grad) == (a.requires_grad, b.requires_grad)


def test_one_result_unused():
    q, k = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(2))
    rotation = Rotation.at(SPEC, POSITIONS)
    for first in (True, False):
        y, z = apply_rotary_qk(q, k, rotation)
        dq, dk = torch.autograd.grad((y if first else z).square().sum(), (q, k), allow_unused=True)
        assert (dq is None, dk is None) == (not first, first)
        torch.testing.assert_close(dq if first else dk, 2 * (q if first else k))


def test_gradients_of_gradients_and_batches_of_them():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    rotation = Rotation.at(SPEC, POSITIONS)
    for call in (lambda x: apply_rotary(x, rotation), lambda x: rotate(x, None, POSITIONS, SPEC)[0]):
        y = call(q)
        (d,) = torch.autograd.grad((y**3).sum(), q, create_graph=True)
        (dd,) = torch.autograd.grad(d.sum(), q)
        x = q.detach().requires_grad_()
        z = apply_rotary(x, rotation, kernel="reference")
        (e,) = torch.autograd.grad((z**3).sum(), x, create_graph=True)
        (ee,) = torch.autograd.grad(e.sum(), x)
        torch.testing.assert_close(dd, ee)
        rows = torch.randn(3, *y.shape)
        batched = torch.autograd.grad(call(q), q, rows, is_grads_batched=True)[0]
        one_by_one = torch.stack([torch.autograd.grad(call(q), q, row)[0] for row in rows])
        torch.testing.assert_close(batched, one_by_one)


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


def test_checkpointed_and_under_autocast():
    from torch.utils.checkpoint import checkpoint

    q, rotation = torch.randn(1, 2, 5, 8, requires_grad=True), Rotation.at(SPEC, POSITIONS)
    y = checkpoint(lambda x: apply_rotary(x, rotation), q, use_reentrant=False)
    (dq,) = torch.autograd.grad(y, q, torch.ones_like(y))
    assert torch.equal(dq, apply_rotary(torch.ones_like(q), rotation.transpose()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(apply_rotary(q, rotation), apply_rotary(q, rotation, kernel="reference"))


def test_tables_of_inference_mode_are_refused_where_a_gradient_is_needed():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    with torch.inference_mode():
        rotation = Rotation.at(SPEC, POSITIONS)
    with pytest.raises(ValueError, match="inference_mode"):
        apply_rotary(q, rotation)


PROGRAM = """
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


def test_without_the_extension_the_others_do_its_work():
    run = limited.run([sys.executable, "-c", PROGRAM], check=True)
    said = run.stdout.splitlines()
    why = (
        "it was built, and cannot be loaded here (import of" if extension.MODULE else "it was not built when phasor was"
    )
    assert said[0].startswith(f"kernel='native' cannot rotate these: {why}")
    assert said[1].startswith(f"not here: {why}")


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
def test_gradients_of_compiled_half_precision():
    q = torch.randn(2, 16, 300, 64, dtype=torch.bfloat16, requires_grad=True)
    rotation = Rotation.at(RotarySpec(head_dim=64, interleaved=True), torch.arange(300))
    up = torch.randn_like(q)
    torch.compiler.reset()
    compiled = torch.compile(lambda x, r: apply_rotary(x, r), fullgraph=True, backend="aot_eager")
    for x in (q, q.transpose(1, 2).contiguous().transpose(1, 2).detach().requires_grad_()):
        (got,) = torch.autograd.grad(compiled(x, rotation), x, up)
        (expected,) = torch.autograd.grad(apply_rotary(x, rotation, kernel="reference"), x, up)
        assert torch.equal(got, expected)


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


def test_exported_programs_hold_the_plain_expression():
    class Turns(torch.nn.Module):
        def forward(self, x):
            return rotate(x, None, torch.arange(x.shape[-2]), RotarySpec(head_dim=64))[0]

    x = torch.randn(1, 32, 300, 64, dtype=torch.bfloat16)
    program = torch.export.export(Turns(), (x,))
    assert not [n for n in program.graph.nodes if "phasor" in str(n.target)]
    assert torch.equal(program.module()(x), Turns()(x))


@needs_native
def test_the_operator_is_a_proper_one():
    x = torch.randn(1, 2, 5, 8, dtype=torch.bfloat16, requires_grad=True)
    rotation = Rotation.at(RotarySpec(head_dim=8), POSITIONS)
    given = (x, rotation.cos, rotation.sin, [8, 8, 0, 0, 1, 0, 0], "bhsd", False)
    assert set(torch.library.opcheck(torch.ops.phasor.rotate.default, given).values()) == {"SUCCESS"}
