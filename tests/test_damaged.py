"""Every command on inputs damaged at random: an answer, or one line that names the file and what is wrong with it."""

import json
import os
import random
import shutil

import pytest

pytest.importorskip("transformers")

from doctor.declared import HERE, folder
from phasor_lab.fitting.fit import fit_folder, journal_of

TEXT = HERE / "held_out.txt"
RUN = "text-rotary-seed0"
ODD = (
    None, -1, 0, 1e308, 10**30, float("nan"), float("inf"), True, "x" * 100_000, "\x1b[31m", "../x", [], {}, [[]],
    {"a": {"b": []}}, 0.5, "1",
)  # fmt: skip
NER = (
    "ner", "train", "{}/train.jsonl", "--dev", "{}/train.jsonl", "--epochs", "1", "--dim", "8", "--layers", "1",
    "--head-dim", "8",
)  # fmt: skip
FEW, MANY = 2, 60  # damaged inputs of each command
TINY = (
    "--tokens", "256", "--batch", "2", "--layers", "1", "--dim", "8", "--heads", "1", "--length", "16",
)  # fmt: skip


def model(place, phasor):
    folder("plain", {}, place / "model")


def text(place, phasor):
    model(place, phasor)
    shutil.copy(TEXT, place / "text.txt")


def vectors(place, phasor):
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
    (place / "config.json").write_text(json.dumps(config))
    code, _, err = phasor("golden", place / "config.json", "--out", place / "golden")
    assert code == 0, err
    shutil.copy(place / "golden" / "vectors.safetensors", place / "other.safetensors")


def run(place, phasor):
    code, _, err = phasor("lab", "train", TEXT, "--out", place / "runs", *TINY)
    assert code == 0, err
    (place / "runs" / RUN).rename(place / RUN)


class Killed(BaseException):
    """What nothing catches."""


def journal(place, phasor):
    """What a search leaves that was killed."""
    text(place, phasor)

    def tell(done, most):
        if done == 12:
            raise Killed

    with pytest.raises(Killed):
        fit_folder(place / "model", place / "text.txt", place / "new.json", length=300, evaluations=12, tell=tell)
    assert journal_of(place / "new.json").exists()


def gguf(place, phasor):
    pytest.importorskip("gguf")
    model(place, phasor)
    code, _, err = phasor("convert", place / "model", place / "gguf", "--to", "gguf")
    assert code == 0, err
    (file,) = (place / "gguf").glob("*.gguf")
    file.rename(place / "model.gguf")
    shutil.rmtree(place / "gguf")
    (place / "model" / "model.safetensors").unlink()


def onnx(place, phasor):
    pytest.importorskip("onnx")
    from exported.graphs import CONFIGS, operators, tables

    (place / "config.json").write_text(json.dumps(CONFIGS["halves"]))
    (place / "model.onnx").write_bytes(operators("halves", *tables("halves")).SerializeToString())


def spans(place, phasor):
    from ner.toy import TRAIN as EXAMPLES
    from ner.toy import write_spans

    write_spans(place / "train.jsonl", EXAMPLES[:8])


def ner_model(place, phasor):
    spans(place, phasor)
    code, _, err = phasor(*(word.format(place) for word in (*NER, "--out", "{}/model")))
    assert code == 0, err


def exportable(place, phasor):
    """Only what an export reads: damage to anything else is followed by a whole export, of ten seconds."""
    ner_model(place, phasor)
    for name in ("train.jsonl", "model/card.md", "model/log.jsonl", "model/checkpoint.safetensors"):
        (place / name).unlink()


def evaluated(place, phasor):
    run(place, phasor)
    code, _, err = phasor("lab", "evaluate", place / RUN, "--tokens", "64", "--times", "1,2", "--text", TEXT)
    assert code == 0, err


def config(place, phasor):
    model(place, phasor)
    (place / "model" / "model.safetensors").unlink()


# A command: what it reads, made whole; its words.
COMMANDS = {
    "inspect": (config, ("inspect", "{}/model")),
    "plan": (config, ("plan", "{}/model", "--length", "5000")),
    "golden": (config, ("golden", "{}/model", "--out", "{}/new")),
    "detect": (model, ("detect", "{}/model")),
    "detect --text": (text, ("detect", "{}/model", "--text", "{}/text.txt")),
    "convert": (model, ("convert", "{}/model", "{}/new", "--to", "interleaved")),
    "doctor": (model, ("doctor", "{}/model")),
    "study": (text, ("study", "{}/model", "--text", "{}/text.txt", "--length", "16", "--places", "1")),
    "fit": (text, ("fit", "{}/model", "--text", "{}/text.txt", "--length", "300", "--evaluations", "10")),
    "check": (vectors, ("check", "{}/golden", "--against", "{}/other.safetensors")),
    "lab evaluate": (run, ("lab", "evaluate", "{}/text-rotary-seed0", "--tokens", "64", "--text", str(TEXT))),
    "lab export": (run, ("lab", "export", "{}/text-rotary-seed0", "{}/new")),
    "lab extend": (
        run,
        ("lab", "extend", "{}/text-rotary-seed0", "--tokens", "64", "--text", str(TEXT), "--schemes", "ntk"),
    ),
    "lab report": (evaluated, ("lab", "report", "{}/text-rotary-seed0", "--out", "{}/new")),
    "lab train": (text, ("lab", "train", "{}/text.txt", "--out", "{}/new", *TINY)),
    "lab train, again": (run, ("lab", "train", str(TEXT), "--out", "{}", *TINY)),
    "fit, journal": (
        journal,
        ("fit", "{}/model", "--text", "{}/text.txt", "--length", "300", "--evaluations", "12", "--out", "{}/new.json"),
    ),
    "detect, GGUF": (gguf, ("detect", "{}/model.gguf")),
    "plan --gguf": (
        gguf,
        (
            "plan",
            "{}/model",
            "--length",
            "5000",
            "--engine",
            "llama.cpp",
            "--write",
            "{}/new",
            "--gguf",
            "{}/model.gguf",
        ),
    ),
    "check, ONNX": (onnx, ("check", "{}/model.onnx", "--config", "{}/config.json")),
    "ner train": (spans, (*NER, "--out", "{}/new")),
    "ner evaluate": (ner_model, ("ner", "evaluate", "{}/model", "{}/train.jsonl")),
    "ner predict": (ner_model, ("ner", "predict", "{}/model", "{}/train.jsonl", "--threshold", "0.9")),
    "ner export": (exportable, ("ner", "export", "{}/model", "{}/new.onnx")),
}


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    return {}, tmp_path_factory.mktemp("whole")


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_damage_is_an_answer_or_one_line(name, count, tmp_path, phasor, wholes):
    make, words = COMMANDS[name]
    made, above = wholes
    if make not in made:
        made[make] = above / make.__name__
        made[make].mkdir()
        make(made[make], phasor)
    dice = random.Random(name)
    for number in range(count):
        place = tmp_path / str(number)
        shutil.copytree(made[make], place)
        what = damage(place, dice)
        code, out, err = phasor(*(word.format(place) for word in words))
        assert code in (0, 1, 2), (what, code)
        if code == 2:
            *progress, line = err.splitlines()
            assert line.startswith("phasor: ") and len(line) < 3000 and all("━" in shown for shown in progress), (
                what,
                err,
            )
            assert str(place) in line, (what, err)  # the file or its folder
        assert "\x1b" not in out + err, what


def damage(place, dice):
    """One file below ``place`` is damaged; says which and how."""
    path = dice.choice(sorted(p for p in place.rglob("*") if p.is_file()))
    ways = [cut_short, flipped, emptied, a_folder, a_circle, a_pipe, endless, not_text]
    if path.suffix == ".json":
        ways = [*ways, *[odd_value] * 8, deep]
    way = dice.choice(ways)
    way(path, dice)
    return f"{path.relative_to(place)} {way.__name__}"


def cut_short(path, dice):
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def flipped(path, dice):
    data = bytearray(path.read_bytes())
    for _ in range(8):
        data[dice.randrange(min(len(data), 4096))] = dice.randrange(256)
    path.write_bytes(data)


def emptied(path, dice):
    path.write_bytes(b"")


def not_text(path, dice):
    path.write_bytes(b"\xff\xfe\x00" * 100)


def a_folder(path, dice):
    path.unlink()
    path.mkdir()


def a_circle(path, dice):
    path.unlink()
    path.symlink_to(path)


def a_pipe(path, dice):
    """Nobody writes to it: who opens it to read waits."""
    path.unlink()
    os.mkfifo(path)


def endless(path, dice):
    path.unlink()
    path.symlink_to("/dev/zero")


def odd_value(path, dice):
    data = json.loads(path.read_text())
    at = data
    while isinstance(at, dict) and at:
        key = dice.choice(list(at))
        if not isinstance(at[key], dict) or dice.random() < 0.3:
            at[key] = dice.choice(ODD)
            break
        at = at[key]
    path.write_text(json.dumps(data))


def deep(path, dice):
    path.write_text('{"text_config": ' * 900 + "{}" + "}" * 900)
