import json
from itertools import pairwise

import pytest

from phasor_lab.lab import ModelConfig, RunConfig, figures, report
from phasor_lab.lab.results import EVALUATION, EXTENSION, find_runs
from phasor_lab.lab.train import CHECKPOINT, RUN

pytest.importorskip("matplotlib")


MEASURED = {"trained_loss": 2.0, "byte_pairs_loss": 2.5}


def make_run(folder, encoding, seed, losses, extension=None, protocol="tiles", **model):
    """A run as train, evaluate and extend leave it, with chosen numbers; `losses` is {length: loss}."""
    config = RunConfig(model=ModelConfig(encoding=encoding, **model), seed=seed, source="abc")
    place = folder / config.name
    place.mkdir(parents=True)
    (place / CHECKPOINT).touch()
    about = {"command": f"phasor lab train --encoding {encoding} <&>", "text": "sentences.txt"}
    (place / RUN).write_text(json.dumps({"run": config.to_dict(), "about": about}))
    rows = [{"length": n, "loss": x} for n, x in losses.items()]
    (place / EVALUATION).write_text(json.dumps({**MEASURED, "protocol": protocol, "by_length": rows}))
    if extension:
        rows = [{"scheme": s, "factor": f, "length": 64 * f, "loss": x} for s, f, x in extension]
        (place / EXTENSION).write_text(json.dumps({**MEASURED, "protocol": "tiles", "table": rows}))
    return place


def write_runs(folder):
    make_run(folder, "rotary", 0, {64: 2.0, 128: 3.0}, [("none", 2, 3.0), ("yarn", 2, 2.5)])
    make_run(folder, "rotary", 1, {64: 2.5, 128: 4.0}, [("none", 2, 4.0), ("yarn", 2, 2.0)])
    make_run(folder, "learned", 0, {64: 2.25, 128: None})
    return folder


@pytest.fixture
def runs(tmp_path):
    return write_runs(tmp_path / "runs")


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A report of runs of every kind, and what it returned."""
    folder = tmp_path_factory.mktemp("report")
    return folder / "report", report([write_runs(folder / "runs")], folder / "report")


def test_numbers_of_several_seeds_stand_side_by_side(reported):
    folder, data = reported
    curves = {name: dict(section["curves"]) for name, section in data["sections"].items()}
    assert curves["loss_by_length"] == {"rotary": [(64, [2.0, 2.5]), (128, [3.0, 4.0])], "learned": [(64, [2.25])]}
    assert curves["extension"] == {"none": [(2, [3.0, 4.0])], "yarn": [(2, [2.5, 2.0])]}
    assert json.loads((folder / "report.json").read_text()) == json.loads(json.dumps(data))


def test_one_seed_is_called_one_seed(reported):
    told = {name: section["seeds"] for name, section in reported[1]["sections"].items()}
    several = "rotary: means over 2 seeds (0, 1), bands and small numbers from the least to the greatest"
    assert told["loss_by_length"] == f"{several}; learned: one seed (0)."
    assert told["extension"] == f"{several}."
    assert "learned: one seed (0). Protocol: tiles" in (reported[0] / "report.txt").read_text()


def test_the_text_shows_means_ranges_protocol_and_command(reported):
    folder, data = reported
    lines = [" ".join(line.split()) for line in (folder / "report.txt").read_text().splitlines()]
    assert "rotary 2.250 (2.00–2.50) 3.500 (3.00–4.00)" in lines and "learned 2.250 –" in lines
    assert "yarn 2.250 (2.00–2.50)" in lines
    assert "phasor lab train --encoding rotary <&>" in lines and "Text: sentences.txt" in lines
    assert sorted(path.name for path in folder.glob("*.png")) == sorted(f"{name}.png" for name in data["sections"])


@pytest.mark.parametrize("word", ["a\x1b[31m", "a\x00", "a\ud800", "漢字", r"$\frac{$", "x" * 400_000])
def test_names_of_schemes_are_only_words_in_a_figure(word, tmp_path):
    """matplotlib takes what stands between dollar signs for a formula, and warns of letters that its font lacks."""
    runs = tmp_path / "runs"
    make_run(runs, "rotary", 0, {64: 2.0, 128: 3.0}, [("none", 2, 3.0), (word, 2, 2.5)])
    make_run(runs, "rotary", 1, {64: 2.5, 128: 4.0}, [("none", 2, 4.0), (word, 2, 2.0)])
    report([runs], tmp_path / "report")


def test_every_line_of_a_chart_has_a_look_of_its_own():
    looks = [figures.look(i) for i in range(10)]
    assert len({one["color"] for one in looks[:9]}) == 9  # the schemes of an extension
    assert len({(str(one["linestyle"]), one["color"]) for one in looks}) == 10
    assert len({one["marker"] for one in looks}) == 10
    for one, after in pairwise(looks):
        assert one["linestyle"] != after["linestyle"] and one["color"] != after["color"]


def test_runs_that_do_not_compare_are_refused(runs, tmp_path):
    with pytest.raises(ValueError, match=r"folder must hold runs as `phasor lab train` makes them, got '.*nothing'"):
        find_runs([tmp_path / "nothing"])
    odd = make_run(tmp_path / "odd", "none", 0, {64: 1.0}, protocol="slides")
    with pytest.raises(ValueError, match=r"must share their protocol, got \['slides', 'tiles'\]; report them apart"):
        report([runs, odd], tmp_path / "report")
    longer = make_run(tmp_path / "longer", "none", 0, {64: 1.0}, length=32)
    with pytest.raises(ValueError, match=r"must share their training length, got \['32', '64'\]"):
        report([runs, longer], tmp_path / "report")
    (odd / EVALUATION).unlink()
    with pytest.raises(ValueError, match=r"evaluated to be reported; call `phasor lab evaluate` first on .*odd"):
        report([odd], tmp_path / "report")
    (odd / EVALUATION).write_text("{")
    with pytest.raises(ValueError, match=r"evaluation.json must be JSON as phasor wrote it, got: .*; delete it"):
        report([odd], tmp_path / "report")
