"""One law for damaged files, whatever reads them: a clear error that names the file, or the same result.

Never a traceback of another kind, a wrong number, another file touched, or half of one written.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from damage import ODD, damage, odd_value, wrecks_of
from doctor.declared import HERE, folder
from phasor import read_config
from phasor.tools.checkpoints import make_plan
from phasor.tools.golden import check

TEXT = HERE / "held_out.txt"
RUN = "rotary-seed0"
CONFIG = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
FEW, MANY = 2, 60  # damages of a command's files
TINY = ("--tokens", "256", "--batch", "2", "--layers", "1", "--dim", "8", "--heads", "1", "--length", "16")
NER = ("ner", "train", "{}/train.jsonl", "--dev", "{}/train.jsonl", "--epochs", "1")


# --- sound folders --------------------------------------------------------------------------------------------------


def config(place, phasor):
    (place / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))


def checkpoint(place, phasor):
    """Of two shards and an index."""
    from checkpoints import synthetic

    synthetic.write(place / "model", layers=2, hidden=64, heads=4, kv_heads=2, wide=96, per_shard=1)
    (place / "model/tokenizer.json").unlink()


def model(place, phasor):
    folder("plain", {}, place / "model")


def text(place, phasor):
    model(place, phasor)
    shutil.copy(TEXT, place / "text.txt")


def vectors(place, phasor):
    config(place, phasor)
    assert phasor("golden", place / "config.json", "--out", place / "golden")[0] == 0
    shutil.copy(place / "golden/vectors.safetensors", place / "mine.safetensors")
    for other in {*(place / "golden").iterdir()} - {
        place / "golden" / f"vectors.{kind}" for kind in ("json", "safetensors")
    }:
        other.unlink()
    (place / "config.json").unlink()


def gguf(place, phasor):
    pytest.importorskip("gguf")
    model(place, phasor)
    assert phasor("convert", place / "model", place / "gguf", "--to", "gguf")[0] == 0
    (file,) = (place / "gguf").glob("*.gguf")
    file.rename(place / "model.gguf")
    shutil.rmtree(place / "gguf")
    (place / "model/model.safetensors").unlink()


def onnx(place, phasor):
    pytest.importorskip("onnx")
    from exported.graphs import CONFIGS, operators, tables

    (place / "config.json").write_text(json.dumps(CONFIGS["halves"]))
    (place / "model.onnx").write_bytes(operators("halves", *tables("halves")).SerializeToString())


def run(place, phasor):
    assert phasor("lab", "train", "--text", TEXT, "--out", place / "runs", *TINY)[0] == 0
    (place / "runs" / RUN).rename(place / RUN)


def spans(place, phasor):
    from ner.toy import TRAIN, write_spans

    write_spans(place / "train.jsonl", TRAIN[:8])


def ner_model(place, phasor):
    spans(place, phasor)
    assert phasor(*(word.format(place) for word in (*NER, "--out", "{}/model")))[0] == 0


# A command: what it reads, made whole; its words. What it writes begins with {}/new.
COMMANDS = {
    "inspect": (config, "inspect {}/config.json"),
    "golden": (config, "golden {}/config.json --out {}/new"),
    "convert --dry-run": (checkpoint, "convert {}/model --dry-run"),
    "convert": (checkpoint, "convert {}/model {}/new --to interleaved"),
    "doctor": (model, "doctor {}/model"),
    "doctor --meta": (model, "doctor {}/model --meta"),
    "doctor --text": (text, "doctor {}/model --text {}/text.txt"),
    "check": (vectors, "check {}/golden --against {}/mine.safetensors"),
    "check, ONNX": (onnx, "check {}/model.onnx --config {}/config.json"),
    "convert --dry-run, GGUF": (gguf, "convert {}/model.gguf --dry-run"),
    "plan": (config, "plan {}/config.json --length 5000"),
    "plan --gguf": (gguf, "plan {}/model --length 5000 --engine llama.cpp --write {}/new --gguf {}/model.gguf"),
    "study": (text, "study {}/model --text {}/text.txt --length 16"),
    "fit": (text, "fit {}/model --text {}/text.txt --length 300 --evaluations 10"),
    "lab export": (run, f"lab export {{}}/{RUN} {{}}/new"),
    "lab report": (run, f"lab report {{}}/{RUN} --out {{}}/new --tokens 64 --times 1,2 --text {TEXT}"),
    "lab train": (text, " ".join(("lab train --text {}/text.txt --out {}/new", *TINY))),
    "lab train, again": (run, " ".join((f"lab train --text {TEXT} --out {{}}", *TINY))),
    "ner train": (spans, " ".join((*NER, "--out {}/new"))),
    "ner evaluate": (ner_model, "ner evaluate {}/model {}/train.jsonl"),
    "ner predict": (ner_model, "ner predict {}/model {}/train.jsonl --threshold 0.9"),
}
WRITES_INTO_WHAT_IT_READS = ("lab train, again",)


# --- the law --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """``sound(make, phasor)``: a folder as a maker leaves it, made once."""
    above = tmp_path_factory.mktemp("sound")

    def of(make, phasor):
        place = above / make.__name__
        if not place.exists():
            place.mkdir()
            make(place, phasor)
        return place

    return of


def files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def contents(place: Path) -> dict[str, bytes | str]:
    """Every file, link and pipe but what a command writes, and what is in it."""
    found: dict[str, bytes | str] = {}
    for at, folders, names in os.walk(place):
        for path in (Path(at) / name for name in (*folders, *names)):
            plain = path.is_file() and not path.is_symlink()
            found[str(path)] = path.read_bytes() if plain else os.readlink(path) if path.is_symlink() else ""
    return {name: data for name, data in found.items() if not name.startswith(f"{place}/new")}


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_or_refuses_in_one_line(name, count, tmp_path, phasor, sound):
    make, words = COMMANDS[name]
    dice = random.Random(name)
    for number in range(count):
        place = tmp_path / str(number)
        shutil.copytree(sound(make, phasor), place)
        path = dice.choice(files(place))
        what = f"{path.relative_to(place)}: {damage(path, dice)}"
        before = contents(place)
        code, out, err = phasor(*words.format(*[place] * words.count("{}")).split())
        assert code in (0, 1, 2), (what, code)
        assert "\x1b" not in out + err, what
        if name not in WRITES_INTO_WHAT_IT_READS:
            assert contents(place) == before, what
        if code == 2:
            (line,) = err.splitlines()
            assert line.startswith("phasor: ") and str(place) in line and len(line) < 3000, (what, err)
            assert not (place / "new").exists() or "written: " in err, what


class Reader:
    """A function that only reads: the folder it reads, and what is equal if it read the same."""

    def __init__(self, make: Callable[..., None], read: Callable[[Path], Any]) -> None:
        self.make, self.read = make, read


READERS = {
    "read_config": Reader(config, lambda place: read_config(place / "config.json").to_dict()),
    "make_plan": Reader(
        checkpoint, lambda place: re.sub(r"\d+ KiB in", "", make_plan(place / "model", "interleaved").describe())
    ),
    "check": Reader(vectors, lambda place: str(check(place / "golden", place / "mine.safetensors"))),
}
FILES = {
    "read_config": ["config.json"],
    "make_plan": [
        "model/config.json", "model/model.safetensors.index.json", "model/model-00001-of-00002.safetensors",
        "model/model-00002-of-00002.safetensors",
    ],
    "check": ["golden/vectors.json", "golden/vectors.safetensors", "mine.safetensors"],
}  # fmt: skip


def read_or_refused(reader: Reader, place: Path, what: str) -> tuple[str, str]:
    """What it read, and what it says of a damaged file, naming it or its folder: one of both."""
    before = contents(place)
    try:
        return str(reader.read(place)).replace(str(place), ""), ""
    except ValueError as error:
        says = str(error)
    except Exception as error:
        raise AssertionError(what) from error
    finally:
        assert contents(place) == before, what
    assert str(place) in says and len(says.replace("x" * 100_000, "")) < 3000, (what, says)
    return "", says


def each(reader: Reader, file: str, damages: dict[str, Callable[[Path], Any]], place: Path, source: Path) -> list[str]:
    """What is refused, of these damages; what is read is read as if nothing had happened, but for another config."""
    refused, expected = [], str(reader.read(source)).replace(str(source), "")
    for number, (what, do) in enumerate(damages.items()):
        at = place / str(number)
        shutil.copytree(source, at)
        do(at / file)
        read, says = read_or_refused(reader, at, what)
        if says:
            refused.append(what)
        else:
            assert read == expected or ("value" in what and "config" in file), (what, read)
    return refused


ALL = [(name, file) for name, files_of_it in FILES.items() for file in files_of_it]
SPARED = {"mine.safetensors": {"a tensor twice", "a fourth key"}}  # read, and as they were


@pytest.mark.parametrize("name, file", ALL)
def test_what_cannot_be_read_is_refused(name, file, tmp_path, phasor, sound):
    source = sound(READERS[name].make, phasor)
    wrecks = wrecks_of(source / file)
    refused = each(READERS[name], file, wrecks, tmp_path, source)
    assert {*wrecks} - {*refused} == SPARED.get(Path(file).name, set())


@pytest.mark.parametrize("name, file", [(name, file) for name, file in ALL if file.endswith(".json")])
def test_odd_values(name, file, tmp_path, phasor, sound):
    dice = random.Random(file)
    source = sound(READERS[name].make, phasor)
    damages = {f"value {number}": lambda path: odd_value(path, dice) for number in range(60)}
    assert len(each(READERS[name], file, damages, tmp_path, source)) > 10


@pytest.mark.parametrize("key", ["rope_theta", "num_attention_heads", "num_hidden_layers", "head_dim"])
def test_an_odd_number_of_a_config_is_not_taken_for_another(key, tmp_path):
    """It is refused by a line that names it, or is what was read."""
    path = tmp_path / "config.json"
    for value in ODD:
        path.write_text(json.dumps({**CONFIG, "num_hidden_layers": 2, "rope_theta": 1e4, "head_dim": 16, key: value}))
        try:
            read = read_config(path)
        except ValueError as error:
            says = str(error)
            assert "config.json" in says and (key in says or "rotary_dim" in says), (value, says)
        else:
            spec = read.layers[0]
            got = {"rope_theta": spec.base, "num_hidden_layers": len(read.layers), "head_dim": spec.head_dim}.get(key)
            assert value is None or (type(value) in (int, float) and got in (None, float(value))), (value, got)
