import json

import pytest

from phasor.encodings import ALiBi
from phasor_lab.lab import ENCODINGS, compare, register_encoding

pytest.importorskip("matplotlib")


@pytest.fixture
def only_none():
    """All encodings but one away; afterwards they are as they were, in their order."""
    kept = dict(ENCODINGS)
    for name in kept.keys() - {"none"}:
        del ENCODINGS[name]
    yield
    ENCODINGS.clear()
    ENCODINGS.update(kept)


@pytest.mark.usefixtures("only_none")
def test_an_encoding_of_another_package_stands_beside_all_others(text_file, tmp_path):
    register_encoding("theirs", lambda c: [ALiBi(c.heads) for _ in range(c.layers)])
    said: list[str] = []
    numbers = compare(tmp_path, text=[text_file], tokens=2048, scored=512, progress=False, say=said.append)
    curves = numbers["sections"]["loss_by_length"]["curves"]
    assert list(curves) == ["none", "theirs"]
    assert [length for length, _ in curves["theirs"]] == [64, 128, 256, 512]
    assert "theirs" in said[0]
    with pytest.raises(ValueError, match="the name of this encoding must be free, and 'none' is taken"):
        register_encoding("none", lambda c: ALiBi(c.heads))


@pytest.mark.parametrize("options", [[], ["--all", "--encoding", "fox"]])
def test_the_command_asks_which(phasor, options):
    code, _, errors = phasor("lab", "compare", *options)
    assert code == 2 and "encodings must be named by --encoding, or all of them by --all" in errors


def test_the_command_prints_the_numbers(phasor, text_file, tmp_path, monkeypatch):
    monkeypatch.setitem(compare.__kwdefaults__, "tokens", 2048)
    monkeypatch.setitem(compare.__kwdefaults__, "scored", 512)
    options = ["--encoding", "fox", "--small", "--text", text_file, "--out", tmp_path, "--json"]
    code, printed, errors = phasor("lab", "compare", *options)
    assert code in (0, None), errors
    assert list(json.loads(printed)["sections"]["loss_by_length"]["curves"]) == ["fox"]


def test_a_comparison_extends_the_rotary_one_and_can_be_repeated(text_file, tmp_path):
    said: list[str] = []
    budget = {"tokens": 2048, "scored": 512, "times": (1, 1.5, 2), "schemes": ("none", "yarn"), "progress": False}
    numbers = compare(tmp_path, ["sinusoidal", "rotary"], [text_file], **budget, command="phasor", say=said.append)
    curves = numbers["sections"]["loss_by_length"]["curves"]
    assert list(curves) == ["rotary", "sinusoidal"] and [length for length, _ in curves["rotary"]] == [64, 96, 128]
    assert list(numbers["sections"]["extension"]["curves"]) == ["none", "yarn"]
    assert numbers["commands"] == ["phasor"] and (tmp_path / "report.txt").is_file() and "sinusoidal" in said[0]
    again = compare(tmp_path, ["sinusoidal", "rotary"], [text_file], **budget, command="phasor", say=said.append)
    assert again == numbers
