"""Tables of few tokens in few operations: those that `Tables.at` forms, whatever is asked for."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import phasor
from phasor.rotary import stacked
from phasor.rotary.kernels.native import kernel as native
from phasor.tools.patch.few_tokens import FEW, FewTokens
from phasor.tools.patch.tables import Tables

YARN = phasor.scaling.YaRN(4.0, 512)
SPECS = {
    "exact": phasor.RotarySpec(head_dim=48, base=1e6),
    "float32": phasor.RotarySpec(head_dim=64, angles="float32", tables="activation"),
    "part": phasor.RotarySpec(head_dim=32, rotary_dim=20, interleaved=True, reverse=True),
    "yarn": phasor.RotarySpec(head_dim=32, angles="float32", tables="rounded", scaling=YARN),
    "yarn-exact": phasor.RotarySpec(head_dim=32, scaling=YARN),
    "reversed": phasor.RotarySpec(head_dim=16, angles="float32", tables="activation", reverse=True),
    "scaled": phasor.RotarySpec(head_dim=24, angles="float32", tables="activation", position_scale=0.25),
    "blocks": phasor.RotarySpec(head_dim=32, blocks=2, angles="float32", tables="activation"),
}
FAR = (0, 1, -3, 7, 8191, 2**31, 2**31 + 1, 2**63 - 1, -(2**63))


def same(a, b):
    return all(
        torch.equal(x.view(torch.uint8), y.view(torch.uint8))
        and (x.dtype, x.shape, x.is_contiguous()) == (y.dtype, y.shape, y.is_contiguous())
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("form", ["half", "doubled", "repeated", "blocks"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_they_are_the_tables_of_every_position(spec, form):
    for rounded in (True, False):
        table = Tables(spec, form, rounded)
        few = FewTokens(table)
        assert few.simple
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            x = torch.zeros(1, dtype=dtype)
            tokens = [torch.tensor([FAR[:4], FAR[4:8]]), torch.tensor(FAR), torch.tensor([[3], [900]]).int()]
            for at in (*tokens, torch.tensor([[8191]]), torch.tensor([0]), torch.tensor([-(2**63)])):
                assert same(few.at(x, at), table.at(x, at)), (at, dtype)


def test_what_is_not_simple_is_left_to_the_long_way():
    spec, axes = SPECS["float32"], phasor.axes.Sections((8, 12, 12))
    for other in (
        Tables(spec, "complex", rounded=False),
        Tables(spec, "doubled", rounded=False, led=True),
        Tables(spec.replace(axes=axes), "doubled", rounded=False),
        Tables(spec.replace(coordinates="real"), "doubled", rounded=False),
        Tables(spec.replace(angles="float64"), "doubled", rounded=False),
        Tables(spec.replace(learned=True), "doubled", rounded=False),
        Tables(spec.replace(scaling=phasor.scaling.DynamicNTK(2.0, 128)), "doubled", rounded=False),
    ):
        assert not FewTokens(other).simple, other


def calls(monkeypatch):
    formed = []
    at = Tables.at
    monkeypatch.setattr(Tables, "at", lambda self, x, at_, *more: formed.append(at_.numel()) or at(self, x, at_, *more))
    return formed


def test_few_tokens_go_the_short_way_and_many_the_long_one(monkeypatch):
    few, formed = FewTokens(Tables(SPECS["float32"], "doubled", rounded=True)), calls(monkeypatch)
    most = FEW // 64
    for tokens in (1, most, most + 1):
        few.at(torch.zeros(1), torch.arange(tokens)[None])
    assert formed == [most + 1]


def test_a_table_of_each_pair_takes_twice_as_many(monkeypatch):
    few, formed = FewTokens(Tables(SPECS["float32"], "half", rounded=True)), calls(monkeypatch)
    for tokens in (FEW // 32, FEW // 32 + 1):
        few.at(torch.zeros(1), torch.arange(tokens)[None])
    assert formed == [FEW // 32 + 1]


@pytest.mark.skipif(not native.OPEN, reason="the native kernel is not here")
def test_one_token_of_exact_angles_is_one_call_of_the_native_kernel(monkeypatch):
    tables, x, at = Tables(SPECS["exact"], "doubled", rounded=True), torch.zeros(1), torch.tensor([[5]])
    with monkeypatch.context() as without:
        without.setattr(stacked, "cos_sin", None)
        done = FewTokens(tables).at(x, at)
    monkeypatch.setattr(native, "OPEN", ())  # as where there is no compiler
    assert same(done, FewTokens(tables).at(x, at))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_what_is_written_into_them_stays_there(spec):
    tables = Tables(spec, "doubled", rounded=False)
    few, x, at = FewTokens(tables), torch.zeros(1), torch.tensor([[5]])
    for inference in (False, True, False):
        with torch.inference_mode(inference):
            cos, sin = few.at(x, at)
            assert same((cos, sin), tables.at(x, at))
            cos.zero_()
            sin.fill_(7)


def test_what_inference_mode_has_formed_takes_part_in_a_gradient_later():
    tables = Tables(SPECS["float32"], "doubled", rounded=True)
    few, x, at = FewTokens(tables), torch.ones(1, 1, 64), torch.tensor([[5]])
    with torch.inference_mode():
        few.at(x, at)
    y = x.clone().requires_grad_()
    cos, _ = few.at(x, at)
    (y * cos).sum().backward()
    assert torch.equal(y.grad, tables.at(x, at)[0])


def test_wrong_positions_meet_the_errors_of_the_long_way():
    few = FewTokens(Tables(SPECS["float32"], "doubled", rounded=True))
    for positions in (torch.tensor(3), torch.tensor([[True]])):
        with pytest.raises(ValueError, match="positions must be"):
            few.at(torch.zeros(1), positions)


def test_modes_see_the_operations_of_the_long_way():
    class Seen(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names += (str(function),)
            return function(*args, **(kwargs or {}))

    few, x, at = FewTokens(Tables(SPECS["float32"], "doubled", rounded=True)), torch.zeros(1), torch.tensor([[5]])
    few.at(x, at)
    with Seen() as seen:
        few.at(x, at)
    assert any("cos" in name for name in seen.names)
    assert any("cat" in name for name in seen.names)


def test_a_default_device_changes_nothing():
    at, x = torch.tensor([[5]]), torch.zeros(1)
    for spec in SPECS.values():
        few = FewTokens(Tables(spec, "doubled", rounded=True))
        with torch.device("meta"):
            assert few.at(x, at)[0].is_cpu
