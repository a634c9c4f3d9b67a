"""The comparison behind `phasor.patch`: what counts as agreement, and what a function must do to be replaced."""

import sys

import pytest
import torch

from phasor import RotarySpec, patch
from phasor.tools.patch.compare import INCOMPARABLE, difference_of, largest
from phasor.tools.patch.equal_calls import compare_function
from phasor.tools.patch.report import agreement
from phasor.tools.patch.rotate_function import parameters_of
from phasor.tools.patch.sites import nearest
from phasor.tools.patch.tables import Tables

from .models import causal

SPEC = RotarySpec(head_dim=8, rotary_dim=4, angles="float32")
TABLES = Tables(SPEC, "doubled", True)
DTYPES = (torch.float32, torch.bfloat16)


def half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def usual(q, k, cos, sin, unsqueeze_dim=1):
    """Written as models write it: the first channels turn, in halves."""
    cos, sin, n = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim), cos.shape[-1]
    return tuple(torch.cat((x[..., :n] * cos + half(x[..., :n]) * sin, x[..., n:]), -1) for x in (q, k))


@pytest.mark.parametrize(
    "other",
    [
        lambda q, k, cos, sin, unsqueeze_dim=1: usual(q, k, cos, -sin, unsqueeze_dim),  # backwards
        lambda q, k, cos, sin, unsqueeze_dim=1: usual(q, q, cos, sin, unsqueeze_dim),  # not the keys
        lambda q, k, cos, sin, unsqueeze_dim=1: usual(q, k, cos * 1.001, sin, unsqueeze_dim),
    ],
    ids=["backwards", "keys", "cos"],
)
def test_a_function_that_turns_otherwise_does_not_agree(other):
    assert not compare_function(other, (TABLES,), [SPEC], DTYPES)[1].close


def test_a_function_that_differs_in_the_last_bits_is_not_replaced(monkeypatch):
    """Sums of products rounded once, as fused instructions round them: on any machine other last bits than phasor's."""

    def fused(q, k, cos, sin, unsqueeze_dim=1):
        return tuple(x.to(q.dtype) for x in usual(q.double(), k.double(), cos.double(), sin.double(), unsqueeze_dim))

    _, difference = compare_function(fused, (TABLES,), [SPEC], DTYPES)
    assert difference.close and not difference.exact
    model = causal("llama")
    monkeypatch.setattr(sys.modules[type(model).__module__], "apply_rotary_pos_emb", fused)
    rows = {row.what: row for row in patch(model).rows}
    assert rows["tables"].replaced
    assert rows["apply_rotary_pos_emb"].reason == "its results differ from phasor's in the last bits"


def test_tables_that_differ_in_the_last_bits_are_not_replaced(monkeypatch):
    model = causal("llama")
    own = type(model.model.rotary_emb).forward

    def rounded_once(module, x, position_ids):
        angles = (position_ids[..., None].float() * module.inv_freq).double()
        double = torch.cat((angles, angles), -1)
        return double.cos().to(x.dtype), double.sin().to(x.dtype)

    monkeypatch.setattr(type(model.model.rotary_emb), "forward", rounded_once)
    row = patch(model).rows[0]
    assert (
        row.agreement.startswith("max difference")
        and difference_of(
            *(forward(model.model.rotary_emb, torch.zeros(1), torch.arange(9)[None]) for forward in (own, rounded_once))
        ).close
    )
    assert row.reason == "its results differ from phasor's in the last bits"


def test_a_function_that_takes_fewer_queries_than_keys_is_not_replaced():
    """Muse-Glimmer's assistant: phasor wants one position per token, and would refuse in the middle of a pass."""

    def last(q, k, cos, sin, unsqueeze_dim=1):
        n = q.shape[-2]
        turned = usual(q, q, cos[..., -n:, :], sin[..., -n:, :], unsqueeze_dim)[0] if unsqueeze_dim == 1 else None
        return (turned, *usual(k, k, cos, sin, unsqueeze_dim)[1:])

    assert not compare_function(last, (TABLES,), [SPEC], DTYPES)[1].close


def test_a_spec_among_several_is_found_by_what_the_function_does():
    function, difference = compare_function(usual, (TABLES,), [SPEC.replace(interleaved=True), SPEC], DTYPES)
    assert difference.exact and function.layout.interleaved is False
    assert compare_function(lambda a, b, c: a, (TABLES,), [SPEC], DTYPES) == (None, INCOMPARABLE)  # nothing is guessed


def test_tables_wider_than_the_heads_widen_the_result():
    """Dots 3 gives float32 tables to layers that run in bfloat16; its function, and most others, then give float32."""
    function, _ = compare_function(usual, (TABLES,), [SPEC], DTYPES)
    q, k = (torch.randn(2, heads, 5, 8).bfloat16() for heads in (3, 1))
    cos, sin = TABLES.at(q.float(), torch.arange(5)[None])
    theirs = usual(q, k, cos, sin)
    assert theirs[0].dtype == torch.float32
    assert all(map(torch.equal, function.stand_in()(q, k, cos, sin), theirs))


def test_parameters_are_written_as_the_list_of_calls_has_them():
    """Heads, tables and values that may be left out make another call of it; other defaults say nothing."""

    def function(q, k=None, cos=None, value_layer=None, position_ids=None, unsqueeze_dim=2, scale=1.0, **more): ...

    names = "q", "k=None", "cos=None", "value_layer=None", "position_ids", "unsqueeze_dim", "scale", "**more"
    assert parameters_of(function) == (names, 2) and parameters_of(lambda k, sin=0: k) == (("k", "sin"), 1)


def test_agreement():
    x = torch.tensor([1.0, 2.0])
    assert agreement(difference_of((x, None), (x.clone(), None))) == "bit-equal"
    step = torch.tensor([1.0, 2.0 + 2**-22])
    assert difference_of(x, step).steps == pytest.approx(1.0) and difference_of(x, step).close
    assert agreement(difference_of(x, x + 0.5)) == "max difference 5.0e-01"
    for other in (x.bfloat16(), x[:1], None, (x, x)):
        assert difference_of(x, other) == INCOMPARABLE
    assert largest([difference_of(x, x), INCOMPARABLE]) == INCOMPARABLE


def test_not_a_number_never_agrees():
    one, nan = torch.tensor([1.0]), torch.tensor([float("nan")])
    assert (
        difference_of(one, nan)
        == difference_of((one, one), (one, nan))
        == difference_of((nan, one), (one, one))
        == INCOMPARABLE
    )


def test_nearest_is_the_lowest_common_branch():
    paths = ["text.rotary", "vision.rotary", "text.layers.3.own"]
    assert nearest("text.layers.3.attn", paths) == ["text.layers.3.own"]
    assert nearest("text.layers.2.attn", paths) == ["text.layers.3.own"]
    assert nearest("vision.blocks.0", paths) == ["vision.rotary"]
    assert nearest("audio.layers.0", paths) == paths


def test_a_function_that_narrows_its_result_again_is_told_from_it():
    def narrowed(q, k, cos, sin, unsqueeze_dim=1):
        turned = usual(q.float(), k.float(), cos.float(), sin.float(), unsqueeze_dim)
        return tuple(y.to(x.dtype) for x, y in zip((q, k), turned, strict=True))

    spec = SPEC.replace(tables="rounded")
    function, difference = compare_function(narrowed, (Tables(spec, "doubled", True),), [spec], DTYPES)
    assert difference.close and not function.promoted
