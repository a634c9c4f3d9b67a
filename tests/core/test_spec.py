"""RotarySpec as data: there and back through JSON, equality, hashing, strictness, and words for people."""

import copy
import dataclasses
import itertools
import json
import pickle

import pytest
import torch

from phasor import RotarySpec
from phasor.rotary.axes import Axial, Mixed, Sections
from phasor.rotary.scaling import NTK, Linear, LongRoPE, YaRN
from phasor.rotary.spec import axis_steps

from .conftest import SPECS, every_map, every_spec

VARIANTS = {
    "float32": {"angles": "float32"},
    "float32 tables": {"angles": "float32", "tables": "float32"},
    "rounded tables": {"angles": "float32", "tables": "rounded"},
    "promoted": {"angles": "float32", "tables": "promoted"},
    "float64": {"angles": "float64"},
    "float64, rounded": {"angles": "float64_rounded"},
}


def through_json(spec):
    return RotarySpec.from_dict(json.loads(json.dumps(spec.to_dict(), allow_nan=False)))


@every_map
def test_there_and_back(spec):
    for variant in (spec, *(spec.replace(**changes) for changes in VARIANTS.values())):
        back = through_json(variant)
        assert back == variant
        assert hash(back) == hash(variant)
        assert repr(back) == repr(variant)
        assert back.diff(variant) == {}
        assert torch.equal(back.inv_freq(9999), variant.inv_freq(9999))


def test_there_and_back_of_every_optional_field():
    for spec in (
        RotarySpec(
            head_dim=8,
            scaling=YaRN(
                40.0, 4096, beta_fast=24.0, beta_slow=2.0, truncate=False, mscale=1.0, mscale_all_dim=0.7, attention=1.5
            ),
        ),
        RotarySpec(head_dim=2, scaling=LongRoPE((1.5,), (2.5,), 4096, 8.0, attention=1.2, attention_short=1.1)),
        RotarySpec(head_dim=4, axes=Mixed(((1.0, 0.5), (0.1, 0.2), (3.0, 4.0)))),
    ):
        assert through_json(spec) == spec


@every_spec
def test_dict_is_plain(spec):
    data = spec.to_dict()
    assert json.loads(json.dumps(data)) == data and set(data) == {f.name for f in dataclasses.fields(RotarySpec)}


def test_all_specs_differ_and_hash():
    """330 choices of factors are 330 specs: none is lost in equality, in a set or in a dict."""
    assert len(set(SPECS.values())) == len(SPECS)
    some = list(SPECS.values())[::17]
    for a, b in itertools.combinations(some, 2):
        assert a != b
        assert a.diff(b)
    for spec in some:
        assert spec == copy.copy(spec) == copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec))


def test_steps_of_different_schemes_differ():
    """Guards the cache: two specs whose frequencies differ never share steps."""
    halves = {n: s for n, s in SPECS.items() if n.endswith("-full-halves") or n in ("base-5e5", "frequencies")}
    table = {name: axis_steps(spec, 10_000) for name, spec in halves.items()}
    # stepped_ntk's octaves give the factor 15 that nothing else has here; every table is its own
    for (a, first), (b, second) in itertools.combinations(table.items(), 2):
        assert first != second, (a, b)


def test_seq_len_is_part_of_the_cache():
    spec = SPECS["dynamic-one-full-halves"]
    assert len({axis_steps(spec, n) for n in (4096, 5000, 8192, 16384)}) == 4
    assert axis_steps(spec, 100) == axis_steps(spec, 4096) == axis_steps(spec, None)


def test_lists_become_tuples():
    assert RotarySpec(head_dim=4, frequencies=[1.0, 0.5]).frequencies == (1.0, 0.5)
    assert Axial([2, 2]) == Axial((2, 2))
    assert Sections([1, 1, 2]) == Sections((1, 1, 2))
    assert Mixed([[1.0], [2.0]]) == Mixed(((1.0,), (2.0,)))
    assert LongRoPE([1.0], [2.0], 4096, 2.0) == LongRoPE((1.0,), (2.0,), 4096, 2.0)
    assert hash(RotarySpec(head_dim=4, frequencies=[1.0, 0.5], axes=Axial([1, 1])))


def test_replace():
    spec = RotarySpec(head_dim=128, rotary_dim=64, scaling=NTK(2.0))
    assert spec.replace(base=5.0) == RotarySpec(head_dim=128, rotary_dim=64, base=5.0, scaling=NTK(2.0))
    assert spec.rotary_dim == 64
    with pytest.raises(ValueError, match="rotary_dim must be at most head_dim"):
        spec.replace(head_dim=32)


def test_diff():
    a = RotarySpec(head_dim=128, base=500.0, scaling=NTK(2.0))
    b = RotarySpec(head_dim=128, interleaved=True, scaling=Linear(2.0))
    expected = {"base": (500.0, 10_000.0), "interleaved": (False, True), "scaling": (NTK(2.0), Linear(2.0))}
    assert a.diff(b) == expected
    assert b.diff(a) == {name: (theirs, mine) for name, (mine, theirs) in expected.items()}
    assert a.diff(a) == {}


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"head_dim": 128}, "all 128 channels, halves, base 10000, no scaling, one axis, exact angles"),
        (
            {"head_dim": 192, "rotary_dim": 64, "trailing": True, "interleaved": True, "base": 5e5},
            "last 64 of 192 channels, interleaved, base 500000, no scaling, one axis, exact angles",
        ),
        (
            {"head_dim": 8, "rotary_dim": 4, "frequencies": (1.0, 0.5), "angles": "float32"},
            "first 4 of 8 channels, halves, 2 explicit frequencies, no scaling, one axis, "
            "float32 angles (tables: activation)",
        ),
        (
            {"head_dim": 16, "scaling": YaRN(4.0, 4096, truncate=False), "axes": Sections((2, 3, 3))},
            "all 16 channels, halves, base 10000, yarn(factor=4.0, original_max_position=4096, truncate=False), "
            "sections(sections=(2, 3, 3)), exact angles",
        ),
    ],
)
def test_describe(fields, words):
    assert RotarySpec(**fields).describe() == words


def test_describe_cuts_long_lists():
    line = RotarySpec(head_dim=64, scaling=LongRoPE((1.0,) * 32, (2.0,) * 32, 4096, 32.0)).describe()
    assert "short_factor=[32 values], long_factor=[32 values]" in line


def test_two_specs_that_rotate_differently_are_described_differently():
    float32 = [RotarySpec(head_dim=8, angles="float32", tables=t) for t in ("activation", "rounded")]
    assert len({spec.describe() for spec in (*SPECS.values(), *float32)}) == len(SPECS) + 2
