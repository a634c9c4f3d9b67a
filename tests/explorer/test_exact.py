"""The numbers of the page are phasor's: logarithms against mpmath, steps and phases to the integer, golden vectors."""

import mpmath
import pytest
import torch
from explorer_page.entries import lengths_of, spec_data

from phasor import RotarySpec
from phasor.golden import write
from phasor.models.configs import ModelRotary, read_parts
from phasor.rotary.phase import phases
from phasor.rotary.scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKFixed,
    Proportional,
    SteppedNTK,
    YaRN,
    YaRNPaper,
)
from phasor.rotary.spec import axis_steps
from phasor.tools.golden.vectors import read_vectors

POSITIONS = [0, 1, 2, 4095, 131071, 10**6 + 1, 2**31 - 1, 2**31]
STEPS = "return stepsOf(a[0], a[1]).map(row => row.map(String))"


def text_of(steps):
    return [[str(step) for step in row] for row in steps]


def all_specs(configs):
    """Every different rotation of all configs, with the lengths at which it is taken."""
    found = {}
    for config in configs.values():
        try:
            parts = read_parts(config).values()
        except ValueError:
            continue
        for model in (part for part in parts if isinstance(part, ModelRotary)):
            found |= {(spec, length): None for spec in model.distinct for length in lengths_of(model, spec)}
    return list(found)


@pytest.mark.parametrize("x", [1e-30, 0.5, 1.0, 2.0, 3.0, 1e4, 500_000.0, 1.7e308])
def test_logarithms_and_exponentials(js, x):
    with mpmath.workprec(320):
        size = 2**200
        got = int(js("return String(ln(fixed(a[0])) >> (FRACTION - 200n))", x))
        assert abs(got - int(mpmath.floor(mpmath.log(mpmath.mpf(x)) * size))) <= 2
        y = min(x, 40.0)
        got = int(js("return String(exp(-fixed(a[0])) >> (FRACTION - 200n))", y))
        assert abs(got - int(mpmath.floor(mpmath.exp(-mpmath.mpf(y)) * size))) <= 2
        assert abs(int(js("return String(PI >> (FRACTION - 200n))")) - int(mpmath.floor(mpmath.pi * size))) <= 1


def test_steps_and_phases_of_every_config(js, every_config):
    specs = all_specs(every_config)
    assert len(specs) >= 18
    for spec, length in specs:
        steps = axis_steps(spec, length)
        assert js(STEPS, spec_data(spec), length) == text_of(steps), spec
        positions = torch.tensor(POSITIONS)
        body = "return a[0].map(p => a[1].map(s => String(phaseOf(p, BigInt(s)))))"
        for row in steps:
            expected = phases(positions.unsqueeze(0), torch.tensor(row).unsqueeze(0)).tolist()
            assert js(body, POSITIONS, text_of([row])[0]) == text_of(expected)


DIVISORS = tuple(1 + i / 7 for i in range(16))
SCALINGS = [
    None, Linear(3.7), NTK(7.3), NTKFixed(2.5), DynamicNTK(2.0, 4096), SteppedNTK(2048),
    YaRN(factor=5.0, original_max_position=4096), YaRN(factor=40.0, original_max_position=512, truncate=False),
    YaRN(factor=8.0, original_max_position=64, beta_fast=2.0, beta_slow=2.0),
    YaRNPaper(factor=4.0, original_max_position=4096),
    Llama3(8.0, 1.0, 4.0, 8192), Llama3(8.0, 2.0, 2.0, 8192),
    LongRoPE(DIVISORS, DIVISORS[::-1], 4096, 32.0), Proportional(0.3, 2.0),
]  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: "none" if s is None else s.name)
def test_what_is_dragged(js, scaling):
    """Bases and lengths that no config has."""
    for base in (1.01, 2.0, 9876.5, 500_001.25, 1e12):
        spec = RotarySpec(head_dim=32, base=base, scaling=scaling)
        for length in (None, 100, 4097, 123_457, 2**31):
            assert js(STEPS, spec_data(spec), length) == text_of(axis_steps(spec, length)), (base, length)
            factor = js("return attentionFactor(a[0].scaling, a[1])", spec_data(spec), length)
            assert factor == pytest.approx(spec.attention_factor(length), rel=1e-15)


def test_widths_exponents_and_listed_frequencies(js):
    for spec in (
        RotarySpec(head_dim=10, exponent_dim=9, rotary_dim=10),
        RotarySpec(head_dim=8, rotary_dim=4, position_scale=0.125),
        RotarySpec(head_dim=6, frequencies=(3.141592653589793, 0.0, -50.0)),
    ):
        assert js(STEPS, spec_data(spec), None) == text_of(axis_steps(spec)), spec


def test_golden_vectors(js, tmp_path):
    """cos and sin of the page are those of the golden vectors of every config that comes with phasor."""
    pytest.importorskip("safetensors")
    from phasor_lab.demo.run import bundled_models

    body = """
      const steps = stepsOf(a[0], a[1]);
      return a[2][0].map((_, i) => steps[0].map((_, p) => {
        const phase = steps.reduce((sum, row, axis) => sum + phaseOf(a[2][axis][i], row[p]), 0n);
        return cosSin(BigInt.asIntN(64, phase));
      }));"""
    compared = 0
    for name, one in bundled_models().items():
        write(one["config"], tmp_path / name.replace("/", "--"))
        golden = read_vectors(tmp_path / name.replace("/", "--"))
        for kind in golden.kinds.values():
            if kind.exact is None or kind.moved:
                continue
            at = golden.tensors[f"{kind.name}.positions"].reshape(kind.exact.axes.count, -1)
            rows = torch.tensor(js(body, spec_data(kind.exact), kind.seq_len, at.tolist()), dtype=torch.float64)
            rows = rows * kind.exact.attention_factor(kind.seq_len)
            for i, table in enumerate(("cos", "sin")):
                expected = golden.tensors[f"{kind.name}.exact.{table}"].double().reshape(rows.shape[:2])
                assert (rows[..., i] - expected).abs().max() < 1e-15  # a few steps of float64 at 1
                compared += 1
    assert compared >= 24
