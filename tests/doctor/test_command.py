"""phasor doctor: one page, three exit codes, and one clear line for bad input."""

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import limited
from integrations.sick import healthy, to_bfloat16
from phasor.models.reading.composite import ConfigTree
from phasor.tools.doctor import diagnose, memory, model_folder
from phasor.tools.doctor.model_folder import INDEX
from phasor.tools.doctor.path_diagnosis import PathDiagnosis, diagnose_path, of_text
from phasor.tools.doctor.text import Ranking, RankingRow

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models") / "llama"
    healthy("llama", num_hidden_layers=1).save_pretrained(made)
    return made


def test_a_sound_folder(folder, phasor):
    code, out, err = phasor("doctor", folder)
    assert (code, err) == (0, "")
    assert out.startswith("LlamaForCausalLM: right: no fault in ")
    assert "right: config.json: consistency" in out and "model.rotary_emb" in out


def test_what_is_known_of_a_folder_is_formed_once(folder, monkeypatch):
    """One model without weights beside the one that is loaded; the config as it stands, and as the model has it."""
    import transformers

    formed = []
    for owner, name in ((model_folder, "read_json"), (ConfigTree, "__init__"), (transformers.LlamaModel, "__init__")):
        own = getattr(owner, name)
        noted = partial(lambda own, *a, **k: (formed.append(own.__qualname__), own(*a, **k))[1], own)
        monkeypatch.setattr(owner, name, partialmethod(noted) if isinstance(owner, type) else noted)
    assert not diagnose_path(folder).exit_code
    assert Counter(formed) == {"read_json": 1, "ConfigTree.__init__": 2, "LlamaModel.__init__": 2}


def test_a_text_is_tried_on_the_weights_that_were_loaded(folder, tmp_path, monkeypatch):
    """They are in memory; what a text says of a checkpoint on disk stands in test_by_text."""
    (tmp_path / "book.txt").write_text("of this and that " * 400)
    monkeypatch.setattr("phasor.tools.doctor.path_diagnosis.tokens_of", lambda *_: None)
    monkeypatch.setattr("phasor.tools.doctor.text.rank.tokens_of", lambda *_: torch.arange(2000) % 90)
    monkeypatch.setattr("phasor.tools.doctor.text.rank.read", None)
    assert diagnose_path(folder, text=tmp_path / "book.txt").ranking.verdict == "cannot tell"  # untrained
    (tmp_path / "alone").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "alone" / "config.json")
    with pytest.raises(ValueError, match="alone: weights are missing; check its config alone"):
        diagnose_path(tmp_path / "alone", text=tmp_path / "book.txt")


def test_json_of_a_folder_that_contradicts_itself(folder, phasor, tmp_path):
    sick = tmp_path / "sick"
    shutil.copytree(folder, sick)
    config = json.loads((sick / "config.json").read_text())
    (sick / "config.json").write_text(json.dumps(config | {"rope_theta": 1e4}))
    code, out, _ = phasor("doctor", sick, "--json")
    told = json.loads(out)
    assert (code, told["exit_code"], told["sound"]) == (1, 1, False)
    assert [row["cause"] for row in told["checks"] if row["verdict"] == "wrong"] == ["config contradicts itself"]


def test_a_config_alone_is_checked_on_the_meta_device(folder, phasor, tmp_path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "tok512.bin").write_bytes(b"a tokenizer")
    shutil.copy(folder / "config.json", tmp_path / "alone" / "config.json")
    for path in (folder / "config.json", tmp_path / "alone"):
        code, out, _ = phasor("doctor", path)
        assert code == 0 and "the model is on the meta device; it is checked against the spec only" in out


def _none(tmp_path, folder, monkeypatch):
    return [tmp_path / "nowhere"], "must be a folder with a config.json, or that file"


def _no_json(tmp_path, folder, monkeypatch):
    (tmp_path / "config.json").write_text("{")
    return [tmp_path], "config.json"


def _no_rotary(tmp_path, folder, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1}))
    return [tmp_path], "model must have a rotary embedding, and no module of this GPT2LMHeadModel has one"


def _unknown(tmp_path, folder, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonsense", "rope_theta": 1e4}))
    return [tmp_path], "nonsense"


def _pickles(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    monkeypatch.setattr("phasor.tools.doctor.model_folder.ModelFolder.has_weights", True)
    return [tmp_path / "m"], "weights are missing; pytorch_model.bin is no safetensors file: convert it first"


def _tensors(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "layers" not in n}, file, metadata={"format": "pt"})
    says = "model.safetensors: weights are missing: 9 tensors, the first model.layers.0.input_layernorm.weight"
    return [tmp_path / "m"], says


def _shards(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002.safetensors"}}
    (tmp_path / "m" / INDEX).write_text(json.dumps(index))
    return [tmp_path / "m"], f"{INDEX}: 1 of 2 weight files are missing (model-00002.safetensors); fetch them"


def _index_alone(tmp_path, folder, monkeypatch):
    bad, _ = _shards(tmp_path, folder, monkeypatch)
    (tmp_path / "m" / "model.safetensors").unlink()
    return bad, f"{INDEX}: 2 of 2 weight files are missing (model-00002.safetensors)"


def _index_of_nothing(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / INDEX).write_text(json.dumps({"weight_map": ["model.safetensors"]}))
    return [tmp_path / "m"], "weight_map must be an object of names and files, got ['model.safetensors']; fetch it"


def _index_without_a_map(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / INDEX).write_text(json.dumps({"weight_map": {}}))
    return [tmp_path / "m"], f"{INDEX}: weight_map must be an object of names and files, got {{}}; fetch it"


def _bad_header(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    return [tmp_path / "m"], f"phasor: {tmp_path}/m/model.safetensors: header must end inside the file"


def _index_of_elsewhere(tmp_path, folder, monkeypatch):
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / INDEX).write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    return [tmp_path / "m"], "a: must name a plain file of its own folder, got '../model.safetensors'"


def _too_big(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 900_000_000)
    return [folder], "858 MiB of memory are free; check its config alone with phasor doctor --meta"


def _text_without_weights(tmp_path, folder, monkeypatch):
    return [folder / "config.json", "--text", tmp_path / "book.txt"], "--text runs the weights; name the folder"


def _nothing(tmp_path, folder, monkeypatch):
    return [""], "PATH must name a folder, got nothing; name the current one with ."


def _weights(tmp_path, folder, monkeypatch):
    file = folder / "model.safetensors"
    return [file], f"{file}: must be a folder with a config.json, or that file; name the folder, {str(folder)!r}"


def _empty_text(tmp_path, folder, monkeypatch):
    (tmp_path / "empty.txt").write_text(" \n")
    return [folder, "--text", tmp_path / "empty.txt"], "empty.txt: is empty; name a file of text"


def _no_text(tmp_path, folder, monkeypatch):
    monkeypatch.setattr("phasor.tools.doctor.path_diagnosis.examine", None)  # not even looked at
    return [folder, "--text", tmp_path / "none.txt"], "none.txt: cannot be opened (No such file or directory)"


def _no_tokenizer(tmp_path, folder, monkeypatch):
    (tmp_path / "text.txt").write_text("words " * 9999)
    monkeypatch.setattr("phasor.tools.doctor.path_diagnosis.load", None)  # nothing is loaded before that is known
    return [folder, "--text", tmp_path / "text.txt"], "has no tokenizer that works"


BAD = [
    _nothing,
    _weights,
    _empty_text,
    _no_text,
    _no_tokenizer,
    _none,
    _no_json,
    _no_rotary,
    _unknown,
    _pickles,
    _tensors,
    _shards,
    _index_alone,
    _index_of_nothing,
    _index_without_a_map,
    _index_of_elsewhere,
    _bad_header,
    _too_big,
    _text_without_weights,
]


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_gets_one_line(bad, folder, phasor, tmp_path, monkeypatch):
    arguments, says = bad(tmp_path, folder, monkeypatch)
    code, out, err = phasor("doctor", *arguments)
    assert code == 2 and out == ""
    assert says in err and err.count("\n") == 1, err


@pytest.mark.slow  # an interpreter of its own
def test_json_into_a_full_disk(folder):
    command = [sys.executable, "-m", "phasor", "doctor", str(folder / "config.json"), "--json"]
    with open("/dev/full", "w") as full:
        done = limited.run(command, stdout=full)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "No space left on device" in done.stderr


def test_a_model_that_does_not_fit_is_checked_without_weights(folder, phasor, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 900_000_000)
    code, out, _ = phasor("doctor", folder, "--meta")
    assert code == 0 and "checked against the spec only" in out


def test_the_page_of_a_damaged_model():
    text = str(diagnose(to_bfloat16(healthy("gemma3"))))
    assert "frequencies rounded to bfloat16" in text.splitlines()[0]


@pytest.mark.parametrize("first, state, code", [("base 500000", "wrong", 1), ("as stated", "right", 0)])
def test_the_verdict_is_about_the_checks_and_the_text_together(first, state, code):
    model = healthy("llama")
    names = sorted(("base 500000", "as stated"), key=lambda name: name != first)
    rows = [RankingRow(name, 1.7 + 0.5 * i, 0.5 * i, 0.4 * i, 9) for i, name in enumerate(names)]
    ranking = Ranking(tuple(rows), "as stated", 64)
    told = diagnose(model)
    found = replace(told, findings=(*told.findings, *of_text(ranking)))
    made = PathDiagnosis(Path("folder"), found, ranking)
    assert told.sound and made.exit_code == ranking.exit_code == code
    assert found.verdict == state
    assert made.to_dict()["sound"] is (code == 0) and str(made).splitlines()[0].endswith(found.summary())
