"""A folder that tries to run its own code, or to have some fetched, through the command line with a yes to all."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phasor.apps.ner.model import save
from phasor.apps.ner.pretrained import load_pretrained, make_pretrained

from .toy import DEV, TOKENIZER, TRAIN, model, write_spans

pytest.importorskip("typer")
transformers = pytest.importorskip("transformers")

SRC = Path(__file__).resolve().parents[2] / "src"
# Run at the start of every Python there: a socket that is used leaves a file.
WATCH = """import os, pathlib, socket
def asked(*_, **__):
    pathlib.Path({asked!r}).touch()
    raise OSError("no network here")
socket.getaddrinfo = socket.create_connection = socket.socket.connect = asked
"""
CODE = """import pathlib
pathlib.Path({ran!r}).touch()
from transformers import BertConfig as Config, BertModel as Model, BertTokenizer as Tokenizer
"""
MAP = {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model", "AutoTokenizer": ["theirs.Tokenizer"] * 2}
THERE = {"AutoConfig": "owner/name--theirs.Config", "AutoModel": "owner/name--theirs.Model"}
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 20}

OWN = {"model_type": "theirs", "auto_map": MAP, **SMALL}
OF_THE_HUB = {"model_type": "theirs", "auto_map": THERE, **SMALL}
TOKENIZER_ONLY = {
    "model_type": "vit",
    "auto_map": MAP,
    **SMALL,
}  # a model that transformers has, without tokenizer
BERT = {"model_type": "bert", **SMALL}

NEVER_RUN = (
    "encoder must be a folder that transformers can load, got {folder!r}: it needs Python code of its own (auto_map), "
    "and no code from a folder is run; take an encoder whose model and tokenizer are part of transformers"
)


def write(place: Path, folder: Path, settings: dict) -> Path:
    """An encoder's folder with those settings, its own code, and a tokenizer's config that wants it run."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Theirs", "auto_map": MAP}))
    (folder / "tokenizer.json").write_text(TOKENIZER.to_str())
    (folder / "theirs.py").write_text(CODE.format(ran=str(place / "ran")))
    return folder


def refusal(place: Path, *words: object) -> str:
    """What `phasor ner` says on stderr; asserts that it ends as for any mistake and that nothing ran or was asked."""
    (place / "watch").mkdir()
    (place / "watch" / "sitecustomize.py").write_text(WATCH.format(asked=str(place / "asked")))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join([str(place / "watch"), str(SRC)])}
    done = subprocess.run(
        [sys.executable, "-m", "phasor", "ner", *map(str, words)],
        input="y\n" * 9, capture_output=True, text=True, cwd=place, env=environment,
    )  # fmt: skip
    assert not (place / "ran").exists()
    assert not (place / "asked").exists()
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("settings", [OWN, OF_THE_HUB, TOKENIZER_ONLY], ids=["own", "of the hub", "tokenizer"])
def test_training_runs_no_code_of_an_encoder(tmp_path, settings):
    data = write_spans(tmp_path / "train.jsonl", TRAIN), "--dev", write_spans(tmp_path / "dev.jsonl", DEV)
    folder = write(tmp_path, tmp_path / "theirs", settings)
    said = refusal(tmp_path, "train", *data, "--out", tmp_path / "model", "--encoder", folder, "--epochs", 1)
    assert said == f"phasor: {NEVER_RUN.format(folder=str(folder))}\n"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("settings", [OWN, OF_THE_HUB], ids=["own", "of the hub"])
def test_prediction_runs_no_code_of_a_model(tmp_path, settings):
    saved = tmp_path / "model"
    save(saved, model(), TOKENIZER, {})
    about = json.loads((saved / "config.json").read_text())
    about["model"]["encoder"] = "pretrained"
    (saved / "config.json").write_text(json.dumps(about))
    folder = write(tmp_path, saved / "encoder", settings)
    (tmp_path / "texts").write_text("ada met bob\n")
    reason = NEVER_RUN.format(folder=str(folder))
    said = refusal(tmp_path, "predict", saved, tmp_path / "texts")
    assert said == f"phasor: {saved} must hold a model of `phasor ner train`, got: {reason}\n"


@pytest.mark.parametrize("load", [make_pretrained, load_pretrained])
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"auto_map": MAP, **SMALL}, "no code from a folder is run"),
        (BERT | {"attn_implementation": "owner/name"}, "torch's own code, got 'owner/name' in the config of"),
        (BERT | {"_attn_implementation": "owner/name"}, "torch's own code, got 'owner/name' in the config of"),
        (BERT | {"attn_implementation": "flash_attention_2"}, "torch's own code, got 'flash_attention_2' in the conf"),
        ({"model_type": "clip", "attn_implementation": {"text_config": "owner/name"}}, "own code, got 'owner/name'"),
        (BERT | {"hidden_size": "many"}, "encoder must be a folder that transformers can load, got"),
        (BERT | {"auto_map": 1}, "encoder must be a folder that transformers can load, got"),
    ],
)
def test_a_config_that_wants_more_than_to_be_read(tmp_path, settings, message, load):
    """Code of a folder without a type, a kernel that would be fetched, and nonsense: one line each."""
    folder = write(tmp_path, tmp_path / "theirs", settings)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load(folder)
    assert repr(str(folder)) in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_a_model_that_transformers_has_is_its_own_whatever_the_folder_brings(tmp_path):
    """Folders made before transformers had the model still name the code that they came with."""
    folder = write(tmp_path, tmp_path / "theirs", BERT | {"auto_map": MAP})
    assert type(make_pretrained(folder)) is transformers.BertModel
    assert not (tmp_path / "ran").exists()
