"""The short way to a launch that is kept: when it is taken, and with what. The launches are made up."""

from types import SimpleNamespace

import pytest
import torch

from phasor import RotarySpec, rotate
from phasor.rotary.kernels import ORDERS
from phasor.rotary.kernels.triton import plans


def test_the_bytes_from_the_first_element_to_the_last():
    whole = torch.zeros(3, 4)
    assert plans.extent(whole) == 48 and plans.extent(torch.zeros(5).bfloat16()) == 10
    assert plans.extent(whole[:, ::2]) == 44  # the last is number 10 of 0 to 11
    assert plans.extent(whole[:1].expand(3, 4)) == 16


@pytest.mark.parametrize(
    "k, table, apart",
    [(100, 200, True), (99, 200, False), (100, 149, False), (100, 150, True), (300, 81, False), (300, 100, True)],
)
def test_what_is_written_shares_nothing(k, table, apart):
    """100 bytes of q from 0 on, 50 of k, 20 of a table; in place all but itself is another stretch."""
    plan = plans.LaunchPlan(None, None, (100, 50, 20), (True, True))
    assert plans._are_apart(plan, 0, k, (table, None, None, None)) == apart


def test_a_launch_that_is_kept_is_found_by_positions(monkeypatch):
    spec, positions = RotarySpec(head_dim=16), torch.arange(1)
    q, k, taken = torch.randn(1, 4, 1, 16), torch.randn(1, 2, 1, 16), []

    class Launch:
        def is_here(self):
            return True

        def __call__(self, *addresses):
            taken.append(addresses[:2])
            return True

    key = plans.of_heads(q, k, ORDERS["bhsd"], q.dtype, None, False, None), plans.of_positions(positions, spec.key)
    monkeypatch.setattr("phasor.rotary.kernels.native.OPEN", ())
    monkeypatch.setitem(plans.PLANS, key, plans.LaunchPlan(Launch(), torch.zeros(8), (256, 128, 8), (True, True)))
    monkeypatch.setattr(plans, "OPEN", ["auto", "triton"])
    y, z = rotate(q, k, positions, spec)
    assert (y.shape, z.shape) == (q.shape, k.shape) and taken == [(q.data_ptr(), k.data_ptr())]


@pytest.mark.parametrize("hook", [None, lambda *given: None])
def test_whoever_hooks_into_launches_sees_them(hook):
    launch = pytest.importorskip("phasor.rotary.kernels.triton.launch", reason="triton is not installed")
    one, calls = launch.Launch.__new__(launch.Launch), []
    one.driver = SimpleNamespace(get_current_stream=lambda device: 7)
    one.hooks = SimpleNamespace(launch_enter_hook=hook, launch_exit_hook=None)
    one.hooked = lambda *given, stream: calls.append(("hooked", *given, stream))
    one.run = lambda stream, *given: calls.append(("run", stream, *given))
    one.begin, one.rest, one.vectors, one.device = ("begin",), ("rest",), [0], 0
    given = (16, 32, 48, 64, None, None, 80, 96, None, None)
    assert one(*given) and not one(8, *given[1:]) and not one(0, *given[1:])
    groups = (given[:4], None, (None, 80, 96), (None, None), "rest")
    assert calls == [("run", 7, "begin", *groups) if hook is None else ("hooked", *groups, 7)]
