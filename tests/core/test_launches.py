"""Off the CPU, where each operation is a launch, a rotation takes those of its definition, and never waits."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from phasor import RotarySpec, Rotation, apply_rotary_qk, rotate
from phasor.rotary import phase, stacked, tables
from phasor.rotary import rotation as rotation_module
from phasor.rotary.apply import gpu_warm_up
from phasor.support import tracing

from .conftest import FACTORS, SEQ_LEN, SPECS, anywhere, at

FULL = SPECS["plain-one-full-halves"].replace(head_dim=128)
LAYOUTS = {name: SPECS[name] for name in SPECS if name.startswith("yarn-one-")} | {
    name: FACTORS[name] for name in ("blocks", "blocks-first-yarn", "permuted", "reverse-first-longrope", "float64")
}
AXES = {name: SPECS[name] for name in SPECS if name.startswith("plain-") and name.endswith("-full-halves")}


class Operations(TorchDispatchMode):
    """The names of all operations, and of those that have work to do: views and questions about dtypes have none."""

    def __init__(self):
        super().__init__()
        self.all, self.launches = [], []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.all.append(str(operation))
        if not operation.is_view and "promote_types" not in str(operation):
            self.launches.append(str(operation))
        return operation(*args, **(kwargs or {}))


@pytest.fixture
def unwatched(monkeypatch):
    """As if no mode were looking: under one nothing is kept from call to call, because modes may swap tensors."""
    monkeypatch.setattr(tables, "watched", lambda: False)


def heads(tokens, width, dtype=torch.bfloat16):
    """q and k of 32 and 8 heads on the device that does nothing, and gradients for them."""
    return [torch.empty(1, h, tokens, width, dtype=dtype, device="meta") for h in (32, 8, 32, 8)]


def operations(spec, tokens, learns, dtype=torch.bfloat16, phases=False):
    """Of one call by tables or by ``phases``; of the gradients, too, if it ``learns``."""
    q, k, dq, dk = heads(tokens, spec.head_dim, dtype)
    q, k = q.requires_grad_(learns), k.requires_grad_(learns)
    positions = anywhere(spec, 0, 100, tokens).to("meta")
    rotation = at(spec, positions, dtype)
    with Operations() as seen:
        turned = rotate(q, k, positions, spec, seq_len=SEQ_LEN) if phases else apply_rotary_qk(q, k, rotation)
        if learns:
            torch.autograd.grad(turned, (q, k), (dq, dk))
    return seen


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("spec", AXES.values(), ids=AXES)
def test_the_size_changes_nothing_from_positions_to_results(spec, learns):
    rotate(*heads(1, spec.head_dim)[:2], anywhere(spec, 0, 1, 1).to("meta"), spec)
    few, more, many = (operations(spec, tokens, learns, phases=True).all for tokens in (1, 512, 8192))
    assert few == more == many


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_q_and_k_are_turned_together_where_no_gradient_is_needed(dtype):
    """Tables at full width; q and k joined, swapped, two products, a sum, and each rounded to memory of its own."""
    assert len(operations(FULL, 8192, learns=False, dtype=dtype).launches) == 3 + 5 + 2


EIGHTH = 2**61
EDGES = [n * EIGHTH + sign * (1 << bits) for n in range(-4, 4) for bits in range(61) for sign in (-1, 0, 1)]


@pytest.mark.parametrize("shape", [(-1,), (3, -1)], ids=str)
def test_cos_and_sin_in_few_operations_are_those_in_many(shape):
    """To the bit, signs of zeros too: at the edges of all eighths of a turn, around them, and anywhere."""
    generator = torch.Generator().manual_seed(3)
    edges = torch.tensor([(phase + 2**63) % 2**64 - 2**63 for phase in EDGES])
    for positions in (edges, torch.randint(-(2**63), 2**63 - 1, (30_000,), generator=generator)):
        positions, step = positions.view(shape), torch.tensor([1, 4, -7])
        together = stacked.cos_sin([positions, positions], [step, 2 * step])
        for a, b in zip(together, phase.cos_sin(phase.phases([positions], [3 * step])), strict=True):
            assert torch.equal(a.view(torch.int32), b.view(torch.int32))


class NoHost(TorchFunctionMode):
    """Refuses to bring data of the host to a device, or to look at a device's."""

    WAITS = ("tensor", "as_tensor", "from_numpy", "item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert getattr(function, "__name__", "") not in self.WAITS, f"{function} waits for the device"
        return function(*args, **(kwargs or {}))


class NoWaiting(TorchDispatchMode):
    """The same for operations: their results depend on values, or they copy from one device to another."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.default", "is_nonzero", "lift_fresh")

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        assert not any(word in str(operation) for word in self.WAITS), f"{operation} waits for the device"
        result = operation(*args, **(kwargs or {}))
        devices = {t.device.type for t in (*args, result) if isinstance(t, torch.Tensor)}
        assert devices <= {"meta"}, f"{operation} is at work on {devices}"
        return result


CALLS = {
    "rotate": lambda q, k, p, spec: rotate(q, k, p, spec, seq_len=SEQ_LEN),
    "apply": lambda q, k, p, spec: apply_rotary_qk(q, k, Rotation.at(spec, p, SEQ_LEN, dtype=q.dtype)),
    "in place": lambda q, k, p, spec: rotate(q, k, p, spec, seq_len=SEQ_LEN, out=(q, k)),
    "by reference": lambda q, k, p, spec: rotate(q, k, p, spec, seq_len=SEQ_LEN, kernel="reference"),
}
SEEN = AXES | {"yarn": SPECS["yarn-one-first-interleaved"], "real": FACTORS["real"], "float64": FACTORS["float64"]}
SEEN["float32"] = SPECS["yarn-one-full-halves"].replace(angles="float32")


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("spec", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_waits_for_the_device_once_a_spec_was_seen(call, spec):
    """What a CUDA graph needs, too: a second call brings nothing from the host and reads nothing back."""
    q, k, *_ = heads(512, spec.head_dim)
    positions = anywhere(spec, 0, 100, 512).to("meta")
    call(q, k, positions, spec)
    with NoHost(), NoWaiting():
        call(q, k, positions, spec)


@pytest.mark.usefixtures("unwatched")
def test_a_spec_that_was_not_seen_brings_its_steps_once():
    """The modes above would notice."""
    q, k, *_ = heads(5, 16)
    spec = SPECS["plain-one-full-halves"].replace(base=12345.0)
    positions = torch.zeros(5, dtype=torch.int64, device="meta")
    with pytest.raises(AssertionError, match="waits for the device"), NoHost():
        rotate(q, k, positions, spec)
    rotate(q, k, positions, spec)
    with NoHost():
        rotate(q, k, positions, spec)
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        positions.nonzero()


def test_a_default_device_watches_nothing():
    """It stands where modes stand; were it taken for one, every call would bring the steps of its spec again."""
    meta = torch.device("meta")
    held = tables.steps_of(FULL, None, False, meta)
    with meta:
        assert tables.steps_of(FULL, None, False, meta) is held
    with NoHost():
        assert tracing.watched()


def test_what_a_graph_has_captured_is_never_forgotten(monkeypatch):
    """A CUDA graph keeps addresses only, and a few hundred specs later the steps would leave the cache."""
    spec, meta = SPECS["plain-one-full-halves"].replace(base=54321.0), torch.device("meta")
    monkeypatch.setattr(tables, "capturing", lambda device: device == meta)
    held = tables.steps_of(spec, None, False, meta)
    tables._kept_steps.cache_clear()
    assert any(kept is held for kept in tables._IN_GRAPHS.values())
    monkeypatch.setattr(tables, "capturing", lambda device: False)
    assert tables.steps_of(spec, None, False, meta) is not held


def test_a_graph_forms_rows_from_what_tables_will_be(monkeypatch):
    """Kept rows would be those of the capture at every replay, in memory that belongs to the graph."""
    rotation = Rotation.at(FULL, torch.arange(3))
    kept = rotation.rows
    assert rotation.rows is kept
    monkeypatch.setattr(rotation_module, "capturing", lambda device: True)
    assert rotation.rows is not kept and rotation.rows is not rotation.rows
    assert rotation.__dict__["_kept"][1] is kept


@pytest.mark.parametrize(
    "tensor_format, shapes", [("bhsd", ((1, 4, 3, 16), (1, 2, 3, 16))), ("thd", ((3, 4, 16), (3, 2, 16)))]
)
def test_a_warm_up_makes_the_calls_of_serving(tensor_format, shapes, monkeypatch):
    """Where a kernel is compiled for each size: with heads of the dtype and the order that will come."""
    seen = []
    monkeypatch.setattr(gpu_warm_up.triton, "sizes_of", lambda *given: [(1, 3)])
    for name in ("rotate", "apply_rotary_qk"):
        monkeypatch.setattr(
            gpu_warm_up, name, lambda q, k, *given, **how: seen.append((q.dtype, q.shape, k.shape, how))
        )
    about = {"dtype": torch.bfloat16, "tensor_format": tensor_format}
    gpu_warm_up.warm_up(RotarySpec(head_dim=16), 4, 2, device="cpu", **about)
    assert len(seen) == 4 and {row[:3] for row in seen} == {(torch.bfloat16, *shapes)}
    assert {row[3]["tensor_format"] for row in seen} == {tensor_format}
