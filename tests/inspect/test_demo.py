"""The demo: shipped models, the relative law, an index page whose pictures exist."""

import json
import re

import pytest

from phasor.apps.demo.law import relative_law
from phasor.apps.demo.run import bundled_models, run
from phasor.spec import RotarySpec


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []
    run(folder, say=said.append, train=False)
    assert any(str(folder / "index.html") in line for line in said)
    return folder


def test_at_least_eight_models_of_different_kinds():
    kinds = {entry["kind"] for entry in bundled_models().values()}
    assert len(kinds) == len(bundled_models()) >= 8


def test_the_law_holds_with_exact_angles_and_breaks_with_float32_ones(out):
    results = json.loads((out / "results.json").read_text())
    for name, entry in results["models"].items():
        near, million, far = entry["law"]["float32"]
        # 16 tokens at rounding 2**-24 in the rotation (two products) and the sum over channels: a few 1e-7
        assert max(entry["law"]["exact"]) < 1e-6, name
        assert near < 1e-6 and million > 1e-4 and far > 1e-2, name


def test_the_index_shows_every_model_and_every_picture_exists(out):
    page = (out / "index.html").read_text()
    for name in bundled_models():
        assert name in page
    pictures = re.findall(r'src="([^"]+)"', page)
    assert len(pictures) >= 3 * len(bundled_models())
    assert all((out / p).read_bytes().startswith(b"\x89PNG") for p in pictures)
    assert "$" not in page


def test_relative_law_would_notice_a_broken_rotation():
    # 1000 rad per token leaves nothing of float32 angles at a million; exact ones do not care
    law = relative_law(RotarySpec(head_dim=2, frequencies=(1000.0,)), heads=2, kv_heads=1)
    assert law.exact[1] < 1e-6 < 1e-2 < law.float32[1]
