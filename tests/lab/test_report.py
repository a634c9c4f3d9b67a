import json
import re
import shutil
import subprocess

import pytest
import torch

from phasor.apps.lab import ModelConfig, RunConfig, report
from phasor.apps.lab.results import EVALUATION, EXTENSION, find_runs
from phasor.apps.lab.train import CHECKPOINT, RUN

pytest.importorskip("matplotlib")


def make_run(folder, encoding, seed, losses, extension=None, task="text", protocol="tiles", **model):
    """A run as train, evaluate and extend leave it, with chosen numbers; `losses` is {length: loss}."""
    config = RunConfig(model=ModelConfig(encoding=encoding, **model), seed=seed, task=task, source="abc")
    place = folder / config.name
    place.mkdir(parents=True)
    torch.save({}, place / CHECKPOINT)
    about = {"command": f"phasor lab train --encoding {encoding} <&>", "text": "sentences.txt"}
    (place / RUN).write_text(json.dumps({"run": config.to_dict(), "about": about}))
    value = "loss" if task == "text" else "accuracy"
    evaluation = {
        "task": task,
        "protocol": protocol,
        "by_length": [{"length": n, value: x} for n, x in losses.items()],
        "by_position": {"length": 64, "position": [0, 32], "loss": [2.0, 1.0]},
    }
    (place / EVALUATION).write_text(json.dumps(evaluation))
    if extension:
        rows = [{"scheme": s, "factor": f, "length": 64 * f, "loss": x} for s, f, x in extension]
        (place / EXTENSION).write_text(json.dumps({"protocol": "tiles", "table": rows, "curves": rows}))
    return place


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    make_run(folder, "rotary", 0, {64: 2.0, 128: 3.0}, [("none", 2, 3.0), ("yarn", 2, 2.5)])
    make_run(folder, "rotary", 1, {64: 2.5, 128: 4.0}, [("none", 2, 4.0), ("yarn", 2, 2.0)])
    make_run(folder, "learned", 0, {64: 2.25, 128: None})
    make_run(folder, "alibi", 0, {64: 1.0, 128: 0.5}, task="copy")
    return folder


def test_numbers_of_several_seeds_stand_side_by_side(runs, tmp_path):
    data = report([runs], tmp_path / "report")
    curves = {name: dict(section["curves"]) for name, section in data["sections"].items()}
    assert curves["loss_by_length"] == {"rotary": [(64, [2.0, 2.5]), (128, [3.0, 4.0])], "learned": [(64, [2.25])]}
    assert curves["extension_table"] == {"none": [(2, [3.0, 4.0])], "yarn": [(2, [2.5, 2.0])]}
    assert curves["copy"] == {"alibi": [(64, [1.0]), (128, [0.5])]}
    written = json.loads((tmp_path / "report" / "report.json").read_text())
    assert written == json.loads(json.dumps(data))


def test_the_page_shows_means_ranges_protocol_and_command(runs, tmp_path):
    report([runs], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<th>rotary</th><td>2.250<br><small>2.00–2.50</small></td><td>3.500<br><small>3.00–4.00" in page
    assert "<th>learned</th><td>2.250</td><td>–</td>" in page
    assert "Protocol: tiles" in page
    assert "phasor lab train --encoding rotary &lt;&amp;&gt;" in page
    assert "sentences.txt" in page
    assert len(re.findall("<figure>", page)) == len(re.findall("<figcaption>", page)) == 5


def test_the_page_needs_nothing_from_outside(runs, tmp_path):
    report([runs], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    places = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'>\s)]{5})""", page)
    assert len(places) == 5
    assert set(places) == {"data:"}
    assert "<script" not in page
    assert "@import" not in page
    figures = sorted(path.name for path in (tmp_path / "report").glob("*.png"))
    assert figures == sorted(
        f"{n}.png" for n in json.loads((tmp_path / "report" / "report.json").read_text())["sections"]
    )


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium on PATH")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_whole_at_every_width(runs, tmp_path, width):
    report([runs], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    # A frame of the width of the screen; what it measured goes into the title of the page around it.
    measure = """
      const f = document.querySelector("iframe");
      f.onload = () => {
        const d = f.contentDocument, images = [...d.images];
        document.title = JSON.stringify({
          over: d.documentElement.scrollWidth - f.clientWidth,
          shown: images.filter(i => i.naturalWidth > 0 && i.clientWidth > 300).length,
          heights: images.map(i => i.clientHeight / i.clientWidth),
        });
      };
    """
    (tmp_path / "inner.html").write_text(page)
    frame = (
        f'<iframe src="inner.html" style="width:{width}px;height:3000px;border:0"></iframe><script>{measure}</script>'
    )
    (tmp_path / "outer.html").write_text(f"<!doctype html>{frame}")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=5000", "--dump-dom",
        f"file://{tmp_path / 'outer.html'}",
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    measured = json.loads(re.search("<title>(.*?)</title>", dom)[1])
    assert measured["over"] <= 0  # nothing sticks out to the side
    assert measured["shown"] == 5
    assert all(0.6 < height < 1 for height in measured["heights"])  # none is stretched


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
    with pytest.raises(ValueError, match="runs must have been evaluated to be reported; call `phasor lab evaluate`"):
        report([odd], tmp_path / "report")
    (odd / EVALUATION).write_text("{")
    with pytest.raises(ValueError, match=r"evaluation.json must be JSON as written by the lab, got: .*; delete it"):
        report([odd], tmp_path / "report")
