"""A folder that tries to run its own code, or to have some fetched, through the command line with a yes to all."""

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import limited
from house import PYTHONPATH
from phasor_lab.ner.model import WAY_OUT, save
from phasor_lab.ner.pretrained import load_pretrained, make_pretrained
from phasor_lab.run_folder.tensors import read_tensors, write_tensors

from .toy import DEV, RUN, TOKENIZER, TRAIN, model, write_spans

pytest.importorskip("typer")
transformers = pytest.importorskip("transformers")

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


# Every command as a process of its own would run it, with a yes to all questions; torch is imported once for all.
CALL_ALL = """import contextlib, io, json, pathlib, sys
from phasor.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv, sys.stdin = ["phasor", *words], io.StringIO("y\\n" * 9)
    out, err, code = io.StringIO(), io.StringIO(), None
    out.reconfigure = err.reconfigure = lambda **_: None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    answers.append([code, out.getvalue(), err.getvalue()])
print("ANSWERS" + json.dumps(answers))
"""


class Case(NamedTuple):
    place: Path
    words: list[object]
    said: str


def training(place: Path, settings: dict) -> Case:
    place.mkdir()
    data = write_spans(place / "train.jsonl", TRAIN), "--dev", write_spans(place / "dev.jsonl", DEV)
    folder = write(place, place / "theirs", settings)
    words = ["train", *data, "--out", place / "model", "--encoder", folder, "--epochs", 1]
    return Case(place, words, f"phasor: {NEVER_RUN.format(folder=str(folder))}\n")


def reseal(saved: Path, config: str) -> None:
    """Another config, with the seal that its author would write."""
    (saved / "config.json").write_text(config)
    tensors, sealed = read_tensors(saved / "model.safetensors", "weights", "")
    sealed["files"]["config.json"] = hashlib.sha256(config.encode()).hexdigest()
    write_tensors(saved / "model.safetensors", tensors, sealed)


def prediction(place: Path, settings: dict) -> Case:
    saved = place / "saved"
    save(saved, model(), TOKENIZER, RUN)
    about = json.loads((saved / "config.json").read_text())
    about["model"]["encoder"] = "pretrained"
    reseal(saved, json.dumps(about))
    reason = NEVER_RUN.format(folder=str(write(place, saved / "encoder", settings)))
    (place / "texts").write_text("ada met bob\n")
    said = f"phasor: {saved} must hold a model of `phasor ner train`, got: {reason}; {WAY_OUT}\n"
    return Case(place, ["predict", saved, place / "texts"], said)


CASES = {
    "training, own": (training, OWN),
    "training, of the hub": (training, OF_THE_HUB),
    "training, tokenizer": (training, TOKENIZER_ONLY),
    "prediction, own": (prediction, OWN),
    "prediction, of the hub": (prediction, OF_THE_HUB),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """``{name: (case, exit code, stdout, stderr)}`` of the commands, and whether any asked for the network."""
    place = tmp_path_factory.mktemp("foreign")
    (place / "watch").mkdir()
    (place / "watch" / "sitecustomize.py").write_text(WATCH.format(asked=str(place / "asked")))
    cases = [make(place / name.replace(", ", "-"), settings) for name, (make, settings) in CASES.items()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join([str(place / "watch"), PYTHONPATH])}
    words = json.dumps([["ner", *map(str, case.words)] for case in cases])
    done = limited.run([sys.executable, "-c", CALL_ALL, words], cwd=place, env=environment)
    found = json.loads(done.stdout.split("ANSWERS")[-1]) if done.returncode == 0 else pytest.fail(done.stderr)
    return dict(zip(CASES, zip(cases, found, strict=True), strict=True)), (place / "asked").exists()


@pytest.mark.parametrize("name", CASES)
def test_no_code_of_a_folder_is_run_and_nobody_is_asked(answers, name):
    cases, asked = answers
    case, (code, out, err) = cases[name]
    assert (code, out, err) == (2, "", case.said)
    assert not (case.place / "ran").exists()
    assert not (case.place / "model").exists()
    assert not asked


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
