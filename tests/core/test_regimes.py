"""Specs at one length, and batches whose rows have lengths of their own."""

import json

import pytest
import torch

from phasor import RotarySpec, Rotation
from phasor.rotary.scaling import AtLength, DynamicNTK, LongRoPE, SteppedNTK, YaRN
from refused import refused

from .conftest import LOG_SCALE, anywhere, every_spec

LONGROPE = LongRoPE((1.0, 1.1, 1.2, 1.3), (1.0, 2.0, 4.0, 8.0), 128, 4.0)
DEPENDENT = {s.name: RotarySpec(head_dim=8, scaling=s) for s in (DynamicNTK(2.0, 128), SteppedNTK(128), LONGROPE)}
LENGTHS = (1, 60, 127, 128, 129, 255, 256, 257, 400, 513, 100_000)
ANGLES = ("exact", "float32")


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("spec", DEPENDENT.values(), ids=DEPENDENT)
def test_a_spec_at_a_length_has_the_bits_of_that_length(spec, angles):
    spec, positions = spec.replace(angles=angles), torch.tensor([0, 1, 127, 128, 100_000])
    for n in LENGTHS:
        frozen = spec.at_length(n)
        assert not frozen.length_dependent and frozen.at_length(7) is frozen
        there, here = Rotation.at(frozen, positions), Rotation.at(spec, positions, n)
        assert torch.equal(there.cos, here.cos) and torch.equal(there.sin, here.sin)
        assert there.magnitude == here.magnitude
        assert RotarySpec.from_dict(json.loads(json.dumps(frozen.to_dict()))) == frozen


@every_spec
def test_what_depends_on_no_length_stays_itself(spec):
    assert (spec.at_length(9) is spec) == (not spec.length_dependent)


def test_lengths_of_one_regime_are_one():
    """By the schemes' own definitions: all inside, one by one beyond (dynamic); octaves (Qwen-1); one threshold."""
    keys = {name: [spec.at_length(n).cache_key for n in LENGTHS] for name, spec in DEPENDENT.items()}
    regimes = {name: [found.index(key) for key in found] for name, found in keys.items()}
    assert regimes == {
        "dynamic": [0, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10],
        "stepped_ntk": [0, 0, 0, 0, 4, 4, 4, 7, 7, 9, 10],
        "longrope": [0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4],
    }
    assert len({key for found in keys.values() for key in found}) == 8 + 5 + 2


def test_equal_frequencies_are_equal_specs():
    """A scaling without lengths has one regime, whatever length it is put at: moved keys are such specs."""
    yarn = YaRN(4.0, 128)
    assert AtLength(yarn, 9) == AtLength(yarn, 90_000) == AtLength(yarn, None)
    assert AtLength(yarn, 9, 1.0) != AtLength(yarn, 9)  # another factor


def test_the_cache_key_is_stable():
    """By sha256sum, of the fields that are no defaults: another process and another machine have the same one."""
    assert (
        RotarySpec(head_dim=128, base=500_000.0).cache_key == "fc9d44447c8a3733"
    )  # {"base": 500000.0, "head_dim": 128}


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("spec", DEPENDENT.values(), ids=DEPENDENT)
def test_a_row_among_longer_ones_has_its_own_bits(spec, angles):
    spec = spec.replace(angles=angles)
    lengths, positions = [60, 400, 128, 60, 90_000], torch.randint(0, 1000, (5, 33))
    for given in (lengths, tuple(lengths), torch.tensor(lengths)):
        together = Rotation.at(spec, positions, given)
        for row, length in enumerate(lengths):
            alone = Rotation.at(spec, positions[row], length)
            assert torch.equal(together.cos[row], alone.cos) and torch.equal(together.sin[row], alone.sin)
        assert together.magnitude == alone.magnitude


@every_spec
def test_rows_of_every_spec(spec):
    positions = anywhere(spec, -1000, 1000, 5, 3)
    log_scale = LOG_SCALE if spec.learned else None
    together = Rotation.at(spec, positions, [9, 9000, 20_000], log_scale=log_scale)
    for row, length in enumerate((9, 9000, 20_000)):
        alone = Rotation.at(spec, positions[..., row, :], length, log_scale=log_scale)
        assert torch.equal(together.cos[row], alone.cos) and torch.equal(together.sin[row], alone.sin)


SPEC = DEPENDENT["dynamic"]
AT = torch.zeros(2, 3, dtype=torch.long)
TWO_FACTORS = RotarySpec(head_dim=8, scaling=LongRoPE((1.0,) * 4, (2.0,) * 4, 128, 4.0, 1.3, 1.2))
REFUSED = """
SPEC.cache_key => cache_key needs a spec at one length … spec.at_length(n)
SPEC.at_length(0) => seq_len must be an integer of at least 1, got 0
Rotation.at(SPEC, AT, [1, 2, 3]) => seq_len must be an integer, or one for each of 2 rows
Rotation.at(SPEC, AT, [1, -2]) => seq_len[1] must be an integer of at least 1, got -2
Rotation.at(SPEC, AT, torch.ones(2)) => seq_len must be an integer, or one for each
Rotation.at(SPEC, AT[0], [1, 2]) => positions must have a batch axis if seq_len
Rotation.at(TWO_FACTORS, AT, [9, 999]) => seq_len must give all rows … [1.2, 1.3] … own
AtLength(AtLength(SPEC.scaling, 9), 9) => scaling must not be fixed to a length already
AtLength(SPEC.scaling, None) => seq_len must be a length for dynamic scaling, got None
AtLength(YaRN(4.0, 128), None, 0.0) => attention must be a finite number above 0
"""
test_refused = refused(REFUSED, globals())
