"""Damages of files, each a function of a random generator: bytes that changed, and content that never was right."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from phasor_lab.run_folder.tensors import read_tensors, write_tensors

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 5, 10**9, 10**30, -(10**9), 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x",
    "1", "0" * 300, "\0", "\x1b[31m", [], [[]], [1, 2], ["a", "a"], {}, {"x": 1}, [[[[[]]]]], "../..", "é\ud800",
]  # fmt: skip


def damage_bytes(path: Path, chance: random.Random) -> None:
    """Truncated, flipped, cut, doubled, overwritten, emptied, or with something behind."""
    data = bytearray(path.read_bytes())
    kind, at = chance.randrange(8), chance.randrange(len(data))
    size = chance.choice([1, 2, 8, 100, len(data) // 2])
    if kind == 0:
        del data[at:]
    elif kind in (1, 2):
        for _ in range(chance.choice([1, 1, 8, 64])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 3:
        del data[at : at + size]
    elif kind == 4:
        data[at:at] = data[at : at + size] or b"\0"
    elif kind == 5:
        data[at : at + size] = chance.randbytes(min(size, len(data) - at))
    elif kind == 6:
        data[:] = chance.choice([b"", b"\0" * len(data), b"PK\x03\x04" + bytes(data), b"[" * 200_000])
    else:
        data += chance.choice([b"\0", b"}", chance.randbytes(64)])
    path.write_bytes(data)


def damage_json(data: Any, chance: random.Random) -> Any:
    """One value somewhere in it replaced by an odd one, taken away, doubled, or given another name."""
    place, key = None, None
    node = data
    while isinstance(node, dict | list) and node and (place is None or chance.random() < 0.75):
        place, key = node, chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        node = node[key]
    if place is None:
        return chance.choice(ODD)
    kind = chance.randrange(5)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, list):
        place.insert(key, place[key])
    elif kind == 1:
        place[f"{key}x"] = place.pop(key)
    elif kind == 2 and isinstance(node, int | float) and not isinstance(node, bool):
        place[key] = chance.choice([node + 1, -node, node * 10**9, node / 2, str(node), [node]])
    else:
        place[key] = chance.choice(ODD)
    return data


def damage_json_file(path: Path, chance: random.Random) -> None:
    path.write_text(json.dumps(damage_json(json.loads(path.read_text()), chance)), encoding="utf-8")


def damage_tensors(path: Path, chance: random.Random) -> None:
    """A sealed file with other content: whole, and still not what belongs there."""
    tensors, about = read_tensors(path, "", "")
    name = chance.choice(sorted(tensors))
    kind = chance.randrange(8)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[f"{name}.more"] = torch.zeros(3)
    elif kind == 2:
        tensors[name] = tensors[name].to(chance.choice([torch.float16, torch.float64, torch.int64, torch.bool]))
    elif kind == 3:
        tensors[name] = torch.zeros(chance.choice([(), (0,), (1, 1, 1), (7,), (2, 50_000)]))
    elif kind == 4:
        tensors = {n: t for n, t in tensors.items() if not n.startswith(chance.choice(["optimizer", "model", "mean"]))}
    else:
        about = damage_json(about, chance)
    write_tensors(path, tensors, about)


DAMAGES: dict[str, list[Callable[[Path, random.Random], None]]] = {
    ".safetensors": [damage_bytes, damage_tensors, damage_tensors],
    ".json": [damage_bytes, damage_json_file, damage_json_file],
}


def damage(path: Path, chance: random.Random) -> str:
    """One of them; returns which."""
    chosen = chance.choice(DAMAGES.get(path.suffix, [damage_bytes]))
    chosen(path, chance)
    return chosen.__name__
