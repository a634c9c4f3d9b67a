"""What compiled code is handed, by a driver and a launcher that are made up: no GPU and no library of one is needed."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

import triton
from triton.backends.compiler import GPUTarget

from phasor import RotarySpec, Rotation
from phasor.rotary.kernels import ORDERS, Cache, Norm
from phasor.rotary.kernels.triton import arguments, autograd, cache_write, launch, norm_backward, plans, rotate
from phasor.rotary.tables import Phases

from .conftest import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
SPEC = RotarySpec(head_dim=32, rotary_dim=16)
BHSD = ORDERS["bhsd"]


@pytest.fixture
def handed(monkeypatch):
    """Each launch: what the code was compiled from, the grid, and the arguments, tensors as addresses."""
    seen = []

    class Launcher:
        def __init__(self, source, metadata):
            self.source = source

        def __call__(self, *given):
            seen.append((self.source, given[:3], tuple(map(as_numbers, given[9:]))))

    class Driver:
        launcher_cls = Launcher
        utils = SimpleNamespace(
            load_binary=lambda *given: (1, 2, 32, 0, 1024),
            get_device_properties=lambda device: {"max_shared_mem": 2**18},
        )

        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 7

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

    config = vars(triton.runtime.driver)
    monkeypatch.setitem(config, "_active" if "_active" in config else "active", Driver())
    for kernel in (rotate.rotate_heads, cache_write.cache_heads, norm_backward.back_heads):
        monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    monkeypatch.setattr(plans, "PLANS", {})
    return seen


def as_numbers(value):
    if isinstance(value, tuple):
        return tuple(map(as_numbers, value))
    return value.data_ptr() if isinstance(value, torch.Tensor) else value


def at_path(values, path):
    for i in path:
        values = values[i]
    return values


def check_types(source, values):
    """Constants of the code are those that were handed over, and all others have the types it was compiled for."""
    assert len(values) == len(source.signature)
    for path, constant in source.constants.items():
        assert at_path(values, path) == constant, path

    def check(type_, value):
        if isinstance(type_, tuple):
            assert len(type_) == len(value)
            for of, member in zip(type_, value, strict=True):
                check(of, member)
        elif type_ != "constexpr":
            assert isinstance(value, float if type_ == "fp32" else int)
            assert type_ != "i32" or -(2**31) <= value < 2**31

    check(tuple(source.signature.values()), values)


def of(tokens, batch=1):
    """q and k and as many results."""
    return [torch.randn(batch, h, tokens, 32).to(torch.bfloat16) for h in (4, 2, 4, 2)]


POSITIONS = torch.arange(16)
TABLES = Rotation.at(SPEC, POSITIONS)
WEIGHTS = torch.randn(2, 32).to(torch.bfloat16)
CALLS = {
    "tables": lambda: (*of(16), TABLES, BHSD, False),
    "back": lambda: (*of(16), TABLES, BHSD, True),
    "one token": lambda: (*of(1, 3), Phases(SPEC, POSITIONS[:1]), BHSD, False),
    "positions": lambda: (*of(16, 2), Phases(SPEC, POSITIONS), BHSD, False),
    "alone": lambda: (q := of(16)[0], None, q.clone(), None, TABLES, BHSD, False),
    "in place": lambda: (*(of(16)[:2] * 2), TABLES, BHSD, False),
    "norm": lambda: (*of(16), TABLES, BHSD, False, Norm(*WEIGHTS, 1e-6)),
    "norm without weights": lambda: (*of(16), TABLES, BHSD, False, Norm(None, None, 1e-6)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_launch_hands_over_what_triton_would(call, handed, monkeypatch):
    """The long way and the short one: all arguments one by one, as Triton's own launch of the same call has them."""
    own, asked = rotate.launched, []
    monkeypatch.setattr(rotate, "launched", lambda *given: (asked.append(given), own(*given))[1])
    given = call()
    autograd.launched(*given)
    autograd.launched(*given)
    (kernel, programs, values), *more = asked
    assert not more and len(plans.PLANS) == 1, "the second call goes the short way"
    kernel[programs.grid](*values, num_warps=programs.warps, enable_fp_fusion=False)
    long, short, of_triton = handed
    assert long[1:] == short[1:] == of_triton[1:]
    for source, _, values in handed:
        check_types(source, values)


def test_what_goes_into_a_cache_is_handed_over_as_by_triton(handed, monkeypatch):
    own, asked = cache_write.launched, []
    monkeypatch.setattr(cache_write, "launched", lambda *given: (asked.append(given), own(*given))[1])
    q, k = (torch.randn(16, h, 32) for h in (4, 2))
    pages = torch.zeros(2, 3, 8, 2, 32).to(torch.float8_e4m3fn)
    cache = Cache(*pages, torch.arange(16), *torch.ones(2, 2))
    norm, v_norm = Norm(*WEIGHTS, 1e-6), Norm(None, None, 1e-5)
    cache_write.rotate_into_cache(q, k, k, q.clone(), TABLES, ORDERS["thd"], cache, False, norm, v_norm)
    ((kernel, programs, values),) = asked
    kernel[programs.grid](*values, num_warps=programs.warps, enable_fp_fusion=False)
    ours, of_triton = handed
    assert ours[1:] == of_triton[1:]
    for source, _, values in handed:
        check_types(source, values)


def test_the_way_back_of_a_norm_is_compiled(handed):
    q, k, *ups = of(16)
    norm_backward.rotate_back([q, k], ups, TABLES, BHSD, Norm(*WEIGHTS, 1e-6), True)
    ((source, _, values),) = handed
    check_types(source, values)


def test_sizes_and_strides_make_no_code_anew(handed):
    for tokens, batch in ((2, 1), (16, 1), (7, 1), (5, 3), (16, 16)):
        rotation = Rotation.at(SPEC, torch.arange(tokens))
        autograd.launched(*of(tokens, batch), rotation, BHSD, False)
    assert len(plans.PLANS) == 5 and len({id(source) for source, *_ in handed}) == 2  # rows of one axis, and of two


def test_the_type_of_a_number_is_seen():
    assert launch._unseen(arguments.Strides(2**40, 16, 1, -(2**31))) == (2**31 + 2, 2, 2, 2)


def test_a_weight_that_is_copied_is_read_anew_by_every_call(handed):
    """A launch that is kept is given addresses: that of a weight with gaps would be read as if it had none."""
    given, weight = CALLS["tables"](), torch.randn(64).to(torch.bfloat16)
    for _ in range(2):
        autograd.launched(*given, Norm(weight[::2], WEIGHTS[1], 1e-6))
    assert not plans.PLANS
    addresses = [values[3] for *_, values in handed]
    assert len(addresses) == 2 and all(q != weight.data_ptr() and k == WEIGHTS[1].data_ptr() for q, k in addresses)
