"""The operators of compiled code are the Triton kernel: its bits, its way back, and what each keeps from a graph."""

import pytest
import torch

from core.conftest import assert_within
from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, rotate
from phasor.rotary.axes import OneAxis, Sections
from phasor.rotary.kernels.triton import autograd, operator

from .conftest import DEVICE
from .test_bits import DTYPES, same, there_and_back

pytestmark = pytest.mark.usefixtures("few_programs")
FORMATS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}  # from [B, H, S, D]
SPEC = RotarySpec(head_dim=16, axes=Sections((3, 5)))


@pytest.fixture
def as_if_many(monkeypatch):
    monkeypatch.setattr(operator, "FEW", 0)
    torch.compiler.reset()


def qk(spec, dtype, tensor_format="bhsd"):
    return [
        torch.randn(2, h, 5, spec.head_dim, device=DEVICE).to(dtype).permute(FORMATS[tensor_format]) for h in (4, 2)
    ]


def compiled(call, *given):
    """Results and gradients of compiled code, for gradients of another order, and phasor's nodes in its graphs."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    nodes = []

    def seen(graph, _):
        nodes.extend(str(n.target) for n in graph.graph.nodes if str(n.target).startswith("phasor."))
        return make_boxed_func(graph.forward)

    made = torch.compile(call, fullgraph=True, backend=aot_autograd(fw_compiler=seen, bw_compiler=seen))
    return there_and_back(made, *given), nodes


@pytest.mark.parametrize("dtype", [*(pytest.param(d, marks=pytest.mark.slow) for d in DTYPES[:2]), *DTYPES[2:]])
def test_compiled_code_turns_q_and_k_by_one_node_and_back_by_one(as_if_many, dtype):
    positions = torch.randint(-(2**31), 2**31, (2, 2, 5), device=DEVICE)
    given = qk(SPEC, dtype)
    got, nodes = compiled(lambda q, k: rotate(q, k, positions, SPEC), *given)
    assert nodes == ["phasor.rotate_qk.default"] * 2
    same(got, there_and_back(lambda q, k: rotate(q, k, positions, SPEC, kernel="reference"), *given))


def test_compiled_code_holds_the_steps(as_if_many, monkeypatch):
    """Formed and kept by the node at its first call they would lie in the memory of a CUDA graph, which reuses it."""
    positions = torch.arange(5, device=DEVICE)
    spec = SPEC.replace(axes=OneAxis())
    given = qk(spec, torch.float32)
    monkeypatch.setattr(autograd, "steps_of", None)
    _, nodes = compiled(lambda q, k: rotate(q, k, positions, spec), *given)
    assert len(nodes) == 2


@pytest.mark.parametrize("rounding", ["once", pytest.param("before_weight", marks=pytest.mark.slow)])
def test_a_norm_is_in_the_same_node(as_if_many, rounding):
    spec = RotarySpec(head_dim=16, rotary_dim=12)
    rotation = Rotation.at(spec, torch.arange(5, device=DEVICE))
    given = *qk(spec, torch.float32), *(torch.randn(16, device=DEVICE) for _ in range(2))

    def call(q, k, of_q, of_k, kernel="auto"):
        return apply_qk_norm_rotary(q, k, rotation, of_q, of_k, rounding=rounding, unit_offset=True, kernel=kernel)

    got, nodes = compiled(call, *given)
    assert nodes == ["phasor.norm_and_rotate_qk.default", "phasor.norm_and_rotate_qk_back.default"]
    same(got, there_and_back(lambda *x: call(*x, kernel="triton"), *given))


def test_gradients_of_gradients_through_a_norm(as_if_many):
    """Of code that is traced and not compiled: nothing else can differentiate it twice."""
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.arange(3, device=DEVICE))
    given = [torch.randn(*shape, 8, device=DEVICE, requires_grad=True) for shape in ((1, 2, 3), (1, 1, 3), (), ())]

    def twice(call):
        y, z = call(*given)
        first = torch.autograd.grad((y**3).sum() + (z**3).sum(), given, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), given)

    def call(q, k, of_q, of_k, kernel="auto"):
        return apply_qk_norm_rotary(q, k, rotation, of_q, of_k, kernel=kernel)

    got = twice(torch.compile(call, fullgraph=True, backend="eager"))
    for a, b in zip(got, twice(lambda *x: call(*x, kernel="reference")), strict=True):
        assert_within(a, b, 32)  # roundings of both ways back


@pytest.mark.slow
def test_batches_of_two_shapes_and_one_without_k(as_if_many):
    q, k = torch.randn(2, 4, 5, 16, device=DEVICE), torch.randn(1, 2, 5, 16, device=DEVICE)
    positions, spec = torch.arange(5, device=DEVICE), RotarySpec(head_dim=16)
    got, nodes = compiled(lambda q, k: rotate(q, k, positions, spec), q, k)
    assert len(nodes) == 4
    same(got, there_and_back(lambda q, k: rotate(q, k, positions, spec, kernel="reference"), q, k))
    got, nodes = compiled(lambda q: rotate(q, None, positions, spec)[:1], q)
    assert len(nodes) == 2
    same(got, there_and_back(lambda q: rotate(q, None, positions, spec, kernel="reference")[:1], q))


@pytest.mark.slow
@pytest.mark.parametrize("about", [{"after": True}, {"across_heads": True}], ids=str)
def test_a_norm_after_or_across_heads_stays_the_plain_expression(as_if_many, about):
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5, device=DEVICE))
    call = lambda q, k: apply_qk_norm_rotary(q, k, rotation, None, None, **about)  # noqa: E731
    assert not compiled(call, *qk(SPEC, torch.float32))[1]


@pytest.mark.slow
def test_function_transforms_keep_the_plain_expression(as_if_many):
    x, positions = torch.randn(3, 2, 4, 5, 16, device=DEVICE), torch.arange(5, device=DEVICE)
    spec = RotarySpec(head_dim=16)
    turn = torch.func.vmap(lambda y: rotate(y, None, positions, spec)[0])
    expected = rotate(x, None, positions, spec, kernel="reference")[0]
    assert torch.equal(torch.compile(turn, fullgraph=True, backend="aot_eager")(x), expected)


def test_few_tokens_stay_the_plain_expression():
    torch.compiler.reset()
    positions = torch.arange(5, device=DEVICE).expand(2, 5)
    _, nodes = compiled(lambda q, k: rotate(q, k, positions, SPEC), *qk(SPEC, torch.float32))
    assert not nodes


@pytest.mark.slow
def test_the_operators_are_proper_ones():
    spec = RotarySpec(head_dim=8)
    q, k, weight = (torch.randn(*shape, 8, device=DEVICE, requires_grad=True) for shape in ((1, 2, 5), (1, 1, 5), ()))
    positions = torch.arange(5, device=DEVICE)
    rotation = Rotation.at(spec, positions)
    about, tables = operator.described(rotation), [rotation.cos, rotation.sin]
    calls = {
        "rotate_qk": ([q, k], [positions], spec.key, None, about, "bhsd", False, torch.float32),
        "norm_and_rotate_qk": ([q, k], [weight, weight], tables, about, 1e-6, False, "once", "bhsd"),
    }
    for name, given in calls.items():
        checked = torch.library.opcheck(getattr(torch.ops.phasor, name).default, given)
        assert set(checked.values()) == {"SUCCESS"}, name
