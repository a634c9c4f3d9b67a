"""The demo: shipped models, the relative law, an index page whose pictures exist."""

import json
import re
from base64 import b64decode

import pytest

from phasor.apps.demo.measurements import relative_law
from phasor.apps.demo.run import bundled_models, run
from phasor.rotary.spec import RotarySpec
from phasor.tools.inspect.figures import caption, save_figures

# They have every kind of picture: of two rotations, of several axes, of layers that differ.
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
        return save_figures(model, facts, folder) if folder.name in {n.replace("/", "--") for n in drawn} else {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run.__globals__, "save_figures", pictures)
        run(folder, say=said.append, train=False)
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
    assert len(pictures) == page.count("src=") >= 3 * len(drawn)  # none stands beside it
    assert len(pictures) == sum(1 for name in drawn for _ in (out / name.replace("/", "--")).glob("*.png"))
    assert all(f"<figcaption>{caption(name)}" in page for name in ("wavelengths", "decay", "angles", "axes", "layers"))
    assert all(b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert "its maximum" in page and "maximum 131,072" in page and "prefers-color-scheme: dark" in page
    assert "$" not in page


def test_the_demo_ends_with_a_model_made_sick_and_healed(out):
    pytest.importorskip("transformers")
    found = json.loads((out / "results.json").read_text())["doctor"]
    assert found == {"causes": ["frequencies rounded to bfloat16"], "mended": 2, "sound": True, "bit_equal": True}
    index = (out / "index.html").read_text()
    for name, says in (("sick", "frequencies rounded to bfloat16"), ("healed", "formed anew from the config")):
        assert f'href="doctor/{name}.html"' in index
        assert says in (out / "doctor" / f"{name}.html").read_text()


def test_relative_law_would_notice_a_broken_rotation():
    # 1000 rad per token leaves nothing of float32 angles at a million; exact ones do not care
    law = relative_law(RotarySpec(head_dim=2, frequencies=(1000.0,)), heads=2, kv_heads=1, maximum=4096)
    assert law.exact[2] < 1e-6 < 1e-2 < law.float32[2]
