import hashlib
import os

import pytest
import torch

from phasor.apps.lab import read_text
from phasor.apps.lab.data import standard_library


def test_files_are_joined_in_order_and_hashed(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"zwei")
    (tmp_path / "a.txt").write_bytes("één".encode())
    (tmp_path / "a.log").write_bytes(b"no")
    (tmp_path / ".hidden.txt").write_bytes(b"no")
    text = read_text([tmp_path], glob="*.txt")
    assert text.data.numpy().tobytes() == "één\nzwei".encode()
    assert text.sha256 == hashlib.sha256("één\nzwei".encode()).hexdigest()
    assert (text.files, text.names) == (2, (str(tmp_path),))


def test_the_last_tenth_is_held_out(text):
    whole = text.data.numpy().tobytes()
    assert text.train.numpy().tobytes() + text.held_out.numpy().tobytes() == whole
    assert len(text.held_out) == len(whole) // 10


def test_batches_are_windows_of_the_training_part(text):
    tokens, targets = text.batch(seed=0, step=3, batch=5, length=20)
    train = text.train.numpy().tobytes()
    for row, target in zip(tokens, targets, strict=True):
        assert bytes(row.tolist()) + bytes([int(target[-1])]) in train
        assert torch.equal(row[1:], target[:-1])


def test_batches_depend_on_seed_and_step_alone(text):
    def of(seed: int, step: int) -> list[int]:
        return text.batch(seed, step, 4, 16)[0].flatten().tolist()

    assert of(0, 1) == of(0, 1)
    assert len({tuple(of(seed, step)) for seed in (0, 1, 2**31 - 1) for step in (0, 1, 2**31)}) == 9


def test_the_last_byte_of_the_training_part_can_be_a_target(tmp_path):
    (tmp_path / "t").write_bytes(b"abcdefghij")  # nine to train on: one window of eight and its target
    tokens, targets = read_text([tmp_path / "t"]).batch(0, 0, 2, 8)
    assert bytes(tokens[0].tolist()) == b"abcdefgh"
    assert int(targets[0, -1]) == ord("i")


def test_the_default_is_pythons_own_library():
    text = read_text()
    assert text.files == len(standard_library()) > 100
    assert text.data.numpy().tobytes().startswith(standard_library()[0].read_bytes())


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", r"text file must not be empty, got '.*bad.txt'"),
        (b"ab\0c", r"text file must be UTF-8 text, got '.*bad.txt' with a NUL byte at offset 2"),
        (b"abc\xff", r"text file must be UTF-8 text, got '.*bad.txt' with byte 0xff at offset 3"),
    ],
)
def test_what_is_not_text_is_named(tmp_path, content, message):
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_text([tmp_path])


def test_missing_and_empty_places_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"text path must exist, got '.*nowhere'"):
        read_text([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"text folder must hold files named like '\*.txt', got none in"):
        read_text([tmp_path], glob="*.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"text file must be a regular file, got '.*pipe'"):
        read_text([tmp_path / "pipe"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "secret").write_text("text")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(PermissionError, match="secret"):
        read_text([tmp_path])


def test_a_text_shorter_than_the_context_is_refused(tmp_path):
    (tmp_path / "t").write_bytes(b"abcdefghij")
    with pytest.raises(ValueError, match=r"text must have more than 9 bytes to train on .*, got 9; give more text"):
        read_text([tmp_path / "t"]).batch(0, 0, 1, 9)
