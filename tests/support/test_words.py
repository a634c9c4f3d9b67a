"""What small functions say: an expression in each row, and its value; and what is refused."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from phasor.rotary import scaling
from phasor.rotary.axes import Axial
from phasor.support import checks, errors, findings, json_files, names, number_text, registry, schemes, tracing
from refused import refused, rows

PLACES = (checks, errors, findings, json_files, names, number_text, registry, schemes, scaling)
NAMES = {name: value for place in PLACES for name, value in vars(place).items()} | {"Axial": Axial, "math": math}
FIELDS = ("bases", "base", "axes")
WRONG = findings.Finding(where="a", what="b", verdict="wrong")
VALUES = """
first_line(ValueError('x' * 300)) => 'x' * 200
size_text(2**40) => '1 TiB'
size_text(2**40 - 2**30) => '1,023 GiB'
size_text(2**30) => '1 GiB'
size_text(2**20) => '1 MiB'
size_text(2**10) => '1 KiB'
ranges([2 * i for i in range(9)]) => '0, 2, 4, 6, 8, 10, 12, … (2 more)'
ranges([2 * i for i in range(8)]) => '0, 2, 4, 6, 8, 10, 12, 14'
no_field('bas', FIELDS) => 'bas is no field of RotarySpec; did you mean base? (a whole config is read by ' +
    'phasor.read_config)'
plain((1, [2.0, (math.inf,)], {'a': (3,)})) => [1, [2.0, ['inf']], {'a': [3]}]
whole('n', 2**62) => None
number('n', 0, at_least=0) => None
parse_json(b'\\xef\\xbb\\xbf{"a": 1}', Path('p')) => {'a': 1}
brief(Axial((2, 3))) => 'axial(sizes=(2, 3))'
to_data(AtLength(DynamicNTK(2.0, 8), 9)) => {'name': 'at_length', 'scaling': {'name': 'dynamic', 'factor': 2.0,
    'original_max_position': 8}, 'seq_len': 9, 'attention': None}
Report('s', ()).summary() => 's: not shown: 0 checks'
Report('s', (WRONG,)).summary() => 's: wrong: 1 of 1 check: unknown cause'
Report('s', (WRONG, WRONG)).summary() => 's: wrong: 2 of 2 checks: unknown cause'
"""


@pytest.mark.parametrize("call, value", [(call, " … ".join(value)) for call, value in rows(VALUES)])
def test_value(call: str, value: str) -> None:
    assert eval(call, NAMES | globals()) == eval(value, NAMES | globals())


@dataclass(frozen=True)
class Frozen:
    name = "frozen"


test_refused = refused(
    """
whole('n', 2**62 + 1) => n must be an integer of at most 2**62, got 46
whole('n', True) => n must be an integer of at least 1, got True
number('n', math.nan) => n must be a finite number, got nan
number('n', 0, above=0) => n must be a finite number above 0, got 0
one_of('n', 'd', ['a', 'b', 'c']) => n must be 'a', 'b' or 'c', got 'd'
parse_json(b'{"a": "\\xff"}', Path('p')) => p: is not JSON in UTF-8
parse_json(b'[' * 100_000, Path('p')) => p: is nested too deeply
parse_json(b'[]', Path('p')) => p: must hold a JSON object, got list
register_scheme({}, 'kind', Frozen, Axial) => a kind must be a frozen dataclass that inherits from Axial
register_scheme({}, 'kind', 'Frozen', Axial) => a kind must be a frozen dataclass that inherits from Axial
""",
    NAMES | globals(),
)


def test_a_json_file_has_at_most_100_mib(tmp_path: Path) -> None:
    for more, says in ((0, "is not JSON in UTF-8"), (1, "must have at most 104857600 bytes")):
        (tmp_path / "large.json").touch()
        os.truncate(tmp_path / "large.json", 100 * 2**20 + more)
        with pytest.raises(ValueError, match=says):
            json_files.read_json(tmp_path / "large.json")


def test_a_default_device_is_no_mode_that_watches() -> None:
    with torch.device("cpu"):
        assert not tracing.watched()
    with torch.overrides.BaseTorchFunctionMode():
        assert tracing.watched()
