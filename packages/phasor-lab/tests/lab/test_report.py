import json
from itertools import pairwise

import pytest

from phasor_lab.lab import ModelConfig, RunConfig, figures, report, results
from phasor_lab.run_folder.pictures import png_bytes

pytest.importorskip("matplotlib")


def run_of(encoding, seed, losses, extension=(), trained_loss=2.0):
    """A run as it is measured, with chosen numbers; `losses` is {length: loss}."""
    config = RunConfig(model=ModelConfig(encoding=encoding), seed=seed, source="abc")
    about = {"command": f"phasor lab train --encoding {encoding} <&>", "text": "sentences.txt"}
    measured = {"trained_loss": trained_loss, "byte_pairs_loss": 2.5, "protocol": "tiles"}
    by_length = [{"length": n, "loss": x} for n, x in losses.items()]
    table = [{"scheme": s, "factor": f, "length": 64 * f, "loss": x} for s, f, x in extension]
    return results.Measured(
        config.name,
        config,
        about,
        {**measured, "by_length": by_length},
        {**measured, "table": table} if table else None,
    )


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A report of runs of every kind, and what it returned."""
    runs = [
        run_of("rotary", 0, {64: 2.0, 128: 3.0}, [("none", 2, 3.0), ("yarn", 2, 2.5)]),
        run_of("rotary", 1, {64: 2.5, 128: 4.0}, [("none", 2, 4.0), ("yarn", 2, 2.0)]),
        run_of("learned", 0, {64: 2.25, 128: None}),
    ]
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "measure", lambda *_: runs)
        return folder, report([], folder)


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
def test_names_are_only_words_in_a_figure(word):
    """matplotlib takes what stands between dollar signs for a formula, and warns of letters that its font lacks."""
    png_bytes(figures.curves({word: [(64, [2.0])]}, title="", xlabel=""), dpi=150)


def test_every_line_of_a_chart_has_a_look_of_its_own():
    looks = [figures.look(i) for i in range(10)]
    assert len({one["color"] for one in looks[:9]}) == 9  # the schemes of an extension
    assert len({(str(one["linestyle"]), one["color"]) for one in looks}) == 10
    assert len({one["marker"] for one in looks}) == 10
    for one, after in pairwise(looks):
        assert one["linestyle"] != after["linestyle"] and one["color"] != after["color"]


def test_runs_that_do_not_compare_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"folder must hold runs as `phasor lab train` makes them, got '.*nothing'"):
        report([tmp_path / "nothing"], tmp_path / "report")
    with pytest.raises(ValueError, match=r"must share their training length, got \['32', '64'\]; report them apart"):
        results.check_alike("training length", (32, 64, 64))
