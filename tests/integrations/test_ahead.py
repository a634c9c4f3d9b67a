"""Tables of decoded tokens out of rows that were formed ahead: those that are formed alone, whatever is asked for."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import phasor
from phasor.tools.patch import ahead
from phasor.tools.patch.ahead import AHEAD, TablesAhead
from phasor.tools.patch.tables import Tables

SPECS = [
    phasor.RotarySpec(head_dim=48, base=1e6),
    phasor.RotarySpec(head_dim=64, angles="float32", tables="activation"),
    phasor.RotarySpec(head_dim=32, rotary_dim=20, interleaved=True, reverse=True),
]
ASKED = [
    *range(5, 5 + 3 * AHEAD),  # a decoder
    *(70, 70, 71, 71, 72, 71, 70, 69),  # twice, and back
    *(-3, -2, -1, 0, 1, 2**31, 2**31 + 1, 2**63 - 2, 2**63 - 1),  # below zero, far, at the end of integers
]


def same(a, b):
    return all(
        torch.equal(x, y) and (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("form", ["half", "doubled", "repeated"])
@pytest.mark.parametrize("spec", SPECS, ids=["exact", "float32", "part"])
def test_they_are_the_tables_of_each_position_alone(spec, form):
    for rounded, led in ((True, False), (False, True)):
        tables = Tables(spec, form, rounded, led=led)
        rows = TablesAhead(tables)
        for n, position in enumerate(ASKED):
            x = torch.zeros(1, dtype=torch.bfloat16 if n % 40 < 30 else torch.float64)
            at = torch.full((1, 1) if n % 50 < 45 else (1,), position)
            assert same(rows.at(x, at), tables.at(x, at)), (position, x.dtype)


def counted(monkeypatch):
    formed = []
    at = Tables.at
    monkeypatch.setattr(
        Tables, "at", lambda self, x, positions, *more: formed.append(1) or at(self, x, positions, *more)
    )
    return formed


def test_a_decoder_forms_tables_once_for_many_tokens(monkeypatch):
    rows, formed = TablesAhead(Tables(SPECS[1], "doubled", rounded=True)), counted(monkeypatch)
    for position in range(9, 9 + 1 + 2 * AHEAD):
        rows.at(torch.zeros(1), torch.tensor([[position]]))
    assert len(formed) == 3  # the first alone


def test_positions_that_do_not_follow_form_one_row_each(monkeypatch):
    rows = TablesAhead(Tables(SPECS[0], "half", rounded=True))
    monkeypatch.setattr(ahead, "AHEAD", None)  # what forms some ahead fails
    for position in (9, 7, 9, 11, 11):
        rows.at(torch.zeros(1), torch.tensor([[position]]))


def test_what_is_written_into_them_stays_there():
    tables = Tables(SPECS[1], "doubled", rounded=False)
    rows, x = TablesAhead(tables), torch.zeros(1)
    for inference in (False, True):
        for position in (3, 4, 4, 5, 4):
            with torch.inference_mode(inference):
                cos, sin = rows.at(x, torch.tensor([[position]]))
                assert same((cos, sin), tables.at(x, torch.tensor([[position]])))
                cos.zero_()
                sin.fill_(7)


def test_rows_of_inference_mode_take_part_in_a_gradient_later():
    tables = Tables(SPECS[1], "doubled", rounded=True)
    rows, x = TablesAhead(tables), torch.ones(1, 1, 64)
    with torch.inference_mode():
        for position in (3, 4):
            rows.at(x, torch.tensor([[position]]))
    y = x.clone().requires_grad_()
    cos, _ = rows.at(x, torch.tensor([[5]]))
    (y * cos).sum().backward()
    assert torch.equal(y.grad, tables.at(x, torch.tensor([[5]]))[0])


def test_modes_see_every_operation():
    class Seen(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names += (str(function),)
            return function(*args, **(kwargs or {}))

    rows, x = TablesAhead(Tables(SPECS[1], "doubled", rounded=True)), torch.zeros(1)
    for position in (3, 4):
        rows.at(x, torch.tensor([[position]]))
    with Seen() as seen:
        rows.at(x, torch.tensor([[5]]))
    assert any("cos" in name for name in seen.names)


def test_a_default_device_changes_nothing():
    rows = TablesAhead(Tables(SPECS[1], "doubled", rounded=True))
    for position in (3, 4, 5):
        at, x = torch.tensor([[position]]), torch.zeros(1)
        with torch.device("meta"):
            assert rows.at(x, at)[0].is_cpu
