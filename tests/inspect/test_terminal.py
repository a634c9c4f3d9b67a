"""What reaches the terminal: no line wider than it, nothing it would obey, and one line where something fails."""

import json
import sys
from pathlib import Path

import pytest

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 2, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def test_a_narrow_terminal(config, phasor, monkeypatch):
    """No line is wider than it, and what a line had to leave stands below its text."""
    wide = phasor("inspect", config)[1]
    monkeypatch.setenv("COLUMNS", "60")
    code, said, _ = phasor("inspect", config)
    assert code == 0 and max(map(len, said.splitlines())) <= 60
    assert "wavelengths 6.283" in said and "  exactness  float32" in said
    assert [w for w in said.split() if w.isascii()] == [w for w in wide.split() if w.isascii()]


def test_control_characters_of_a_config_are_written_out(tmp_path, phasor):
    """A key with an escape sequence would colour the terminal, or do worse."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"rope_\x1b[31mtheta": 1.0}))
    code, _, err = phasor("inspect", path)
    assert code == 2 and "\x1b" not in err and "x1b[31mtheta" in err
    path.write_text(
        json.dumps({"model_type": "llava", "text_config": LLAMA, "x\u202e\x07_config": {"model_type": "bert"}})
    )
    _, out, err = phasor("inspect", path)
    assert not set("\x07\u202e") & set(out + err)


def test_a_missing_library_is_one_line(tmp_path, monkeypatch, phasor):
    """matplotlib is an extra: whoever has none is told how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = phasor("demo", "--out", tmp_path / "out")
    assert code == 2 and err.count("\n") == 1 and "pip install 'phasor-rope[plots]'" in err


@pytest.mark.parametrize("name, extra", [("onnx", "onnx"), ("safetensors", "hf")])
def test_the_library_that_is_missing_is_named(name, extra, tmp_path, monkeypatch, phasor):
    """Not another one that the command would need as well."""

    def missing(*_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("phasor_lab.ner.load", missing)
    (tmp_path / "texts.txt").write_text("one text")
    code, _, err = phasor("ner", "predict", tmp_path, tmp_path / "texts.txt")
    assert code == 2 and f"this needs {name}; install it with: pip install 'phasor-rope[{extra}]'" in err
