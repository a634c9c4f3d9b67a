import json
from itertools import pairwise

import pytest

from phasor_lab.lab import ModelConfig, RunConfig, figures, report
from phasor_lab.lab.results import EVALUATION, EXTENSION, find_runs
from phasor_lab.lab.train import CHECKPOINT, RUN

pytest.importorskip("matplotlib")


def make_run(folder, encoding, seed, losses, extension=None, task="text", protocol="tiles", **model):
    """A run as train, evaluate and extend leave it, with chosen numbers; `losses` is {length: loss}."""
    config = RunConfig(model=ModelConfig(encoding=encoding, **model), seed=seed, task=task, source="abc")
    place = folder / config.name
    place.mkdir(parents=True)
    (place / CHECKPOINT).touch()
    about = {"command": f"phasor lab train --encoding {encoding} <&>", "text": "sentences.txt"}
    (place / RUN).write_text(json.dumps({"run": config.to_dict(), "about": about}))
    value = "loss" if task == "text" else "accuracy"
    evaluation = {
        "task": task,
        "protocol": protocol,
        "by_length": [
            {"length": n, value: x, "blocks": [x - 0.5, x, x + 0.5]} if x else {"length": n, value: x}
            for n, x in losses.items()
        ],
        "by_position": {"length": 64, "position": [0, 32], "loss": [2.0, 1.0]},
    }
    (place / EVALUATION).write_text(json.dumps(evaluation))
    if extension:
        rows = [{"scheme": s, "factor": f, "length": 64 * f, "loss": x, "blocks": [x, x]} for s, f, x in extension]
        (place / EXTENSION).write_text(json.dumps({"protocol": "tiles", "table": rows, "curves": rows}))
    return place


def write_runs(folder):
    make_run(folder, "rotary", 0, {64: 2.0, 128: 3.0}, [("none", 2, 3.0), ("yarn", 2, 2.5)])
    make_run(folder, "rotary", 1, {64: 2.5, 128: 4.0}, [("none", 2, 4.0), ("yarn", 2, 2.0)])
    make_run(folder, "learned", 0, {64: 2.25, 128: None})
    make_run(folder, "alibi", 0, {64: 1.0, 128: 0.5}, task="copy")
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
    assert curves["extension_table"] == {"none": [(2, [3.0, 4.0])], "yarn": [(2, [2.5, 2.0])]}
    assert curves["copy"] == {"alibi": [(64, [1.0]), (128, [0.5])]}
    assert json.loads((folder / "report.json").read_text()) == json.loads(json.dumps(data))


def test_differences_are_those_of_one_seed_and_of_the_same_models(reported):
    curves = {name: section["curves"] for name, section in reported[1]["sections"].items()}
    assert curves["differences"] == {"learned": [(64, (0.25, 0.25, 0.25, 1))]}  # of seed 0: 2.25 - 2.0
    ((_, yarn),) = curves["extension_differences"]["yarn"]
    assert (yarn.mean, yarn.low, yarn.high, yarn.seeds) == (-1.25, -2.0, -0.5, 2)


def test_one_seed_is_called_one_seed(reported):
    told = {name: section["seeds"] for name, section in reported[1]["sections"].items()}
    several = "rotary: means over 2 seeds (0, 1), bands and small numbers from the least to the greatest"
    assert told["loss_by_length"] == f"{several}; learned: one seed (0)."
    assert told["copy"] == "alibi: one seed (0)."
    # small numbers of differences are intervals, no ranges of seeds
    assert told["differences"] == "rotary: means over 2 seeds (0, 1); learned: one seed (0)."
    page = (reported[0] / "report.txt").read_text()
    assert "alibi: one seed (0). Protocol: tiles" in page
    assert "one seed, so it says nothing about another one" in page


def test_the_text_shows_means_ranges_protocol_and_command(reported):
    folder, data = reported
    lines = [" ".join(line.split()) for line in (folder / "report.txt").read_text().splitlines()]
    assert "rotary 2.250 (2.00–2.50) 3.500 (3.00–4.00)" in lines and "learned 2.250 –" in lines
    assert "yarn -1.250 (-2.00 to -0.50)" in lines
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


def test_names_at_the_ends_of_lines_do_not_lie_upon_each_other():
    data = {f"encoding{i}": [(64, [2.0 + i / 100]), (512, [3.0 + i / 1000])] for i in range(9)}
    figure = figures.curves(data, title="t", xlabel="x", ylabel="y")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 9
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_names_that_must_move_stand_around_what_they_name():
    moved = figures.apart([0.0, 2.9, 3.0, 3.1, 9.0], 1.0)
    assert moved == pytest.approx([0.0, 2.0, 3.0, 4.0, 9.0])


def test_the_trained_length_is_named_above_all_that_is_drawn():
    data = {"a": [(64, [3.0]), (128, [3.2]), (256, [1.0])], "b": [(64, [3.2]), (128, [2.0]), (256, [1.5])]}
    figure = figures.curves(data, title="t", xlabel="x", ylabel="y", trained=64)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    (name,) = (text for text in ax.texts if text.get_text() == "trained length")
    assert name.get_window_extent().y0 > ax.transData.transform((128, 3.2))[1] + 3 * figure.dpi / 72  # half a marker


def test_smoothing_keeps_lines_and_takes_noise():
    line = [0.5 * i for i in range(40)]
    assert figures.smoothed(line)[6:-6] == pytest.approx(line[6:-6])
    noise = [(-1.0) ** i for i in range(40)]
    assert max(map(abs, figures.smoothed(noise)[6:-6])) < 1e-2


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
