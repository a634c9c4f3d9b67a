"""The atlas: what is drawn is what the equations say, written down once more without phasor; the page and files."""

import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from house import ROOT

pytest.importorskip("matplotlib")
from PIL import Image

from drawing import quickly
from phasor_lab.atlas import PLATES, absolute, all_encodings, relative, rotary
from phasor_lab.atlas.paper import DARK, LIGHT, png

AT = np.arange(48)


def plate(name):
    return next(p for p in PLATES if p.name == name)


def ladder(width, base=10_000.0):
    return base ** (-2 * np.arange(width // 2) / width)


# --- values, by the equations of docs/theory.md ---


def test_the_sinusoidal_table_and_its_shift():
    table = absolute.sinusoidal().numpy()
    angles = np.outer(np.arange(128), ladder(64))
    np.testing.assert_allclose(table[:, 0::2], np.sin(angles), atol=1e-6)  # (48)
    np.testing.assert_allclose(table[:, 1::2], np.cos(angles), atol=1e-6)
    small = np.stack((np.sin(np.outer(np.arange(20), ladder(16))), np.cos(np.outer(np.arange(20), ladder(16)))), -1)
    small = small.reshape(20, 16)
    for matrix, k in zip(absolute.shift(), (1, 8), strict=True):  # (49)
        np.testing.assert_allclose(small[:-k] @ matrix.numpy().T, small[k:], atol=1e-6)


def test_the_learned_table_has_learned():
    begun, done = absolute.learned()
    assert begun.shape == done.shape == (48, 24)
    assert 0.015 < begun.std() < 0.025 and done.std() > 5 * begun.std()
    assert torch.equal(absolute.trained_table(3), absolute.trained_table(3))


def test_the_plane_keeps_angles_and_scores():
    query, key = (x.numpy() for x in rotary.plane())
    np.testing.assert_allclose(query, rotary.QUERY * np.exp(1j * np.pi / 8 * np.arange(8)), atol=1e-6)  # (6)
    np.testing.assert_allclose(key, rotary.KEY * np.exp(1j * np.pi / 8 * (np.arange(8) - 3)), atol=1e-6)  # 3 behind
    scores = (query * key.conj()).real
    np.testing.assert_allclose(scores, scores[0], atol=1e-6)  # (7)


def test_the_phases():
    cos, wavelengths = rotary.phases()
    np.testing.assert_allclose(cos.numpy(), np.cos(np.outer(ladder(128), np.arange(256))), atol=1e-5)
    for line, base in zip(wavelengths, (1e4, 5e5, 1e7), strict=True):
        np.testing.assert_allclose(line.numpy(), 2 * np.pi / ladder(128, base), rtol=1e-9)
    assert (wavelengths[0] < 4096).sum() == 46  # (19), the number in the theory


def test_the_decay_and_its_bound():
    mean, bound = rotary.decays()
    table = {1: (31.5382, 0.9702), 64: (10.0899, 0.4769), 1707: (7.8792, -0.0078), 4096: (4.8828, -0.0529)}
    for distance, expected in table.items():  # the theory's table of (21) and (23)
        assert tuple(round(float(curve[distance]), 4) for curve in (bound, mean)) == expected
    starts, low, high = rotary.band(mean)
    assert starts[0] == 1 and all(a <= b for a, b in zip(low, high, strict=True))
    assert min(low) == pytest.approx(float(mean[1:].min())) and starts == sorted(set(starts))


def test_the_biases():
    lines = relative.alibi().numpy()
    np.testing.assert_allclose(lines, -np.outer(2.0 ** -np.arange(1, 9), np.arange(65)))  # (55)
    buckets, bias = relative.t5()
    assert buckets[[0, 15, 16, 18, 19, 112, 113, 160]].tolist() == [0, 15, 16, 16, 17, 30, 31, 31]  # (54)
    for line in bias:
        assert all(len(set(line[buckets == b].tolist())) == 1 for b in range(32))


def test_all_but_the_learned_table_depend_on_the_distance_alone():
    found = all_encodings.values()
    assert list(found) == ["none", "sinusoidal", "learned", "rotary", "ALiBi", "T5", "Shaw", "Transformer-XL"]
    for name, scores in found.items():
        assert scores.shape == (48, 48)
        shifted = (scores[1:, 1:] - scores[:-1, :-1]).abs().max() <= 1e-5 * max(1.0, float(scores.abs().max()))
        assert shifted == (name != "learned"), name
    np.testing.assert_allclose(found["rotary"], np.cos(np.subtract.outer(AT, AT)[..., None] * ladder(128)).mean(-1),
                               atol=1e-6)  # fmt: skip
    np.testing.assert_allclose(found["sinusoidal"], np.cos(np.subtract.outer(AT, AT)[..., None] * ladder(64)).sum(-1),
                               atol=1e-4)  # fmt: skip


# --- plates, pictures, page ---


def test_the_line_under_a_plate_computes_what_is_drawn():
    for one in PLATES:
        again = eval(one.code, dict(vars(__import__(one.values.__module__, fromlist=["x"]))))
        assert flat(again) and all(torch.equal(a, b) for a, b in zip(flat(again), flat(one.values()), strict=True))


def flat(values):
    if isinstance(values, torch.Tensor):
        return [values]
    return [t for v in (values.values() if isinstance(values, dict) else values) for t in flat(v)]


def test_every_equation_is_one_of_the_theory():
    theory = (ROOT / "docs" / "theory.md").read_text()
    tags = {int(n) for n in re.findall(r"\\tag\{(\d+)\}", theory)}
    assert {n for one in PLATES for n in one.equations} <= tags
    assert len({one.name for one in PLATES}) == len(PLATES) == 9


def drawn(name):
    one = plate(name)
    return [panel for panel in one.draw(LIGHT, one.values()).axes if panel.get_label() != "<colorbar>"]


@pytest.mark.parametrize(
    "name, across, up",
    [("sinusoidal", "channel", "position"), ("shift", "channel", "channel"), ("learned", "channel", "position"),
     ("together", "key", "query"), ("plane", "first channel", "second channel")],
)  # fmt: skip
def test_the_sides_of_a_picture_are_named(name, across, up):
    panels = drawn(name)
    assert panels[-1].get_xlabel() == across and panels[0].get_ylabel() == up


def test_arrows_have_the_positions_of_their_words():
    """A query at 0 to 7; then a query at 0 and 5, each with a key three positions behind."""
    every, twice = ([text.get_text() for text in panel.texts if text.get_text()] for panel in drawn("plane"))
    assert every == [str(n) for n in range(8)] and twice == ["0", "5", "-3", "2"]


@pytest.mark.parametrize("paper", [LIGHT, DARK], ids=["light", "dark"])
def test_a_picture_is_small_and_on_its_paper(paper):
    one = plate("alibi")
    image = Image.open(io.BytesIO(data := png(one.draw(paper, one.values()))))
    assert image.size[0] == 728 and len(data) < 50_000
    ground = tuple(int(paper.ground[i : i + 2], 16) for i in (1, 3, 5))
    assert image.convert("RGB").getpixel((2, 2)) == ground


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("paper", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out(paper):
    """WCAG 2: 4.5 for letters, 3 for what is drawn."""

    def contrast(color):
        low, high = sorted((luminance(color), luminance(paper.ground)))
        return (high + 0.05) / (low + 0.05)

    assert contrast(paper.ink) > 4.5
    assert all(contrast(color) > 3 for color in (*paper.lines, paper.below, paper.above, paper.faint))


@pytest.mark.parametrize("hurry", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["quickly", "in full"])
def test_the_folder(tmp_path, phasor, monkeypatch, hurry):
    monkeypatch.chdir(tmp_path)
    if hurry:
        quickly(monkeypatch)
    code, out, err = phasor("atlas", "--out", "here")
    assert (code, err) == (0, "") and re.fullmatch(r"here/index\.html: 9 plates, \d{2,3},\d{3} bytes\n", out)
    names = {path.name for path in Path("here").iterdir()}
    assert names == {"index.html"} | {f"{one.name}{end}.png" for one in PLATES for end in ("", "-dark")}
    page = Path("here/index.html").read_text()
    assert set(re.findall(r'(?:src|srcset)="([^"]+)"', page)) == names - {"index.html"}
    assert "http" not in page and page.count("alt=") == 9
    assert "sinusoids(torch.arange(128), 64)" in page


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_of_the_site_is_current():
    generator = module("atlas")
    assert generator.PAGE.read_text() == generator.page(), "docs/atlas.md is stale; run: python docs/atlas.py"
    shown = set(re.findall(r"\(atlas/(\w+)\.png\)", generator.page()))
    for name in shown:
        for suffix in ("", "-dark"):
            assert (ROOT / "docs" / "atlas" / f"{name}{suffix}.png").stat().st_size < 60_000
    assert shown == {one.name for one in PLATES}


def test_the_site_shows_one_picture_in_each_scheme():
    hooks = module("mkdocs_hooks")
    assert hooks._in_both_schemes("a", "atlas/t5") == "![a](atlas/t5.png#only-light)![a](atlas/t5-dark.png#only-dark)"
    assert hooks._in_both_schemes("a", "exactness") == "![a](exactness.png)"
    assert "#only-dark" in (ROOT / "docs" / "site.css").read_text()
