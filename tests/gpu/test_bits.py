"""The law of kernels for the one in Triton, on small calls; and what of it no bits show."""

import pytest
import torch

from calls import FLOATS, TRITON, Call, built, check
from core.conftest import FACTORS, assert_refused, at
from core.test_law import of_worst_numbers
from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qk, rotate

from .conftest import DEVICE

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

# numpy warns, of which the interpreter is made, and torch of tensors that it calls prototypes
pytestmark = [pytest.mark.usefixtures("few_programs"), pytest.mark.filterwarnings("ignore")]


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


def follows_the_law(build):
    assert not (wrong := check(build, TRITON)), wrong


# The interpreter takes a third of a second for each.
@pytest.mark.parametrize("part", [0, *(pytest.param(p, marks=pytest.mark.slow) for p in range(1, 40))])
@pytest.mark.parametrize("kind, count", {"tables": 7, "phases": 7, "norm": 7, "cache": 5, "latent": 3}.items())
def test_good_calls(kind, count, part):
    for number in range(count * part, count * part + count):
        follows_the_law(lambda n=number: built(f"good {n}", kind, bad=False, small=True, device=DEVICE))


@pytest.mark.parametrize("part", [0, *(pytest.param(p, marks=pytest.mark.slow) for p in range(1, 20))])
def test_calls_of_every_kind(part):
    for number in range(30 * part, 30 * part + 30):
        follows_the_law(lambda n=number: built(f"1:{n}", small=True, device=DEVICE))


@pytest.mark.parametrize("lead", [(2, 0), (0, 2), (2, 0, 0, 3)])
@pytest.mark.parametrize("heads, tokens", [(3, 5), (0, 5), (3, 0)])
def test_no_numbers_in_several_batch_axes(lead, heads, tokens):
    """Their strides fit no single axis."""
    spec, x = RotarySpec(head_dim=8), torch.randn(*lead, heads, tokens, 8, device=DEVICE)
    positions = torch.arange(tokens, device=DEVICE)
    both(lambda n: rotate(x, x.clone(), positions, spec, kernel=n))
    both(lambda n: apply_rotary_qk(x, x.clone(), Rotation.at(spec, positions), kernel=n, out=(x.clone(), x.clone())))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_worst_numbers(dtype):
    follows_the_law(lambda: of_worst_numbers(dtype, DEVICE))


@pytest.mark.parametrize("name", ["permuted-last-yarn", "blocks-last-reverse", "reverse"])
def test_in_place(name):
    """Threads of one program read what others have written, where pairs are written elsewhere than they were read."""
    spec = FACTORS[name]

    def build():
        x = torch.randn(2, 3, 5, spec.head_dim, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        return Call(apply_rotary, [x, at(spec, torch.arange(5), x.dtype).to(DEVICE)], {"out": x}, [x])

    follows_the_law(build)


def test_the_programs_of_a_gpu(monkeypatch):
    """Tiles of the size that a GPU gets, the last one not full; groups of heads of which the last ones are not full."""
    monkeypatch.setattr("phasor.rotary.kernels.triton.launch.TILE", 1024)
    q, k = torch.randn(2, 11, 19, 128, device=DEVICE), torch.randn(2, 3, 19, 128, device=DEVICE)
    positions = torch.randint(0, 2**31, (2, 19), device=DEVICE)
    spec = RotarySpec(head_dim=128, rotary_dim=96)
    both(lambda n: rotate(q, k, positions, spec, kernel=n))


@pytest.mark.parametrize("enough, shape", [(14, (2, 1)), (4, (3, 1))])
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
    x, rotation = X.to(DEVICE), ROTATION.to(DEVICE)
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert_refused(lambda: apply_rotary(x, rotation, kernel="triton"), ["kernel='triton'", "a mode of torch"])
