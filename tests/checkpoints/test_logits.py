"""Logits of both sides: equal to the bit, whatever they hold; errors of others in one line; the proof is valid JSON."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch

from phasor.tools.checkpoints import convert, convert_in_place, logits
from phasor.tools.checkpoints.formats import read

from . import synthetic
from .models import contents, save_model, tensors_of


def strict(path):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model with a NaN in the column of its head that token 7 gives the logit of."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("logits") / "source"
    save_model("llama", folder, shards="1GB", num_key_value_heads=2)
    tensors = tensors_of(folder)
    tensors["lm_head.weight"][7, 3] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_proof_with_values_that_are_not_finite_is_json(source, tmp_path):
    report = convert(source, tmp_path / "out", to="interleaved", token_ids=[1, 2, 3])
    assert strict(tmp_path / "out/phasor-proof.json") == json.loads(json.dumps(report))
    expected = {"compared": True, "token_ids": [1, 2, 3], "largest_difference": 0.0, "not_finite": 3}
    assert report["logits"] == expected


@pytest.mark.parametrize("other", [0.0, torch.inf, 1.0])
def test_nan_is_equal_to_nan_alone(other, source, tmp_path, monkeypatch):
    sides = iter([torch.tensor([torch.nan]), torch.tensor([other])])
    monkeypatch.setattr(logits, "logits_of", lambda *_: next(sides))
    with pytest.raises(ValueError, match="logits of both sides must be equal, got a difference of nan"):
        convert(source, tmp_path / "out", to="interleaved", token_ids=[1])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("error, said", [(AssertionError(), "AssertionError"), (TypeError("no\nmore"), "no")])
def test_errors_of_transformers_in_one_line(error, said, source, tmp_path, monkeypatch):
    def fail(*_, **more):
        raise error

    monkeypatch.setattr(logits, "build", fail)
    report = convert(source, tmp_path / "out", to="interleaved", token_ids=[1])
    assert report["logits"] == {"compared": False, "why": f"transformers does not run it: {said}"}
    found = read(source)
    with pytest.raises(ValueError, match=f"source: transformers does not run it: {said}$"):
        logits.losses_of(found, logits_following(found), "a text" * 6)
    found = replace(found, config={**found.config, "vocab_size": 300})  # bytes would do for 256
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", fail)
    with pytest.raises(ValueError, match=rf"source: has no tokenizer that works \({said}\); put tokenizer.json there$"):
        logits.losses_of(found, logits_following(found), "a text" * 6)


def test_a_tokenizer_config_that_is_no_object_is_named(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tokenizer_config.json: must hold a JSON object, got list$"):
        logits.tokenize(tmp_path, {"vocab_size": 300}, "text", special=False)


def logits_following(found):
    from phasor.tools.checkpoints.qk_tensors import find_qk_tensors

    return find_qk_tensors(found.folder, found.config, found.tensors, None)


def test_in_place_compares_logits_too(source, tmp_path, phasor):
    folder = synthetic.copy(source, tmp_path / "model")
    code, out, err = phasor("convert", folder, "--in-place", "--to", "interleaved", "--token-ids", "1,2,3")
    assert (code, err) == (0, "") and "logits equal" in out and "proved   scores of 2 attentions" in out
    assert strict(folder / "phasor-proof.json")["logits"]["not_finite"] == 3
    convert(source, tmp_path / "out", to="interleaved")
    assert contents(folder) == contents(tmp_path / "out")


@pytest.mark.parametrize(
    "tokens, proof, message",
    [
        ([1, 256], True, r"token_ids must be numbers of tokens from 0, below the vocab_size of 256, got \[1, 256\]"),
        ([], True, r"token_ids must be numbers of tokens from 0"),
        ([1], False, "token_ids are compared in the proof, and there is none"),
    ],
)
def test_tokens_that_cannot_be_compared_are_told_before_anything_is_written(tokens, proof, message, source, tmp_path):
    folder = synthetic.copy(source, tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        convert(folder, tmp_path / "out", to="interleaved", token_ids=tokens, proof=proof)
    with pytest.raises(ValueError, match=message):
        convert_in_place(folder, to="interleaved", token_ids=tokens, proof=proof)
    assert contents(folder) == contents(source) and [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "option", [["--force"], ["--files", "2"], ["--allow-pickle"], ["--dry-run"], ["DST"]], ids=lambda option: option[0]
)
def test_what_in_place_has_no_use_for(option, source, tmp_path, phasor):
    folder = synthetic.copy(source, tmp_path / "model")
    code, out, err = phasor("convert", folder, "--in-place", "--to", "interleaved", *option)
    assert code == 2 and out == "" and err.count("\n") == 1 and f"has no use for {option[0]}; leave it out" in err
    assert contents(folder) == contents(source)
