"""The model that transformers builds of tensors, and the tokens of a text: errors of others in one line."""

import pytest

pytest.importorskip("transformers")

from phasor.tools.checkpoints.torch_model import tokenize


def test_a_tokenizer_config_that_is_no_object_is_named(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tokenizer_config.json: must hold a JSON object, got list$"):
        tokenize(tmp_path, {"vocab_size": 300}, "text", special=False)


def test_a_model_of_bytes_needs_no_tokenizer_and_takes_one_that_is_there(tmp_path):
    assert tokenize(tmp_path, {"vocab_size": 256}, "é", special=False).tolist() == [0xC3, 0xA9]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(ValueError, match="must hold a JSON object, got list"):
        tokenize(tmp_path, {"vocab_size": 256}, "é", special=False)


@pytest.mark.parametrize("error, said", [(AssertionError(), "AssertionError"), (TypeError("no\nmore"), "no")])
def test_errors_of_a_tokenizer_in_one_line(error, said, tmp_path, monkeypatch):
    def fail(*_, **more):
        raise error

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", fail)
    with pytest.raises(ValueError, match=rf"has no tokenizer that works \({said}\); put tokenizer.json there$"):
        tokenize(tmp_path, {"vocab_size": 300}, "text", special=False)
