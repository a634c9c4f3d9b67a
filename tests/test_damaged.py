"""Every command on inputs damaged at random: an answer, or one line that names the file and what is wrong with it."""

import json
import random
import shutil

import pytest

pytest.importorskip("transformers")

from doctor.declared import HERE, folder

TEXT = HERE / "held_out.txt"
ODD = (None, -1, 0, 1e308, 10**30, True, "x" * 100_000, "\x1b[31m", [], {}, [[]], {"a": {"b": []}}, 0.5, "1")
FEW, MANY = 3, 150  # damaged inputs of each command
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
    (place / "runs" / "text-rotary-seed0").rename(place / "run")


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
    "lab evaluate": (run, ("lab", "evaluate", "{}/run", "--tokens", "64", "--text", str(TEXT))),
    "lab export": (run, ("lab", "export", "{}/run", "{}/new")),
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
            assert err.startswith("phasor: ") and err.count("\n") == 1 and len(err) < 3000, (what, err)
            assert str(place) in err, (what, err)  # the file or its folder
        assert "\x1b" not in out + err, what


def damage(place, dice):
    """One file below ``place`` is damaged; says which and how."""
    path = dice.choice(sorted(p for p in place.rglob("*") if p.is_file()))
    ways = [cut_short, flipped, emptied, a_folder, a_circle, not_text]
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
