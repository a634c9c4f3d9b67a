"""Encodings by position: those that add to embeddings, what each refuses, and what only one of them promises."""

import math

import pytest
import torch

from blocks import ROOT
from phasor import RotarySpec, encodings
from phasor.encodings import (
    CAPE,
    FIRE,
    FLOATER,
    TISA,
    TUPE,
    Abacus,
    ALiBi,
    BiPE,
    CAPE2d,
    ComplexEmbedding,
    FoPE,
    HoPE,
    KerpleLog,
    KerplePower,
    LieRE,
    Placed,
    PoPE,
    Rotary,
    Sandwich,
    WindowedRotary,
    XPos,
    abacus_places,
    bipe_positions,
    randomised_positions,
)  # fmt: skip
from phasor.encodings.attention import attention
from phasor.encodings.base import Encoding
from published import read

T = torch.arange(12)
X = torch.zeros(1, 12, 16, dtype=torch.float64)
SPEC = RotarySpec(head_dim=8)


def filled(encoding, **values):
    with torch.no_grad():
        for name, value in values.items():
            encoding.double().get_parameter(name.replace("__", ".")).copy_(value)
    return encoding.eval()


def embeddings(shared_data):
    """What was published, and what ours adds."""
    f = read(shared_data, "cape")
    yield f["y_eval"] - 4 * f["x"], CAPE(16).eval().embed(X, T)  # sqrt(16) times the content
    yield f["y_train"] - 4 * f["x"], CAPE(16, frequency_scale=30.0).eval().embed(X, f["pos_train"])
    lines = (torch.linspace(-1, 1, n, dtype=torch.float64) for n in (3, 4))
    p = torch.stack(torch.meshgrid(*lines, indexing="ij")).flatten(1)
    yield f["e2d_eval"].flatten(0, 1), CAPE2d(16).eval().embed(X, p)
    moved = (p + f["shift2"][:, None] + f["local2"].flatten(1)) * f["log_scale"].exp()
    yield f["e2d_train"].flatten(0, 1), CAPE2d(16).eval().embed(X, moved)
    f = read(shared_data, "complex_embedding")
    waves = {"amplitude__weight": f["p_amplitude"], "frequency__weight": f["p_omega"]}
    yield f["y_one_based"], filled(ComplexEmbedding(7, 8), **waves).embed(f["tokens"][None], T + 1)
    with_phase = filled(ComplexEmbedding(7, 8, phase=True), **waves, phase__weight=f["p_phase"])
    yield f["y_phase"], with_phase.embed(f["tokens"][None], T)
    f = read(shared_data, "floater")
    names = {"start": "p0", "first__weight": "W1", "first__bias": "b1", "last__weight": "W2", "last__bias": "b2"}
    flow = filled(FLOATER(8, dt=0.1), **{ours: f["p_" + theirs] for ours, theirs in names.items()})
    yield f["table"][[11, 3]], flow.embed(X[:, :2, :8], torch.tensor([11, 3]))
    f = read(shared_data, "bipe")
    bipe = filled(BiPE(12, 16, ALiBi(2)), places__table__weight=f["p_table"])
    yield f["embedding_add"][1], bipe.embed(X, bipe_positions(f["ids"], [1, 2])[1:])
    f = read(shared_data, "abacus")
    abacus = filled(Abacus(8, num_places=40), table__weight=f["p_table"])
    yield f["y"][2], abacus.embed(X[..., :8], abacus_places(f["ids"], range(10))[2:])


def test_embeddings_are_the_published_ones(shared_data):
    for expected, ours in embeddings(shared_data):
        torch.testing.assert_close(ours[0], expected, rtol=0, atol=1e-12)


def test_places_of_a_capped_table_are_shared_and_segments_rise(shared_data):
    f = read(shared_data, "bipe")
    positions = bipe_positions(f["ids"], f["separators"].tolist())
    capped = filled(BiPE(4, 16, ALiBi(2)), places__table__weight=f["p_table"][:4])
    added = capped.embed(X.expand(2, -1, -1), positions)
    assert torch.equal(added, f["p_table"][f["inner_capped_4"]]) and bool((positions.diff() > 0).all())


def test_training_moves_positions_within_what_was_said():
    torch.manual_seed(0)
    cape, at = CAPE(16, global_shift=3.0, local_shift=0.5, stretch=2.0), torch.zeros(500, 2, dtype=torch.float64)
    moved = cape.moved(at)
    assert 6.0 < float(moved.abs().max()) <= 7.0 and float((moved[:, 0] - moved[:, 1]).abs().max()) <= 2.0
    two = CAPE2d(16, global_shift=1.0, stretch=2.0).moved(torch.ones(2, 500, 1, dtype=torch.float64) * 100)
    assert float((two[0] / two[1]).sub(1).abs().max()) < 0.03  # each shifted alone, both stretched alike
    assert not torch.equal(cape.embed(X, T), cape.embed(X, T)) and torch.equal(*(cape.eval().embed(X, T),) * 2)
    abacus, places = Abacus(8, num_places=11, max_shift=9), torch.tensor([[0, 1]])
    rows = [abacus.embed(X[:, :2, :8].float(), places)[0] for _ in range(200)]
    assert {int((abacus.table.weight == row[1]).all(-1).nonzero()) for row in rows} == set(range(1, 11))
    assert all(torch.equal(row[0], abacus.table.weight[0]) for row in rows)


def test_xpos_far_from_zero_needs_an_origin_there():
    q, k, near = *torch.randn(2, 1, 2, 12, 8, dtype=torch.float64), T
    x = XPos(SPEC)
    for dtype, far in ((torch.float32, 10**6), (torch.float16, 10**4)):
        there = XPos(SPEC, origin=far).rotate(q.to(dtype), k.to(dtype), near + far, near + far)
        here = x.rotate(q.to(dtype), k.to(dtype), near, near)
        torch.testing.assert_close(
            there[0] @ there[1].mT, here[0] @ here[1].mT, rtol=0, atol=50 * torch.finfo(dtype).eps
        )
        with pytest.raises(ValueError, match=rf"q_positions must lie within \d+ of origin=0 in {dtype}, got {far} to"):
            x.rotate(q.to(dtype), k.to(dtype), near + far, near)
    compiled = torch.compile(lambda at: x.rotate(q.float(), k.float(), at, at)[0], backend="eager", fullgraph=True)
    assert bool(compiled(near + 10**6).isnan().all()) and bool(compiled(near).isfinite().all())


def test_kerple_clamps_and_still_learns():
    power, q = KerplePower(1), torch.zeros(1, 1, 1, 2)
    with torch.no_grad():
        power.r1.fill_(-3.0), power.r2.fill_(5.0)
    bias = power.bias(q, q, T[3:4], T[:1], 1.0)
    assert math.isclose(bias.item(), -0.01 * 3**2, rel_tol=1e-6)
    assert all(float(g) for g in torch.autograd.grad(bias.sum(), power.parameters()))


Q = torch.zeros(1, 2, 2, 8)


def test_the_page_has_a_line_for_each():
    page = (ROOT / "docs/encodings.md").read_text(encoding="utf-8")
    names = {n for n in encodings.__all__ if isinstance(c := getattr(encodings, n), type) and issubclass(c, Encoding)}
    assert {name for name in names if f"`{name}`" not in page} == {"Encoding", "Grouped"}  # whose kinds have one


def test_kerple_power_has_a_second_derivative_at_distance_zero():
    encoding = KerplePower(2)
    first = torch.autograd.grad(encoding.bias(Q, Q, T, T, 1.0).sum(), encoding.r2, create_graph=True)[0]
    assert torch.autograd.grad(first.sum(), encoding.r2)[0].isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("encoding", [Sandwich(2), FoPE(2, 8, 64), TUPE(2, 8, 12), LieRE(8), FIRE(2)])
def test_autocast_rounds_no_encoding(encoding):
    x = torch.randn(1, 2, 12, 8)
    exact = attention(x, x, x, encoding, q_positions=T[:12], kernel="reference")
    with torch.autocast("cpu"):
        assert torch.equal(attention(x, x, x, encoding, q_positions=T[:12], kernel="reference"), exact)


@torch.no_grad()
@pytest.mark.parametrize("heads_of_q", [1, 4])
@pytest.mark.parametrize(
    "encoding", [ALiBi(2), KerpleLog(2), FIRE(2), TISA(2), Sandwich(2), TUPE(2, 8, 12), BiPE(4, 8, ALiBi(2))]
)
def test_flex_takes_no_bias_of_other_heads(encoding, heads_of_q):
    x = torch.randn(1, heads_of_q, 12, 8)
    with pytest.raises(ValueError, match="q must have the 2 heads that"):
        attention(x, x, x, encoding, q_positions=T[:12], kernel="flex")


@pytest.mark.parametrize("inner", [Rotary(SPEC), XPos(SPEC), PoPE(2, 8), LieRE(8), WindowedRotary(SPEC, window=3)])
def test_one_coordinate_is_a_position(inner):
    """Also of rows of positions, and with a window."""
    x, at = torch.randn(2, 2, 12, 8), torch.stack((T[:12], T[:12] + 3))
    ours = attention(x, x, x, Placed(inner, torch.arange(15)[None]), q_positions=at)
    torch.testing.assert_close(ours, attention(x, x, x, inner, q_positions=at))


def test_hope_keeps_the_pairs_of_its_rotary_dim():
    ladder = Rotary(RotarySpec(head_dim=16, rotary_dim=8)).spec.inv_freq()
    assert torch.equal(HoPE(16, 100, rotary_dim=8).spec.inv_freq() > 0, 100 * ladder >= 2 * math.pi)
    assert HoPE(2, 7).spec.inv_freq().tolist() == [1.0]  # the fewest channels and tokens


def test_draws_are_different_and_rise():
    draws = torch.stack([randomised_positions(3, 5) for _ in range(200)])
    assert bool((draws.diff() > 0).all()) and len(draws.unique(dim=0)) == 10  # all subsets of 3 of 5
