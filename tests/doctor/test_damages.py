"""Any damage of a model's folder: an exit code, one line where it is bad input, and no other file is touched."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from integrations.sick import healthy

from .damaged import damage

pytest.importorskip("transformers")
SECONDS = 500  # of a command; a sound folder takes half of one, and four with a text, on a machine of its own


class TooLong(BaseException):
    """Nothing may catch it."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A Llama of one layer in two files with an index, a tokenizer and a text beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    at = tmp_path_factory.mktemp("models")
    model = healthy("llama", num_hidden_layers=1)
    model.save_pretrained(at / "right", max_shard_size="90KB")
    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    made = Tokenizer(models.BPE(letters, [], unk_token=None))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(at / "right")
    (at / "text.txt").write_text("so it goes " * 100)
    assert sum(p.suffix == ".safetensors" for p in (at / "right").iterdir()) == 2
    return at


def told(folder: Path) -> dict[str, bytes | str]:
    """Every file, link and pipe, and what is in it."""
    found: dict[str, bytes | str] = {}
    for at, folders, names in os.walk(folder):
        for path in (Path(at) / name for name in (*folders, *names)):
            read = path.is_file() and not path.is_symlink()
            found[str(path)] = path.read_bytes() if read else os.readlink(path) if path.is_symlink() else ""
    return found


def look(sound: Path, at: Path, seed: int, phasor) -> tuple[int, str]:
    """One damage, one command; its exit code."""
    at.mkdir()
    folder, out = at / "damaged", at / "out"
    shutil.copytree(sound / "right", folder)
    what, options = damage(folder, seed)
    values = {"--repair": [out], "--text": [sound / "text.txt"]}
    before = told(at)

    def late(*_):
        raise TooLong(f"seed {seed}: {what} {options}")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        code, said, err = phasor("doctor", folder, *options, *(v for o in options for v in values.get(o, [])))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {what} {options}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    about = f"seed {seed}: {what} {options}: {code} {said} {err}"
    assert code in (0, 1, 2), about
    assert err.startswith("phasor: ") and err.count("\n") == 1 and not said if code == 2 else not err and said, about
    assert {name: data for name, data in told(at).items() if not name.startswith(str(out))} == before, about
    assert code < 2 or not out.exists() or "written: " in err, about
    shutil.rmtree(at)
    return code, about


# of every kind of damage some that cost little: what is refused, or checked without weights
QUICK = (2, 3, 4, 7, 9, 11, 13, 17, 19, 21, 24, 25, 27, 31, 44, 46, 72, 74, 84, 92)


def test_some_damages(sound, phasor, tmp_path):
    for seed in QUICK:
        look(sound, tmp_path / str(seed), seed, phasor)


@pytest.mark.slow
def test_many_damages(sound, phasor, tmp_path):
    """Of 400, each outcome is frequent: damages that are told, that are refused, and that change nothing."""
    codes = [look(sound, tmp_path / str(seed), seed, phasor)[0] for seed in range(400)]
    assert min(codes.count(code) for code in (0, 1, 2)) > 10, codes
