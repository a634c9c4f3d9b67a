"""Errors of specs and schemes: each names the argument, the rule, the value received and the way out."""

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation
from phasor.rotary.axes import Alternating, Axial, InterleavedSections, Listed, Mixed, Sections, mixed_frequencies
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
from phasor.rotary.temperature import LearnedLog, LogFloor, Power
from phasor.support.checks import number, whole

from .conftest import assert_refused

NAN, INF = float("nan"), float("inf")
SPEC = RotarySpec(head_dim=8)
ROTATION = Rotation.at(SPEC, torch.arange(5))


def long(**changes):
    fields = {"short_factor": (1.0,), "long_factor": (1.0,), "original_max_position": 8, "factor": 2.0}
    return LongRoPE(**(fields | changes))


# case -> (call, every fragment its message must have)
CASES = {
    # checks
    "number none": (lambda: number("n", None), ["n must be a finite number, got None"]),
    "number bool": (lambda: number("n", True), ["got True"]),
    "whole float": (lambda: whole("w", 8.0), ["w must be an integer of at least 1, got 8.0"]),
    "whole bool": (lambda: whole("w", True), ["got True"]),
    # spec
    "odd": (lambda: RotarySpec(head_dim=7), ["head_dim must be even if all its channels rotate", "pairs", "got 7"]),
    "odd head, way out": (lambda: RotarySpec(head_dim=63), ["got 63", "rotary_dim, 62 or less"]),
    "odd width": (lambda: RotarySpec(head_dim=64, rotary_dim=63), ["rotary_dim must be a positive even", "got 63"]),
    "name of a config": (
        lambda: RotarySpec(head_dim=8, rope_theta=1e6),
        ["rope_theta is no field of RotarySpec", "did you mean base?", "phasor.read_config"],
    ),
    "misspelled": (lambda: RotarySpec(head_dim=8, interleave=True), ["interleave is no", "did you mean interleaved?"]),
    "zero": (lambda: RotarySpec(head_dim=0), ["positive even", "got 0"]),
    "wide": (lambda: RotarySpec(head_dim=8, rotary_dim=10), ["at most head_dim", "rotary_dim=10 and head_dim=8"]),
    "fractional": (lambda: RotarySpec(head_dim=8, rotary_dim=4.0), ["rotary_dim must be an integer, got 4.0"]),
    "bool width": (lambda: RotarySpec(head_dim=True), ["must be an integer, got True"]),
    "base one": (lambda: RotarySpec(head_dim=8, base=1.0), ["base must be a finite number above 1, got 1.0"]),
    "base nan": (lambda: RotarySpec(head_dim=8, base=NAN), ["base", "got nan"]),
    "angles": (
        lambda: RotarySpec(head_dim=8, angles="hf"),
        ["angles must be 'exact', 'float32' or 'float64', got 'hf'"],
    ),
    "tables": (
        lambda: RotarySpec(head_dim=8, tables="bf16"),
        ["tables must be 'activation'", "or 'float64', got 'bf16'"],
    ),
    "coordinates": (
        lambda: RotarySpec(head_dim=8, coordinates="float"),
        ["coordinates must be 'integer' or 'real', got 'float'"],
    ),
    "position scale": (lambda: RotarySpec(head_dim=8, position_scale=0.0), ["position_scale", "above 0, got 0.0"]),
    "replaced by no field": (lambda: SPEC.replace(rope_theta=5.0), ["rope_theta is no", "did you mean base?"]),
    "axes": (lambda: RotarySpec(head_dim=8, axes=None), ["axes must be one of the schemes", "register_axes"]),
    "scaling of one's own": (  # no spec could be written down, or compiled, with it
        lambda: RotarySpec(head_dim=8, scaling=type("Mine", (Linear,), {})(2.0)),
        ["scaling must be one of the schemes in phasor.scaling", "phasor.scaling.register_scaling"],
    ),
    "stepped width": (lambda: RotarySpec(head_dim=2, scaling=SteppedNTK(8)), ["rotary_dim above 2", "got 2"]),
    "ntk axis width": (lambda: RotarySpec(head_dim=8, scaling=NTK(2.0), axes=Axial((1, 3))), ["above 2", "got 2"]),
    "huge length": (lambda: YaRN(4.0, 10**30), ["original_max_position must be an integer of at most 2**62"]),
    "stepped": (lambda: SteppedNTK(0), ["original_max_position", "of at least 1, got 0"]),
    "paper length": (lambda: YaRNPaper(2.0, 0), ["original_max_position", "got 0"]),
    "long seq_len": (lambda: long().is_long("9"), ["seq_len", "got '9'"]),
    "interleaved total": (lambda: RotarySpec(head_dim=8, axes=InterleavedSections((1, 1))), ["(1, 1) with sum 2"]),
    "layout odd": (lambda: Layout(head_dim=7), ["head_dim must be even", "got 7"]),
    "reverse": (lambda: RotarySpec(head_dim=8, reverse=1), ["reverse must be True or False, got 1"]),
    "learned": (lambda: RotarySpec(head_dim=8, learned="yes"), ["learned must be True or False, got 'yes'"]),
    "permuted halves": (lambda: RotarySpec(head_dim=8, permuted=True), ["permuted needs interleaved=True", "halves"]),
    "blocks zero": (lambda: RotarySpec(head_dim=8, blocks=0), ["blocks must be an integer of at least 1, got 0"]),
    "blocks uneven": (lambda: RotarySpec(head_dim=12, blocks=4), ["blocks must divide rotary_dim / 2 = 6", "got 4"]),
    "blocks interleaved": (
        lambda: RotarySpec(head_dim=8, blocks=2, interleaved=True),
        ["blocks must be 1 for interleaved pairs", "got 2"],
    ),
    "exponent short": (
        lambda: RotarySpec(head_dim=22, exponent_dim=20),
        ["exponent_dim must be at least 21 for 11 frequencies", "got 20"],
    ),
    "exponent odd": (
        lambda: RotarySpec(head_dim=42, rotary_dim=22, exponent_dim=21, scaling=Proportional(0.5)),
        ["exponent_dim must be even with proportional scaling", "got 21"],
    ),
    "exponent float": (lambda: RotarySpec(head_dim=8, exponent_dim=7.5), ["exponent_dim must be an integer", "7.5"]),
    "exponent of a list": (
        lambda: RotarySpec(head_dim=4, exponent_dim=3, frequencies=(1.0, 0.1)),
        ["frequencies and exponent_dim exclude each other", "got exponent_dim 3"],
    ),
    "second axes": (
        lambda: RotarySpec(head_dim=4, second=Axial((1, 1))),
        ["second must have as many coordinates as axes", "got 2 and 1"],
    ),
    "second width": (
        lambda: RotarySpec(head_dim=8, second=Listed((0,))),
        ["axis must have one value per pair, 4 here"],
    ),
    "second text": (lambda: RotarySpec(head_dim=8, second="x"), ["second must be one of the schemes in phasor.axes"]),
    # axes that take turns, and lists of them
    "order list": (lambda: Alternating(2), ["order must be a list or tuple, got 2"]),
    "order twice": (lambda: Alternating((0, 0)), ["order must name the axes 0, 1, … once each", "got (0, 0)"]),
    "order alone": (lambda: Alternating((0,)), ["at least two, got (0,)"]),
    "order negative": (lambda: Alternating((0, -1)), ["order[1] must be an integer of at least 0, got -1"]),
    "order uneven": (
        lambda: RotarySpec(head_dim=6, axes=Alternating()),
        ["order must name a number of axes that divides rotary_dim / 2 = 3", "use Listed"],
    ),
    "own ladders": (lambda: Alternating(own_ladders=1), ["own_ladders must be True or False, got 1"]),
    "axis empty": (lambda: Listed(()), ["axis must have one value per pair, got ()"]),
    "axis negative": (lambda: Listed((0, -1)), ["axis[1] must be an integer of at least 0, got -1"]),
    "axis width": (lambda: RotarySpec(head_dim=8, axes=Listed((0, 1))), ["one value per pair, 4 here, got 2"]),
    "axes too few": (lambda: Listed((0, 2), axes=2), ["axes must be an integer of at least 3, got 2"]),
    "rung count": (lambda: Listed((0, 1), ((0, 1),)), ["rung must have one value per pair like axis, 2, got 1"]),
    "rung shape": (lambda: Listed((0,), ((0, 1, 2),)), ["rung[0] must be (i, n)", "got (0, 1, 2)"]),
    "rung above": (lambda: Listed((0,), ((2, 2),)), ["rung[0][1] must be an integer of at least 3, got 2"]),
    # temperature
    "beta": (lambda: LogFloor(beta=NAN, length=8), ["beta must be a finite number, got nan"]),
    "length": (lambda: LogFloor(beta=0.1, length=0), ["length must be an integer of at least 1, got 0"]),
    "offset": (lambda: Power(offset=-1), ["offset must be an integer of at least 0, got -1"]),
    "temperature float": (lambda: Power().at(torch.ones(2)), ["positions must be a tensor of integers", "float32"]),
    "temperature list": (lambda: LogFloor(0.1, 8).at([1]), ["positions must be a tensor of integers, got list"]),
    "temperature of reals": (
        lambda: LearnedLog().at(torch.ones(2), torch.ones(3), torch.ones(3)),
        ["positions must be a tensor of integers", "float32"],
    ),
    "temperature heads": (
        lambda: LearnedLog().at(torch.arange(2), torch.ones(3), torch.ones(2)),
        ["scale and bias must have one value per head", "(3,)", "(2,)"],
    ),
    "scaling": (
        lambda: RotarySpec(head_dim=8, scaling="yarn"),
        ["scaling must be one of", "phasor.scaling", "'yarn'"],
    ),
    "frequencies count": (
        lambda: RotarySpec(head_dim=8, frequencies=(1.0,)),
        ["frequencies must have one value per pair, 4 here, got 1"],
    ),
    "frequencies value": (lambda: RotarySpec(head_dim=4, frequencies=(1.0, INF)), ["frequencies[1]", "got inf"]),
    "frequencies and scaling": (
        lambda: RotarySpec(head_dim=2, frequencies=(1.0,), scaling=Linear(2.0)),
        ["frequencies and scaling exclude each other", "Linear(factor=2.0)", "scale the list first"],
    ),
    "from list": (lambda: RotarySpec.from_dict([8]), ["data must be a dictionary as made by to_dict, got list"]),
    "from unknown": (
        lambda: RotarySpec.from_dict({"head_dim": 8, "theta": 5}),
        ["unknown keys ['theta']", "known: ['angles', 'axes', 'base'"],
    ),
    "from nothing": (lambda: RotarySpec.from_dict({}), ["data must have the key 'head_dim'"]),
    "from scheme": (
        lambda: RotarySpec.from_dict({"head_dim": 8, "scaling": {"name": "warp"}}),
        ["scaling must be a dictionary with a 'name' out of", "'yarn'", "got {'name': 'warp'}"],
    ),
    "from text scheme": (lambda: RotarySpec.from_dict({"head_dim": 8, "axes": "one"}), ["axes must be", "got 'one'"]),
    "from fields": (
        lambda: RotarySpec.from_dict({"head_dim": 8, "scaling": {"name": "linear", "scale": 2}}),
        ["scaling 'linear' does not fit its fields", "scale"],
    ),
    "from missing": (
        lambda: RotarySpec.from_dict({"head_dim": 8, "scaling": {"name": "yarn", "factor": 2.0}}),
        ["original_max_position must be an integer of at least 1, got None", "trained on before scaling"],
    ),
    # scalings
    "linear": (lambda: Linear(0.0), ["factor must be a finite number above 0, got 0.0"]),
    "ntk": (lambda: NTK(-1.0), ["factor", "above 0", "got -1.0"]),
    "ntk width": (lambda: RotarySpec(head_dim=2, scaling=NTK(2.0)), ["rotary_dim above 2", "dim / (dim - 2)", "got 2"]),
    "dynamic width": (lambda: RotarySpec(head_dim=2, scaling=DynamicNTK(2.0, 8)), ["rotary_dim above 2", "got 2"]),
    "ntk fixed": (lambda: NTKFixed(0), ["factor", "above 0", "got 0"]),
    "dynamic factor": (lambda: DynamicNTK(0.5, 8), ["factor", "of at least 1, got 0.5"]),
    "dynamic length": (lambda: DynamicNTK(2.0, 8.0), ["original_max_position must be an integer", "got 8.0"]),
    "seq_len float": (lambda: DynamicNTK(2.0, 8).factor_at(9.0), ["seq_len must be an integer", "got 9.0"]),
    "seq_len zero": (lambda: SteppedNTK(8).factor_at(0), ["seq_len", "of at least 1, got 0"]),
    "yarn factor": (lambda: YaRN(0.0, 8), ["factor", "above 0", "got 0.0"]),
    "yarn betas": (lambda: YaRN(2.0, 8, 1.0, 32.0), ["beta_fast", "of at least 32, got 1.0"]),
    "yarn slow": (lambda: YaRN(2.0, 8, beta_slow=0.0), ["beta_slow", "above 0", "got 0.0"]),
    "yarn mscale": (lambda: YaRN(2.0, 8, mscale=-1.0), ["mscale must", "at least 0", "got -1.0"]),
    "yarn mscale all": (lambda: YaRN(2.0, 8, mscale_all_dim=NAN), ["mscale_all_dim", "got nan"]),
    "yarn attention": (lambda: YaRN(2.0, 8, attention=0.0), ["attention", "above 0", "got 0.0"]),
    "paper factor": (lambda: YaRNPaper(INF, 8), ["factor", "got inf"]),
    "paper alpha": (lambda: YaRNPaper(2.0, 8, alpha=-1.0), ["alpha", "at least 0", "got -1.0"]),
    "paper beta": (lambda: YaRNPaper(2.0, 8, beta=1.0), ["beta", "above 1, got 1.0"]),
    "llama3 factor": (lambda: Llama3(0.0, 1.0, 4.0, 8), ["factor", "got 0.0"]),
    "llama3 low": (lambda: Llama3(2.0, 0.0, 4.0, 8), ["low_freq_factor", "above 0", "got 0.0"]),
    "llama3 high": (lambda: Llama3(2.0, 4.0, 1.0, 8), ["high_freq_factor", "of at least 4, got 1.0"]),
    "llama3 length": (lambda: Llama3(2.0, 1.0, 4.0, -8), ["original_max_position", "got -8"]),
    "longrope value": (lambda: long(long_factor=(0.0,)), ["long_factor[0]", "above 0", "got 0.0"]),
    "longrope short": (lambda: long(short_factor=("1",)), ["short_factor[0]", "got '1'"]),
    "longrope length": (lambda: long(original_max_position=0), ["original_max_position", "got 0"]),
    "longrope factor": (lambda: long(factor=-2.0), ["factor", "got -2.0"]),
    "longrope attention": (lambda: long(attention=0.0), ["attention must", "got 0.0"]),
    "longrope attention short": (lambda: long(attention_short=-1.0), ["attention_short", "got -1.0"]),
    "longrope count": (
        lambda: RotarySpec(head_dim=8, scaling=long()),
        ["short_factor must have one value per pair, 4 for rotary_dim 8, got 1"],
    ),
    "longrope long count": (
        lambda: long(long_factor=(1.0, 2.0)),
        ["short_factor and long_factor must have one value per pair each, got 1 and 2"],
    ),
    "longrope no list": (lambda: long(short_factor=1.0), ["short_factor must be a list or tuple, got 1.0"]),
    "longrope too short": (lambda: long(original_max_position=1), ["original_max_position", "at least 2, got 1"]),
    "proportional nothing": (
        lambda: RotarySpec(head_dim=16, scaling=Proportional(0.05)),
        ["fraction must keep at least one of 8 pairs, got 0.05"],
    ),
    "flag": (lambda: RotarySpec(head_dim=8, interleaved="false"), ["interleaved must be True or False, got 'false'"]),
    "flag of a dict": (lambda: RotarySpec.from_dict({"head_dim": 8, "trailing": 1}), ["trailing", "got 1"]),
    "truncate": (lambda: YaRN(4.0, 4096, truncate="no"), ["truncate must be True or False, got 'no'"]),
    "frequencies no list": (lambda: RotarySpec(head_dim=4, frequencies=3), ["frequencies must be a list or tuple"]),
    "frequencies of a dict": (
        lambda: RotarySpec.from_dict({"head_dim": 8, "frequencies": 5}),
        ["a list or tuple, got 5"],
    ),
    "axial no list": (lambda: Axial(4), ["sizes must be a list or tuple, got 4"]),
    "turns that cannot be taken": (
        lambda: RotarySpec(head_dim=16, axes=InterleavedSections((2, 4, 2))),
        ["sections cannot take turns as (2, 4, 2)", "axis 0 gets 3 pairs", "with Listed", "llama.cpp"],
    ),
    "proportional zero": (lambda: Proportional(0.0), ["fraction", "above 0", "got 0.0"]),
    "proportional two": (lambda: Proportional(2.0), ["fraction must be at most 1", "share of pairs", "got 2.0"]),
    "proportional factor": (lambda: Proportional(0.5, 0.0), ["factor", "got 0.0"]),
    # axes
    "axial one": (lambda: Axial((4,)), ["sizes must name at least two axes, got (4,)", "use OneAxis()"]),
    "axial zero": (lambda: Axial((4, 0)), ["sizes[1]", "at least 1, got 0"]),
    "axial total": (
        lambda: RotarySpec(head_dim=8, axes=Axial((2, 3))),
        ["sizes must add up to rotary_dim / 2 = 4 pairs, got (2, 3) with sum 5"],
    ),
    "sections none": (lambda: Sections(()), ["sections must name at least one axis, got ()"]),
    "sections value": (lambda: Sections((1, -1)), ["sections[1]", "at least 0, got -1"]),
    "sections total": (
        lambda: RotarySpec(head_dim=8, axes=Sections((2, 3))),
        ["sections must add up to rotary_dim / 2 = 4 pairs, got (2, 3) with sum 5"],
    ),
    "mixed none": (lambda: Mixed(()), ["directions must be one row per axis", "got rows of []"]),
    "mixed rows": (lambda: Mixed(((1.0, 2.0), (1.0,))), ["same number of pairs, got rows of [2, 1]"]),
    "mixed value": (lambda: Mixed(((1.0, NAN),)), ["directions[0][1]", "got nan"]),
    "mixed width": (
        lambda: RotarySpec(head_dim=8, axes=Mixed(((1.0,), (1.0,)))),
        ["directions must have one column per pair, 4 here, got 1"],
    ),
    "mixed start": (lambda: mixed_frequencies(6, 2), ["rotary_dim must be a positive multiple of 4", "got 6"]),
    "mixed start zero": (lambda: mixed_frequencies(0, 2), ["multiple of 4", "got 0"]),
    # layout
    "layout wide": (
        lambda: Layout(head_dim=8, rotary_dim=10),
        ["rotary_dim must be at most head_dim", "rotary_dim=10 and head_dim=8"],
    ),
    "permutation to another width": (
        lambda: Layout(head_dim=8).permutation(Layout(head_dim=8, rotary_dim=4)),
        ["target must have the same head_dim and rotary_dim", "got (8, 8) and (8, 4)"],
    ),
    "layout blocks": (lambda: Layout(head_dim=8, blocks=3), ["blocks must divide rotary_dim / 2 = 4", "got 3"]),
    "layout blocks permuted": (lambda: Layout(head_dim=8, blocks=2, permuted=True), ["blocks must be 1", "got 2"]),
}


@pytest.mark.parametrize("call, fragments", CASES.values(), ids=CASES)
def test_message(call, fragments):
    assert_refused(call, fragments)


def test_unknown_arguments_are_refused():
    """Nothing swallows a misspelt field, and nothing goes by its place."""
    with pytest.raises(ValueError, match="interleave"):
        RotarySpec(head_dim=8, interleave=True)
    with pytest.raises(TypeError):
        RotarySpec(8)


def test_the_edges_are_allowed():
    """One step inside every bound above."""
    RotarySpec(head_dim=2, base=1.0000001)
    RotarySpec(head_dim=3, rotary_dim=2)
    Proportional(1.0)
    DynamicNTK(1.0, 1)
    Llama3(1.0, 1.0, 1.0, 1)
    YaRN(1.0, 1, beta_fast=1.0, beta_slow=1.0)
    YaRN(2.0, 4096, mscale=0.0, mscale_all_dim=0.0)
    YaRNPaper(1.0, 1, alpha=0.0)
    Sections((0, 1))
