"""rows.json and the rows that it makes."""

import json
from functools import partial

import pytest

from evidence import __main__ as make_rows
from phasor.models.reading.axes import striped
from phasor.models.reading.row import Alias, PartOf, Row
from phasor.models.reading.text import TextModel
from phasor.models.rows import FILE, ROWS, RULES, RowTable, as_data, full, made
from phasor.support.checks import keys_once

TEXT = FILE.read_text(encoding="utf-8")
DATA = json.loads(TEXT, object_pairs_hook=keys_once)  # a model type stands there once


def test_rows_say_what_the_file_says() -> None:
    """There and back: no field is lost, none is there that its class does not have or that says its default."""
    rows = {name: made(data, DATA) for name, data in DATA.items()}
    assert [name for name, row in rows.items() if not isinstance(row, Row | Alias)] == []
    assert {name: as_data(row) for name, row in rows.items()} == {name: full(row, DATA) for name, row in DATA.items()}


def test_the_file_is_in_the_order_of_the_names() -> None:
    assert list(DATA) == sorted(DATA)


def test_a_field_of_the_row_is_an_object() -> None:
    row = made({"is": "TextModel", "config": "C", "axes": {"rule": "striped", "default": [2, 1, 1]}}, {})
    assert isinstance(row.axes, partial) and row.axes.func is striped and row.axes.keywords == {"default": (2, 1, 1)}
    assert made({"is": "PartOf", "row": "x", "defaults": {"list": [1]}}, {}) == PartOf("x", {"list": [1]})


def test_all_rules_that_rows_name_are_there_and_every_function_of_a_family_is_named() -> None:
    named = {value for _, value in walk(DATA)}
    assert named <= RULES.keys()
    own = {name for name, function in RULES.items() if ".rules." in function.__module__}
    assert own - named == {"listed"}, "a rule that no row names; `listed` is what two of them share"


def walk(value: object) -> list[tuple[str, str]]:
    if isinstance(value, list):
        return [pair for each in value for pair in walk(each)]
    if not isinstance(value, dict):
        return []
    rule = [("rule", value["rule"])] if isinstance(value.get("rule"), str) else []
    return rule + [pair for each in value.values() for pair in walk(each)]


def test_rows_are_made_when_they_are_asked_for() -> None:
    data = {"a": {"is": "TextModel", "config": "A"}, "b": {"is": "no such class"}}
    table = RowTable(data)
    assert list(table) == ["a", "b"] and "b" in table and len(table) == 2
    assert isinstance(table["a"], TextModel) and table["a"] is table["a"]
    with pytest.raises(KeyError, match="no such class"):
        table["b"]
    del table["b"]
    assert "b" not in table and dict(ROWS).keys() == DATA.keys()


def test_a_type_without_a_row_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's class has no rope parameters, so it needs no row."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(make_rows, "stated", dict)
    monkeypatch.setattr(make_rows, "observe_all", lambda *_: 0)
    assert make_rows.main(["gpt_neox", "bert"]) == 1
    assert capsys.readouterr().out == "new: gpt_neox: GPTNeoXConfig\n1 new, 0 changed\n"
