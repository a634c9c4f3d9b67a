import hashlib
import os

import pytest
import torch

from phasor_lab.lab import read_text
from phasor_lab.lab.data import standard_library


def test_files_are_joined_in_order_and_hashed(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"zwei")
    (tmp_path / "a.txt").write_bytes("één".encode())
    (tmp_path / ".hidden.txt").write_bytes(b"no")
    text = read_text([tmp_path])
    assert text.train.numpy().tobytes() == "één\nzwei".encode()  # too short to hold a byte out
    each = [hashlib.sha256(data.encode()).hexdigest() for data in ("één", "zwei")]
    assert text.sha256 == hashlib.sha256("\n".join(each).encode()).hexdigest()
    assert read_text([tmp_path / "a.txt"]).sha256 == each[0]
    assert (text.files, text.names) == (2, (str(tmp_path),))


def test_the_last_tenth_of_every_file_is_held_out(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("".join(f"{name}{i}" for i in range(10)))  # 20 bytes
    text = read_text([tmp_path])
    assert text.train.numpy().tobytes() == b"a0a1a2a3a4a5a6a7a8\nb0b1b2b3b4b5b6b7b8"
    assert text.held_out.numpy().tobytes() == b"a9\nb9"
    assert read_text([tmp_path / "b"]).held_out.numpy().tobytes() == b"b9"


def test_a_link_that_leads_nowhere_is_not_left_out(tmp_path):
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").symlink_to("gone")
    with pytest.raises(OSError, match="No such file") as refused:
        read_text([tmp_path])
    assert refused.value.filename == str(tmp_path / "b")


def test_what_is_scored_is_of_every_file_in_proportion(tmp_path):
    for name, size in (("a", 3000), ("b", 60), ("c", 9), ("d", 1200)):  # held out: 300, 6, none and 120
        (tmp_path / name).write_text(name * size)
    text = read_text([tmp_path])
    assert text.held_out.numpy().tobytes() == b"a" * 300 + b"\n" + b"b" * 6 + b"\n" + b"d" * 120
    half = text.held_out_sample(214).numpy().tobytes()
    assert half == b"a" * 150 + b"\n" + b"b" * 2 + b"\n" + b"d" * 60
    for size in (428, 10**6):
        assert torch.equal(text.held_out_sample(size), text.held_out)
    one = read_text([tmp_path / "a"])
    assert torch.equal(one.held_out_sample(7), one.held_out[:7])


def test_where_a_file_ends_is_part_of_what_a_text_is(tmp_path):
    for name, data in (("a", "one\ntwo"), ("b", "one"), ("c", "two")):
        (tmp_path / name).write_text(data)
    one, two = read_text([tmp_path / "a"]), read_text([tmp_path / "b", tmp_path / "c"])
    assert torch.equal(one.train, two.train)
    assert one.sha256 != two.sha256


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
    first = standard_library()[0].read_bytes()
    assert text.train.numpy().tobytes().startswith(first[: len(first) * 9 // 10])


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
    with pytest.raises(ValueError, match=r"text folder must hold files, got none in"):
        read_text([tmp_path])
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
