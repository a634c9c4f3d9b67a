"""Damaged checkpoints, model folders, results and data: one clear line, nothing lost, no end of patience."""

import hashlib
import random
import shutil
import signal

import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("tokenizers")
pytest.importorskip("matplotlib")
from typer.testing import CliRunner

from ner.toy import DEV, TRAIN, write_spans
from phasor_lab.cli.lab import app as lab
from phasor_lab.cli.ner import app as ner
from phasor_lab.lab import read_text, report
from phasor_lab.ner.model import CONFIG, WEIGHTS
from phasor_lab.run_folder import checkpoint
from phasor_lab.run_folder.tensors import read_tensors, write_tensors

from .damage import damage, damage_json_file

SECONDS = 500  # for one command, which takes two, so that a slow and busy machine is not at fault
SHORT, ALL = 8, 100  # damages of each kind: in every run of the tests, and with -m slow
LAB = ["--tokens", "768", "--length", "16", "--batch", "8", "--dim", "16", "--heads", "2", "--checkpoint-every", "2"]
NER = ["--dim", "16", "--layers", "1", "--batch", "8", "--epochs", "2", "--threads", "1"]


def call(app, *words):
    """The command; what it raises is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


class Killed(Exception):
    pass


def half(step):
    """A `step` that dies when three are done."""
    done = []

    def dying(*arguments):
        if len(done) == 3:
            raise Killed
        done.append(step(*arguments))
        return done[-1]

    return dying


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders of everything that can be damaged: finished and unfinished trainings, results, data."""
    folder = tmp_path_factory.mktemp("made")
    torch.set_num_threads(1)
    (folder / "text").mkdir()
    for name in "ab":
        (folder / "text" / name).write_text("the cat sees a tree and then runs home " * 40)
    call(lab, "train", "--text", folder / "text", "--out", folder / "lab", *LAB)
    call(lab, "evaluate", folder / "lab", "--times", "1,2", "--tokens", "64")
    call(lab, "extend", folder / "lab", "--schemes", "none,yarn", "--factors", "2", "--tokens", "64")
    write_spans(folder / "train.jsonl", TRAIN[:30])
    write_spans(folder / "dev.jsonl", DEV[:4])
    call(ner, "train", folder / "train.jsonl", "--dev", folder / "dev.jsonl", "--out", folder / "ner", *NER)
    with pytest.MonkeyPatch.context() as patch:
        from phasor_lab.lab import train

        patch.setattr(train.__globals__["DecoderTraining"], "step", half(train.__globals__["DecoderTraining"].step))
        with pytest.raises(Killed):
            call(lab, "train", "--text", folder / "text", "--out", folder / "lab-half", *LAB)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def too_long(*_):
    raise AssertionError(f"no end after {SECONDS} s")


def outcome(command, folder, name):
    """None if the command takes what it finds, else its error, one line; then nothing in the folder has changed."""
    before = contents(folder)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        command()
        return None
    except (ValueError, OSError) as error:  # what the command line makes one line of
        said = " ".join(str(error).split())
        assert name in said or folder.name in said, said
        assert len(said) < 1500, said
        assert contents(folder) == before
        return said
    finally:
        signal.alarm(0)


def copy(made, name, place):
    shutil.copytree(made / name, place / name)
    return place / name


def seeds(count):
    return pytest.mark.parametrize(
        "seeds", [range(count), pytest.param(range(count, ALL), marks=pytest.mark.slow)], ids=["some", "many"]
    )


@seeds(SHORT)
def test_a_checkpoint_of_the_lab_to_go_on_from(made, tmp_path, seeds):
    refused = 0
    for seed in seeds:
        chance = random.Random(seed)
        folder = copy(made, "lab-half", tmp_path / str(seed)) / "rotary-seed0"
        damage(folder / checkpoint.FILE, chance)
        again = ["train", "--text", made / "text", "--out", folder.parent, *LAB]
        refused += bool(outcome(lambda words=again: call(lab, *words), folder, checkpoint.FILE))
    assert refused > 0.8 * len(seeds)


@seeds(SHORT)
def test_a_finished_run_of_the_lab(made, tmp_path, seeds, monkeypatch):
    """Its weights are evaluated, stretched or exported; its results are reported (drawn, but not as pixels)."""
    monkeypatch.setitem(report.__globals__, "png", lambda figure: b"")
    for seed in seeds:
        chance = random.Random(1000 + seed)
        folder = copy(made, "lab", tmp_path / str(seed)) / "rotary-seed0"
        name = chance.choice([checkpoint.FILE, "run.json", "evaluation.json", "extension.json"])
        damage(folder / name, chance)
        commands = [["evaluate", "--times", "1,2", "--tokens", "64"], ["report", "--out", tmp_path / "out"]]
        commands += [["extend", "--schemes", "yarn", "--factors", "2", "--tokens", "64"]]
        word, *options = commands[0] if name == checkpoint.FILE else chance.choice(commands)
        outcome(lambda f=folder, w=word, o=options: call(lab, w, f, *o), folder, name)


@pytest.mark.parametrize("other", ["nowhere", checkpoint.FILE], ids=["nowhere", "itself"])
def test_a_link_that_leads_nowhere_is_no_new_start(made, tmp_path, other):
    """The file behind it may come back, on a disk that is not there just now."""
    folder = copy(made, "lab-half", tmp_path) / "rotary-seed0"
    (folder / checkpoint.FILE).unlink()
    (folder / checkpoint.FILE).symlink_to(other)
    again = ["train", "--text", made / "text", "--out", folder.parent, *LAB]
    assert "a link that leads nowhere" in outcome(lambda: call(lab, *again), folder, checkpoint.FILE)


def reseal(folder):
    """The weights say that the settings are the ones they were saved with."""
    tensors, about = read_tensors(folder / WEIGHTS, "", "")
    about["files"][CONFIG] = hashlib.sha256((folder / CONFIG).read_bytes()).hexdigest()
    write_tensors(folder / WEIGHTS, tensors, about)


@seeds(SHORT)
def test_a_folder_of_a_model(made, tmp_path, seeds):
    """Whatever changed in it is noticed; what was changed and sealed again is refused, or another model by right."""
    (tmp_path / "texts").write_text("ada met bob\n")
    for seed in seeds:
        chance = random.Random(3000 + seed)
        folder = copy(made, "ner", tmp_path / str(seed))
        name = chance.choice([CONFIG, CONFIG, "tokenizer.json", WEIGHTS])
        sealed = name == CONFIG and chance.random() < 0.6
        if sealed:
            damage_json_file(folder / name, chance)
            reseal(folder)
        else:
            damage(folder / name, chance)
        command = chance.choice([["predict", folder, tmp_path / "texts"], ["evaluate", folder, made / "dev.jsonl"]])
        said = outcome(lambda c=command: call(ner, *c), folder, name)
        same = (made / "ner" / name).read_bytes() == (folder / name).read_bytes()
        assert said or sealed or same or name == WEIGHTS, (seed, name)


@pytest.mark.parametrize(
    "seeds", [range(SHORT), pytest.param(range(SHORT, 20), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_texts_of_the_lab(made, tmp_path, seeds):
    for seed in seeds:
        chance = random.Random(5000 + seed)
        folder = copy(made, "text", tmp_path / str(seed))
        damage(folder / "a", chance)
        outcome(lambda f=folder: read_text([f]), folder, "a")
