import pytest

from phasor_lab.lab import quick

pytest.importorskip("matplotlib")


def test_quick_leaves_a_report_and_can_be_repeated(text_file, tmp_path):
    said: list[str] = []
    budget = {"tokens": 4096, "scored": 512, "progress": False, "command": "phasor demo"}
    numbers = quick(tmp_path, [text_file], **budget, say=said.append)
    curves = numbers["sections"]["loss_by_length"]["curves"]
    assert list(curves) == ["rotary", "alibi", "sinusoidal"]
    assert [length for length, _ in curves["rotary"]] == [64, 96, 128, 256, 512]
    assert list(numbers["sections"]["extension"]["curves"]) == ["none", "linear", "ntk", "yarn"]
    assert numbers["commands"] == ["phasor demo"]
    assert (tmp_path / "report.txt").is_file()
    assert "sinusoidal" in said[0]
    assert quick(tmp_path, [text_file], **budget, say=said.append) == numbers
