"""The demo: shipped models, the relative law, an index page whose pictures exist, a model made sick and healed."""

import json
import re
from base64 import b64decode

import pytest

from drawing import quickly
from phasor.models.configs import read_config
from phasor.rotary.spec import RotarySpec
from phasor.tools.inspect.model_page import model_facts
from phasor_lab.demo.figures import caption, save_figures, wavelengths
from phasor_lab.demo.healing import healing
from phasor_lab.demo.measurements import relative_law
from phasor_lab.demo.run import TRAINED, _cells, bundled_models, run

# They have every kind of picture: of two rotations, of several axes.
DRAWN = {"google/gemma-3-27b-it", "Qwen/Qwen2-VL-2B-Instruct"}


@pytest.fixture(scope="module", params=["two drawn", pytest.param("all drawn", marks=pytest.mark.slow)])
def drawn(request):
    """The models whose pictures are drawn: a picture takes half a second, all else of a model a fifth."""
    return DRAWN if request.param == "two drawn" else set(bundled_models())


@pytest.fixture(scope="module")
def out(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []

    def pictures(model, facts, folder):
        folder.mkdir()
        return save_figures(model, facts, folder) if folder.name in {n.replace("/", "--") for n in drawn} else []

    with pytest.MonkeyPatch.context() as patch:
        if drawn == DRAWN:
            quickly(patch)
        patch.setitem(run.__globals__, "save_figures", pictures)
        less = {"encodings": ("rotary",), "schemes": ("none", "ntk"), "times": (1, 2), "tokens": 40_000, "scored": 2048}
        for name, value in less.items():
            patch.setitem(TRAINED, name, value)
        patch.setitem(healing.__globals__, "ROWS", 8)
        patch.setitem(run.__globals__, "studying", lambda *_: {})  # tests/study has its own
        run(folder, say=said.append, progress=False)
    assert any(str(folder / "index.html") in line for line in said)
    return folder


def test_at_least_eight_models_of_different_kinds():
    kinds = {entry["kind"] for entry in bundled_models().values()}
    assert len(kinds) == len(bundled_models()) >= 8


def test_the_law_holds_with_exact_angles_and_breaks_with_float32_ones(out):
    results = json.loads((out / "results.json").read_text())
    for name, entry in results["models"].items():
        near, own, million, far = entry["law"]["float32"]
        places = entry["law"]["places"]
        # float32 angles of a model's own last positions are off by half a rounding step of the position, at most
        assert places[1] > 2000 and own < places[1] * 2**-23, name
        # 16 tokens at rounding 2**-24 in the rotation (two products) and the sum over channels: a few 1e-7
        assert max(entry["law"]["exact"]) < 1e-6, name
        assert near < 1e-6 and million > 1e-4 and far > 1e-2, name


def test_the_index_shows_every_model_and_every_picture_exists(out, drawn):
    page = (out / "index.html").read_text()
    for name in bundled_models():
        assert name in page
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == page.count("src=") >= len(drawn)  # none stands beside it
    assert len(pictures) == sum(1 for name in drawn for _ in (out / name.replace("/", "--")).glob("*.png"))
    assert all(b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert "its maximum" in page and "maximum 131,072" in page and "prefers-color-scheme: dark" in page
    assert "$" not in page


def test_the_index_leads_and_keeps_each_model_closed(out):
    page = (out / "index.html").read_text()
    assert page.index('href="lab/report.txt"') < page.index("The relative law") < page.index("<details")
    for name in bundled_models():
        anchor = name.replace("/", "--")
        assert (
            f'href="#{anchor}">{name.replace("/", "/<wbr>")}</a>' in page
            and f'<details id="{anchor}"><summary>{name} ' in page
        )
    assert "<img" not in re.sub(r"<details.*?</details>", "", page, flags=re.S)


def test_a_caption_says_what_is_drawn_and_names_its_rotation(out):
    page = (out / "index.html").read_text()
    texts = {
        name: re.findall(r"<figcaption>(.*?)</figcaption>", section, re.S)
        for name, section in re.findall(r'<details id="(.*?)">(.*?)</details>', page, re.S)
    }
    gemma, qwen = texts["google--gemma-3-27b-it"], texts["Qwen--Qwen2-VL-2B-Instruct"]
    assert [text.split(".")[0].split(",")[0] for text in gemma] == ["Rotation 1", "Rotation 2"]
    assert gemma[0].startswith("Rotation 1, layers 0-4, 6-10, ") and gemma[1].startswith("Rotation 2, layers 5, 11, ")
    assert not any("Grey" in text for text in (*gemma, *qwen))  # neither names a length from before a scaling
    assert "above the window" in gemma[0] and "above the declared length" in gemma[1]  # nothing says the trained one
    assert not any(text.startswith("Rotation") for text in qwen) and "every position" not in page


def test_the_wavelengths_before_a_scaling_are_told_of_where_they_are_drawn():
    config = bundled_models()["meta-llama/Llama-3.1-8B"]["config"]
    (facts,) = model_facts(read_config(config))
    assert "Grey: before scaling" in caption(facts)
    assert "above the trained length" in caption(facts)  # the scaling says it
    (axes,) = wavelengths(facts).axes
    assert (axes.get_yscale(), axes.get_xlabel(), axes.get_ylabel()) == ("log", "pair", "wavelength (tokens)")
    grey = [line for line in axes.lines if line.get_label() == "before scaling"]
    assert [len(line.get_xdata()) for line in grey] == [64 - facts.count("kept")]


def test_marked_is_what_stands_there_as_too_much():
    values = (9.9e-4, 1.04e-3, 1.06e-3, 1e-7)
    assert _cells(values) == "<td>9.9e-04</td><td>1.0e-03</td><td class=bad>1.1e-03</td><td>1.0e-07</td>"


def test_the_demo_ends_with_its_own_model_made_sick_and_healed(out):
    pytest.importorskip("transformers")
    results = json.loads((out / "results.json").read_text())["doctor"]
    sick, healed, never_sick = results.pop("losses")
    assert results == {"causes": ["frequencies rounded to bfloat16"], "mended": 2, "sound": True, "bit_equal": True}
    assert sick != healed == never_sick
    index = (out / "index.html").read_text()
    for name, says in (("sick", "frequencies rounded to bfloat16"), ("healed", "formed anew from the config")):
        page = (out / "doctor" / f"{name}.txt").read_text()
        assert f'href="doctor/{name}.txt"' in index
        assert says in page and "\nnot shown " not in page and "nats per byte at 256 positions" in page


def test_relative_law_would_notice_a_broken_rotation():
    # 1000 rad per token leaves nothing of float32 angles at a million; exact ones do not care
    law = relative_law(RotarySpec(head_dim=2, frequencies=(1000.0,)), heads=2, kv_heads=1, maximum=4096)
    assert law.exact[2] < 1e-6 < 1e-2 < law.float32[2]
