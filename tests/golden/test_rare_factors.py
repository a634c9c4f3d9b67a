"""What few models have, rotated by hand: pairs of two angles, trained log-scales, scaled positions, temperatures."""

import math

import pytest
import torch
from safetensors.torch import load_file

from phasor import ModelRotary, RotarySpec
from phasor.rotary.axes import Listed
from phasor.rotary.scaling import Linear
from phasor.rotary.temperature import LogFloor
from phasor.tools.golden import check, write

from .conftest import CONFIGS
from .matrix import YARN
from .plain import ladder, tables, turn_halves, yarn

FREQUENCIES = torch.tensor([1.0, 0.1, 0.01, 0.001], dtype=torch.float64)  # base 10000, 8 channels
SPEC = RotarySpec(head_dim=8)
TWO_ANGLES = SPEC.replace(axes=Listed((0, 0, 1, 1)), second=Listed((1, 1, 0, 0)))


def vectors_of(place, spec, positions=None, **fields):
    model = ModelRotary(model_type="toy", layers=(spec,), layer_types=("attention",), num_heads=2, **fields)
    folder = write(model, place / "vectors", positions=positions)
    tensors = load_file(folder / "vectors.safetensors")
    return folder, {name.removeprefix("attention."): tensor for name, tensor in tensors.items()}


def causes(folder, **tensors):
    report = check(folder, {f"attention.{name.replace('__', '.')}": tensor for name, tensor in tensors.items()})
    return [(finding.cause, finding.reason) for finding in report.findings if finding.verdict != "not shown"]


def two_angles(q, p, first=(0, 0, 1, 1), second=(1, 1, 0, 0)):
    """The first member of a pair by one angle, the second by another: pairs i and i + 4."""
    a, b = q.double().chunk(2, -1)
    one, other = (p.double()[list(axes)].T * FREQUENCIES for axes in (first, second))
    return torch.cat((a * one.cos() - b * one.sin(), b * other.cos() + a * other.sin()), -1), one, other


def test_members_of_a_pair_that_rotate_by_different_angles(tmp_path):
    folder, v = vectors_of(tmp_path, TWO_ANGLES)
    out, one, other = two_angles(v["q_in"], v["positions"])
    right = {"exact__cos": one.cos(), "exact__sin_second": other.sin(), "exact__float32__q_out": out}
    assert causes(folder, **right) == []
    function = {"exact__float32__q_out": lambda x: two_angles(x, v["positions"])[0].float()}
    assert causes(folder, **right | function) == []
    alike, *_ = two_angles(v["q_in"], v["positions"], second=(0, 0, 1, 1))
    for tensors in ({"exact__sin_second": one.sin()}, {"exact__float32__q_out": alike}):
        assert len(causes(folder, **tensors)) == 1
    ((cause, reason),) = causes(folder, exact__float32__q_out=two_angles(v["q_in"], v["positions"] + 1)[0])
    assert cause == "positions" and "too high by 1" in reason


def test_a_trained_log_scale(tmp_path):
    folder, v = vectors_of(tmp_path, SPEC.replace(learned=True))
    p, scale = v["positions"], v["log_scale"].double().exp()
    right, plain = (turn_halves(v["q_in"].double(), *tables(p, f)) for f in (FREQUENCIES * scale, FREQUENCIES))
    assert causes(folder, exact__float32__q_out=right) == []
    assert len(causes(folder, exact__float32__q_out=plain)) == 1
    late = turn_halves(v["q_in"].double(), *tables(p - 1, FREQUENCIES * scale))
    ((cause, reason),) = causes(folder, exact__float32__q_out=late)
    assert cause == "positions" and "too low by 1" in reason


def test_positions_that_are_scaled(tmp_path):
    folder, v = vectors_of(tmp_path, SPEC.replace(coordinates="real", position_scale=0.25))
    p, q = v["positions"].double().flatten(), v["q_in"].double()
    assert causes(folder, exact__float32__q_out=turn_halves(q, *tables(p / 4, FREQUENCIES))) == []
    ((cause, reason),) = causes(folder, exact__float32__q_out=turn_halves(q, *tables(p, FREQUENCIES)))
    assert cause == "positions" and "not multiplied by position_scale = 0.25" in reason


@pytest.mark.parametrize("first", [1, 9])
def test_another_base_is_read_off_wherever_the_first_position_stands(first, tmp_path):
    """At position 9 of this scale the fastest pair has turned by 4.5, more than half a turn."""
    spec = SPEC.replace(coordinates="real", position_scale=0.5)
    folder, v = vectors_of(tmp_path, spec, positions=[first, *range(10, 90, 7), 500])
    other = turn_halves(v["q_in"].double(), *tables(v["positions"].double().flatten() / 2, ladder(1234.0, 8)))
    ((cause, reason),) = causes(folder, exact__float32__q_out=other)
    assert cause == "base" and "the base is 1234, and must be 10000" in reason


def test_another_factor_is_read_off_the_slowest_pair_that_turns(tmp_path):
    folder, v = vectors_of(tmp_path, SPEC.replace(scaling=Linear(4.0)))
    other = turn_halves(v["q_in"].double(), *tables(v["positions"], FREQUENCIES / 7.3))
    ((cause, reason),) = causes(folder, exact__float32__q_out=other)
    assert cause == "scaling" and "the factor of the linear scaling is 7.3, and must be 4" in reason


def test_a_temperature_that_is_inside_the_queries(tmp_path):
    """1 + 0.5 ln(1 + floor(p / 8)), as Llama 4 writes it; here it stands apart from q."""
    folder, v = vectors_of(tmp_path, SPEC, temperatures=(LogFloor(beta=0.5, length=8),))
    p = v["positions"]
    heat = 1 + 0.5 * torch.log1p(torch.floor(p.double() / 8))
    rotated = turn_halves(v["q_in"].double(), *tables(p, FREQUENCIES))
    assert causes(folder, temperature=heat, exact__float32__q_out=rotated) == []
    ((cause, reason),) = causes(folder, exact__float32__q_out=rotated * heat[:, None])
    assert cause == "temperature" and "the temperature is inside; it is kept apart" in reason


@pytest.mark.parametrize(
    "factor, says",
    [(0.1 * math.log(4) + 1, "the attention factor is YaRN's usual 1.138"),
     (1.5 * (0.1 * math.log(4) + 1), "the attention factor 1.5 of the config is multiplied by YaRN's usual 1.138")],
)  # fmt: skip
def test_an_attention_factor_of_the_config_is_final(factor, says, tmp_path):
    config = CONFIGS["yarn"]
    rope = {**config["rope_scaling"], "attention_factor": 1.5}
    folder = write({**config, "rope_scaling": rope}, tmp_path / "vectors")
    v = load_file(folder / "vectors.safetensors")
    p, q = v["attention.positions"], v["attention.q_in"].double()
    assert rope["factor"] == YARN["factor"]
    outs = [turn_halves(q, *tables(p, yarn(10_000.0, 64), by)) for by in (1.5, factor)]
    assert causes(folder, exact__float32__q_out=outs[0]) == []
    ((cause, reason),) = causes(folder, exact__float32__q_out=outs[1])
    assert cause == "attention_factor" and says in reason
