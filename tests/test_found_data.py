"""Every test that looks for outside data looks where PHASOR_TEST_DATA says, and a kept result knows its data."""

from pathlib import Path

import pytest

from found_data import found_data

TESTS = Path(__file__).parent


def test_the_folder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PHASOR_TEST_DATA", str(tmp_path))
    assert found_data() == tmp_path.resolve()
    monkeypatch.setenv("PHASOR_TEST_DATA", str(tmp_path / "absent"))
    with pytest.raises(pytest.fail.Exception, match="must name an existing folder"):
        found_data()


def test_one_place_knows_where_it_is():
    own = {"found_data.py", Path(__file__).name}
    assert [str(p) for p in TESTS.rglob("*.py") if p.name not in own and "shared/data" in p.read_text()] == []


def test_kept_results_are_of_the_configs_they_were_made_with(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from conformance.kept import fingerprint

    config = tmp_path / "configs/full/one.json"
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("PHASOR_TEST_DATA", str(tmp_path))
    config.write_text("{}")
    before = fingerprint.__wrapped__("patch")
    config.write_text('{"rope_theta": 1}')
    assert before != fingerprint.__wrapped__("patch")
