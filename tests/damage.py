"""Damages of files, as disks, editors, uploads and attackers make them.

`WRECKS` leave nothing that could be read: whoever reads such a file refuses it. `RANDOM` ones may: they take dice.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Wreck = Callable[[Path], Any]

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 3, 0.5, -2.5, 10**9, 2**62, 10**30, 1e308, float("nan"), float("inf"), "", "x", "64",
    "../x", "\x1b[31m", "x" * 100_000, "linear", [], [1], [[]], ["x", None], {}, {"factor": 2.0}, {"a": {"b": []}},
]  # fmt: skip


# --- wrecks ---------------------------------------------------------------------------------------------------------


def instead(make: Wreck) -> Wreck:
    """Something else stands where the file was."""

    def wreck(path: Path) -> None:
        path.unlink()
        make(path)

    return wreck


def holds(data: bytes) -> Wreck:
    return lambda path: path.write_bytes(data)


OF_ANY_FILE: dict[str, Wreck] = {
    "empty": holds(b""),
    "not text": holds(b"\xff\xfe\x00" * 100),
    "cut off": lambda path: os.truncate(path, path.stat().st_size * 2 // 3),
    "a folder": instead(Path.mkdir),
    "a pipe": instead(os.mkfifo),  # nobody writes to it: who opens it to read waits
    "a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "a link to nothing": instead(lambda path: path.symlink_to("nowhere")),
    "a link to itself": instead(lambda path: path.symlink_to(path)),
}

OF_JSON: dict[str, Wreck] = {
    "a list": holds(b"[]"),
    "a word": holds(b'"llama"'),
    "null": holds(b"null"),
    "a comma too many": lambda path: path.write_bytes(path.read_bytes().rstrip()[:-1] + b",}"),
    "a comment": lambda path: path.write_bytes(b"// mine\n" + path.read_bytes()),
    "UTF-16": lambda path: path.write_bytes(path.read_text().encode("utf-16")),
    "a key twice": lambda path: path.write_text(path.read_text().replace("{", '{"x": 1, "x": 2, ', 1)),
    "a number of many digits": lambda path: path.write_text(path.read_text().replace("{", f'{{"x": {"1" * 9999}, ', 1)),
    "nested 900 times": holds(b'{"text_config": ' * 900 + b"{}" + b"}" * 900),
    "nested 10^5 times": holds(b'{"a": ' * 10**5),
}


def header(change: Callable[[dict[str, Any], str, str], Any]) -> Wreck:
    """The header of a safetensors file, changed: it, its largest tensor and the one after that in the file."""

    def wreck(path: Path) -> None:
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size])
        placed = sorted((n for n in head if n != "__metadata__"), key=lambda n: head[n]["data_offsets"])
        at = max(
            range(len(placed) - 1),
            key=lambda i: head[placed[i]]["data_offsets"][1] - head[placed[i]]["data_offsets"][0],
        )
        text = change(head, placed[at], placed[at + 1])
        text = text if isinstance(text, bytes) else json.dumps(head).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    return wreck


def entry(**changes: Any) -> Wreck:
    return header(lambda head, name, after: head[name].update(changes))


def overlapping(head: dict[str, Any], name: str, after: str) -> None:
    head[after]["data_offsets"] = [at - 2 for at in head[after]["data_offsets"]]


OF_SAFETENSORS: dict[str, Wreck] = {
    "a page of the web": holds(b"<!DOCTYPE html>\n<html>Not found</html>\n"),
    "a pointer of Git LFS": holds(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1044984\n"),
    "four bytes": holds(b"1234"),
    "a header of 2^60": holds((2**60).to_bytes(8, "little") + b"{}"),
    "a header beyond the file": holds((3).to_bytes(8, "little") + b"{}"),
    "no JSON": header(lambda *_: b"{nonsense"),
    "a list of tensors": header(lambda *_: b"[]"),
    "deep": header(lambda *_: b'{"a":' * 10**5),
    "a tensor twice": header(
        lambda head, name, _: json.dumps(head)[:-1].encode() + b"," + json.dumps({name: head[name]})[1:].encode()
    ),
    "no dtype": header(lambda head, name, _: head[name].pop("dtype") and None),
    "a fourth key": entry(more=1),
    "no object": header(lambda head, name, _: head.update({name: 7})),
    "unknown dtype": entry(dtype="F7"),
    "dtype a list": entry(dtype=[]),
    "negative shape": entry(shape=[-64, 64]),
    "a shape of floats": entry(shape=[64.0, 64]),
    "a shape of truths": entry(shape=[True, 64]),
    "a huge shape": entry(shape=[2**62, 2**62]),
    "a thousand axes": entry(shape=[1] * 1000),
    "another shape": entry(shape=[63]),
    "offsets reversed": entry(data_offsets=[8192, 0]),
    "offsets beyond": entry(data_offsets=[0, 2**50]),
    "three offsets": entry(data_offsets=[0, 1, 2]),
    "overlap": header(overlapping),
    "a hole": header(lambda head, name, _: head.pop(name) and None),
    "bytes at the end": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "metadata of numbers": header(lambda head, *_: head.update(__metadata__={"a": 1})),
}

BY_SUFFIX = {".json": OF_JSON, ".safetensors": OF_SAFETENSORS}


def wrecks_of(path: Path) -> dict[str, Wreck]:
    return {**OF_ANY_FILE, **BY_SUFFIX.get(path.suffix, {})}


# --- what may be read afterwards ------------------------------------------------------------------------------------


def flipped(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    near = min(len(data), dice.choice([64, 4096, len(data)]))
    for _ in range(dice.choice([1, 3, 50])):
        data[dice.randrange(near)] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def shortened(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: dice.randrange(path.stat().st_size)])


def lengthened(path: Path, dice: random.Random) -> None:
    path.write_bytes(path.read_bytes() + dice.randbytes(dice.randrange(1, 100)))


def odd_value(path: Path, dice: random.Random) -> None:
    """Somewhere in it another value of any kind, or a key less."""
    data = json.loads(path.read_text())
    node, key = data, dice.choice(list(data))
    while isinstance(node[key], dict | list) and node[key] and dice.random() < 0.7:
        node = node[key]
        key = dice.choice(list(node)) if isinstance(node, dict) else dice.randrange(len(node))
    if dice.random() < 0.2:
        del node[key]
    else:
        node[key] = dice.choice(ODD)
    path.write_text(json.dumps(data))


def damage(path: Path, dice: random.Random) -> str:
    """One damage of any kind; says which."""
    wrecks = wrecks_of(path)
    random_ones = [flipped, shortened, lengthened, *([odd_value] * 4 if path.suffix == ".json" else [])]
    how = dice.choice([*dice.sample(sorted(wrecks), len(random_ones)), *random_ones])
    if isinstance(how, str):
        wrecks[how](path)
        return how
    how(path, dice)
    return how.__name__
