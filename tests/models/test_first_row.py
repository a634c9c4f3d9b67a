"""docs/first_row.md as a newcomer reads it, and rows that come from outside."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import phasor
from blocks import ROOT, blocks, run_python
from phasor.configs import TextModel
from phasor.models.rows import ROWS

PAGE = ROOT / "docs" / "first_row.md"
WILLOW = TextModel("WillowConfig", in_transformers=False, base=10_000.0, hidden=64, heads=4, layers=2, length=128)
CONFIG = {"model_type": "willow", "rope_theta": 500.0}


@pytest.fixture
def rows_as_before() -> Iterator[None]:
    """What a test registers goes with it."""
    before = dict(ROWS)
    yield
    ROWS.clear()
    ROWS.update(before)


@pytest.mark.usefixtures("rows_as_before")
def test_the_page() -> None:
    """Its Python runs and prints what it says."""
    names: dict[str, object] = {}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        assert block.language == "python"
        assert not (report := run_python(block, names, PAGE.name)), report
    assert {"willow", "llada"} <= ROWS.keys()


@pytest.mark.usefixtures("rows_as_before")
def test_a_registered_row_is_read_shown_and_written(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(ValueError, match="model_type 'willow' is not known"):
        phasor.read_config(CONFIG)
    phasor.register_model("willow", WILLOW)
    model = phasor.read_config(CONFIG)
    assert [spec.base for spec in model.layers if spec] == [500.0] * 2
    longer = phasor.read_config({**CONFIG, "rope_theta": 900.0})
    assert phasor.write_config(longer, CONFIG)["rope_theta"] == 900.0
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    code, out, _ = request.getfixturevalue("phasor")("inspect", tmp_path / "config.json")
    assert code == 0 and "willow, 2 of 2 layers rotate" in out


@pytest.mark.usefixtures("rows_as_before")
def test_a_registered_model_is_patched() -> None:
    transformers = pytest.importorskip("transformers")

    class WillowConfig(transformers.LlamaConfig):  # type: ignore[misc, name-defined]
        model_type = "willow"

    class Willow(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        config_class = WillowConfig

    config = WillowConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2, intermediate_size=64,
        vocab_size=32, max_position_embeddings=128,
    )  # fmt: skip
    phasor.register_model("willow", WILLOW)
    model, tokens = Willow(config).eval(), torch.arange(12)[None] % 32
    with torch.no_grad():
        before = model(tokens).logits
        report = phasor.patch(model)
        after = model(tokens).logits
    assert "3 of 3 replaced" in str(report)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("llama", WILLOW, "the name of this model type must be free, and 'llama' is taken"),
        ("", WILLOW, "the name of this model type must be a word, got ''"),
        ("wil\nlow", WILLOW, "the name of this model type must be a word"),
        ("willow", {"hidden": 64}, r"row must be a row such as phasor.configs.TextModel, got dict"),
    ],
)
def test_what_cannot_be_registered_is_refused(name: str, row: TextModel, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        phasor.register_model(name, row)
    assert "willow" not in ROWS
