"""The kernel in Triton has the bits of the reference, for every combination of factors."""

import random

import pytest
import torch

from core.conftest import FACTORS, SEQ_LEN, SPECS, anywhere, assert_refused, at
from phasor import Layout, RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary.axes import Axial, OneAxis, Sections

from .conftest import DEVICE, INTERPRETED

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMATS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}  # from [B, H, S, D]

pytestmark = pytest.mark.usefixtures("few_programs")


def same(got, expected):
    for a, b in zip(got, expected, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        assert (a.dtype, a.shape, a.is_contiguous()) == (b.dtype, b.shape, True)
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def both(call):
    """Results of the kernel, and of the reference."""
    same(call("triton"), call("reference"))


def there_and_back(call, *inputs):
    """Results, and gradients of the inputs, for gradients of another order in memory."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    results = call(*inputs)
    generator = torch.Generator().manual_seed(1)
    ups = [torch.randn(y.shape, generator=generator).to(y).mT.contiguous().mT for y in results]
    return [y.detach() for y in results] + [g.contiguous() for g in torch.autograd.grad(results, inputs, ups)]


EVERY = {n: s for n, s in SPECS.items() if n.startswith(("yarn-", "plain-one"))} | FACTORS


# The interpreter takes a third of a second for each: of `SPECS` it has every axes scheme, place and pair layout once.
LATER = {name for i, name in enumerate(EVERY) if INTERPRETED and name not in FACTORS and i % 5 != 1}


@pytest.mark.parametrize(
    "number, name",
    [pytest.param(i, n, id=n, marks=[pytest.mark.slow] if n in LATER else []) for i, n in enumerate(EVERY)],
)
def test_every_combination_of_factors(number, name):
    spec, dtype = EVERY[name], DTYPES[number % 3]
    tensor_format = list(FORMATS)[number // 3 % 3]
    q, k = (torch.randn(2, h, 5, spec.head_dim, device=DEVICE).to(dtype) for h in (2, 1))
    q, k = (x.permute(FORMATS[tensor_format]) for x in (q, k))
    positions = anywhere(spec, -(2**31), 2**31, 5, *((2,) if number % 2 else ())).to(DEVICE)
    rotation, about = at(spec, positions, dtype), {"tensor_format": tensor_format}
    if rotation.cos.dtype == torch.float64:
        with pytest.raises(ValueError, match="these tables are float64"):
            apply_rotary(q, rotation, kernel="triton", **about)
    elif number % 4 and not spec.learned:
        about["seq_len"] = SEQ_LEN
        both(lambda n: there_and_back(lambda q, k: rotate(q, k, positions, spec, kernel=n, **about), q, k))
    else:
        both(lambda n: there_and_back(lambda q, k: apply_rotary_qk(q, k, rotation, kernel=n, **about), q, k))


def a_case(rng):
    """A spec, positions, and q and k of any order of axes, strides and dtype."""
    width = rng.choice([2, 4, 6, 10, 16, 34, 64, 80, 96, 128, 192, 256])
    turned = rng.choice([r for r in (2, 4, 16, 32, 64, 80, width) if r <= width])
    pairs, interleaved = turned // 2, rng.random() < 0.5
    axes = [OneAxis()]
    if pairs > 1:
        axes += [Axial((pairs - pairs // 2, pairs // 2)), Sections((pairs // 2, pairs - pairs // 2))]
    spec = RotarySpec(
        head_dim=width, rotary_dim=turned, trailing=turned < width and rng.random() < 0.5, interleaved=interleaved,
        permuted=interleaved and rng.random() < 0.3, reverse=rng.random() < 0.2, base=rng.choice([1e2, 1e4, 5e5]),
        axes=rng.choice(axes), blocks=2 if not interleaved and pairs % 2 == 0 and rng.random() < 0.5 else 1,
        angles=rng.choice(["exact", "exact", "float32"]), tables=rng.choice(["activation", "promoted", "rounded"]),
    )  # fmt: skip
    batch, seq = rng.choice([1, 2, 3]), rng.choice([1, 2, 5, 17])
    tensor_format = rng.choice(["bhsd", "bshd", "sbhd", "thd"])
    many = tensor_format in ("bhsd", "bshd") and rng.random() < 0.4
    leading = () if tensor_format == "thd" else rng.choice([(), (batch,), (1,)])
    axes = () if spec.axes.count == 1 else (spec.axes.count,)
    positions = torch.randint(-(2**31), 2**31 - 1, (*axes, *leading, seq), dtype=rng.choice([torch.int64, torch.int32]))
    dtype = rng.choice(DTYPES)

    def tensor(heads):
        shape = {"bhsd": (batch, heads, seq), "bshd": (batch, seq, heads), "sbhd": (seq, batch, heads)}
        shape = (2, *shape[tensor_format]) if many else shape.get(tensor_format, (seq, heads))
        kind = rng.choice(["rows", "wide", "strided", "turned", "expanded", "batches exchanged"])
        if kind == "strided":
            return torch.randn(*shape, 3 * width)[..., ::3].to(dtype)
        if kind == "turned":
            return torch.randn(*shape[:-1], width, shape[-1]).to(dtype).mT
        if kind == "expanded":
            return torch.randn(*shape[:-1], 1, width).to(dtype).expand(*shape, width)
        if kind == "batches exchanged" and many:
            return torch.randn(shape[1], shape[0], *shape[2:], width).to(dtype).transpose(0, 1)
        extra = 0 if kind == "rows" else rng.choice([1, 3, 16])
        return torch.randn(*shape, width + 2 * extra).to(dtype)[..., extra : extra + width]

    q, k = tensor(rng.choice([1, 2, 9])), tensor(rng.choice([1, 3]))
    return spec, positions.to(DEVICE), q.to(DEVICE), k.to(DEVICE), tensor_format


def check(rng):
    """Phases and tables, new results, gradients, given results and in place."""
    spec, positions, q, k, tensor_format = a_case(rng)
    rotation, about = Rotation.at(spec, positions, dtype=q.dtype), {"tensor_format": tensor_format}
    both(lambda n: apply_rotary_qk(q, k, rotation, kernel=n, **about))
    both(lambda n: there_and_back(lambda q, k: rotate(q, k, positions, spec, kernel=n, **about), q, k))
    expected = apply_rotary(q, rotation, kernel="reference", **about)
    out = torch.zeros(*q.shape[:-1], 2 * q.shape[-1], dtype=expected.dtype, device=DEVICE)[..., ::2]
    assert torch.equal(apply_rotary(q, rotation, kernel="triton", out=out, **about), expected)
    if expected.dtype == q.dtype:
        here = q.clone(memory_format=torch.contiguous_format)
        assert torch.equal(apply_rotary(here, rotation, kernel="triton", out=here, **about), expected)


@pytest.mark.parametrize("seed", [2, *(pytest.param(s, marks=[pytest.mark.slow] * INTERPRETED) for s in (0, 1, 3, 4))])
def test_any_order_strides_and_dtype(seed):
    check(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_any_order_strides_and_dtype_many_times(seed):
    check(random.Random(seed))


@pytest.mark.parametrize(
    "dtype, tensor_format",
    [
        pytest.param(dtype, f, marks=[pytest.mark.slow] * (INTERPRETED and i % 2 != j))
        for i, dtype in enumerate(DTYPES)
        for j, f in enumerate(("bhsd", "bshd"))
    ],
)
def test_angles_of_its_own_for_every_head(dtype, tensor_format):
    q, k = (torch.randn(2, 3, 5, 40, device=DEVICE).to(dtype) for _ in range(2))
    q, k = (x.permute(FORMATS[tensor_format]) for x in (q, k))
    rotation = Rotation.from_angles(torch.randn(2, 3, 5, 20, device=DEVICE), per_head=True)
    about = {"tensor_format": tensor_format}
    both(lambda n: there_and_back(lambda q, k: apply_rotary_qk(q, k, rotation, kernel=n, **about), q, k))


def test_the_programs_of_a_gpu(monkeypatch):
    """Tiles of the size that a GPU gets, the last one not full; groups of heads of which the last ones are not full."""
    monkeypatch.setattr("phasor.rotary.kernels.triton.launch.TILE", 1024)
    q, k = torch.randn(2, 11, 19, 128, device=DEVICE), torch.randn(2, 3, 19, 128, device=DEVICE)
    positions = torch.randint(0, 2**31, (2, 19), device=DEVICE)
    spec = RotarySpec(head_dim=128, rotary_dim=96)
    both(lambda n: rotate(q, k, positions, spec, kernel=n))


@pytest.mark.parametrize("enough, shape", [(14, (2, 1)), (14, (1, 5)), (4, (2, 3)), (4, (3, 1))])
def test_the_programs_of_few_tokens(monkeypatch, enough, shape):
    """One row and one head each, or some rows; one axis of rows or two; positions of 32 and of 64 bits."""
    monkeypatch.setattr("phasor.rotary.kernels.triton.launch.ENOUGH", enough)
    batch, tokens = shape
    q, k = (torch.randn(batch, h, tokens, 24, device=DEVICE) for h in (3, 2))
    spec = RotarySpec(head_dim=24, rotary_dim=16)
    for positions in (torch.randint(0, 2**31, (batch, tokens)), torch.randint(0, 2**31, (tokens,), dtype=torch.int32)):
        at = positions.to(DEVICE)
        rotation = Rotation.at(spec, at)
        both(lambda n, at=at: rotate(q, k, at, spec, kernel=n))
        both(lambda n, r=rotation: apply_rotary_qk(q, k, r, kernel=n))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, of which the interpreter is made
@pytest.mark.parametrize("dtype", DTYPES)
def test_not_a_number_stays_none_and_small_ones_keep_their_bits(dtype):
    worst = torch.tensor([0x7FFFFFFF, -1, 0x7F800001, 0x7F800000], dtype=torch.int32).view(torch.float32)
    cos, sin = torch.randn(4, 32), torch.randn(4, 32)
    cos[:, 0], sin[:, 17] = worst, worst
    x = torch.randn(1, 2, 4, 64).to(dtype)
    x[0, 1, 2, 3], x[0, 0, 1, 5], x[0, 0, 0, 9] = float("nan"), float("inf"), torch.finfo(dtype).max
    x[0, 1, 1] = (torch.randn(64, dtype=torch.float64) * torch.finfo(dtype).tiny).to(dtype)
    rotation = Rotation(cos=cos, sin=sin, layout=Layout(head_dim=64)).to(DEVICE)
    both(lambda n: (apply_rotary(x.to(DEVICE), rotation, kernel=n),))


def test_one_gradient_of_two_and_gradients_of_gradients():
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.arange(5, device=DEVICE))
    q, k = (torch.randn(1, 2, 5, 8, device=DEVICE, requires_grad=True) for _ in range(2))
    for first in (True, False):
        y, z = apply_rotary_qk(q, k, rotation, kernel="triton")
        dq, dk = torch.autograd.grad((y if first else z).square().sum(), (q, k), allow_unused=True)
        assert (dq is None, dk is None) == (not first, first)
        torch.testing.assert_close(dq if first else dk, 2 * (q if first else k))
    seconds = []
    for name in ("triton", "reference"):
        (d,) = torch.autograd.grad((apply_rotary(q, rotation, kernel=name) ** 3).sum(), q, create_graph=True)
        seconds += torch.autograd.grad(d.sum(), q)
    torch.testing.assert_close(*seconds)
    y, z = apply_rotary_qk(q, k.detach(), rotation, kernel="triton")
    assert y.requires_grad and not z.requires_grad
    batch = torch.eye(80, device=DEVICE).view(80, *y.shape)
    (rows,) = torch.autograd.grad(y, q, batch, is_grads_batched=True)
    torch.testing.assert_close(rows, apply_rotary(batch, rotation.inverse(), kernel="reference"))


def test_lazy_signs():
    """Those of tables by `conj().imag`, of norm weights and of outputs: the memory holds the other sign."""
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.arange(5, device=DEVICE))
    turns = torch.complex(rotation.cos, -rotation.sin).conj()
    lazy = rotation.replace(cos=turns.real, sin=turns.imag)
    q, weight = torch.randn(1, 2, 5, 8, device=DEVICE), torch.randn(8, device=DEVICE)
    expected = apply_rotary(q, rotation, kernel="reference")
    assert torch.equal(apply_rotary(q, lazy, kernel="triton"), expected)
    out = torch.zeros(1, 2, 5, 8, dtype=torch.complex64, device=DEVICE).conj().imag
    assert torch.equal(apply_rotary(q, lazy, kernel="triton", out=out), expected)
    got, expected = (
        apply_qk_norm_rotary(q, None, rotation, w, None, kernel="triton")[0]
        for w in (torch.complex(weight, -weight).conj().imag, weight)
    )
    assert torch.equal(got, expected)


X, WIDE = torch.randn(1, 2, 5, 8), torch.randn(1, 1, 5, 4096)
ROTATION = Rotation.at(RotarySpec(head_dim=8), torch.arange(5))
CANNOT = {
    "float64": (lambda x, r: apply_rotary(x.double(), r, kernel="triton"), "got torch.float64"),
    "learned": (
        lambda x, r: apply_rotary(x, r.replace(cos=r.cos.clone().requires_grad_()), kernel="triton"),
        "do not reach the tables",
    ),
    "second": (lambda x, r: apply_rotary(x, r.replace(second=(r.cos, r.sin)), kernel="triton"), "second ones"),
    "vmap": (
        lambda x, r: torch.func.vmap(lambda y: apply_rotary(y, r, kernel="triton"))(x),
        "a function transform is at work",
    ),
    "wide": (
        lambda x, r: rotate(WIDE.to(x), None, torch.arange(5).to(x.device), RotarySpec(head_dim=4096), kernel="triton"),
        "it takes at most 1024 pairs, got 2048",
    ),
}


@pytest.mark.parametrize("call, reason", CANNOT.values(), ids=CANNOT)
def test_what_it_cannot_turn_it_names(call, reason):
    assert_refused(lambda: call(X.to(DEVICE), ROTATION.to(DEVICE)), ["kernel='triton' cannot rotate these: ", reason])


def test_a_mode_sees_the_plain_operations():
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert_refused(
            lambda: apply_rotary(X.to(DEVICE), ROTATION.to(DEVICE), kernel="triton"),
            ["kernel='triton'", "a mode of torch"],
        )
