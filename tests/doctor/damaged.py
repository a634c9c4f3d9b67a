"""Seeded damages of a model's folder: one thing in it is broken, as disks, editors and uploads break it."""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG, INDEX, TOKENIZER = "config.json", "model.safetensors.index.json", "tokenizer.json"
ODD = [
    None, True, False, 0, -1, 1, 3, 0.5, -2.5, 10**9, 2**31, 10**30, 1e308, float("nan"), float("inf"), "", "x", "64",
    "linear", [], [1], ["x", None], {}, {"factor": 2.0}, {"rope_type": "yarn"},
]  # fmt: skip
ADDED = [
    ("rope_theta", 1e4), ("rope_scaling", {"type": "linear", "factor": 2.0}), ("rope_scaling", {"factor": 0}),
    ("rope_scaling", [2.0]), ("partial_rotary_factor", 0.5), ("vision_config", {"model_type": "clip"}),
    ("text_config", {"num_hidden_layers": 10**9}), ("quantization_config", {"quant_method": "fp8"}),
    ("quantization_config", 3), ("auto_map", {"AutoModel": "evil.Model"}), ("architectures", ["os.system"]),
    ("model_type", "gpt2"), ("layer_types", ["x"] * 3), ("sliding_window", 10**9), ("num_experts", 10**9),
    ("rope_type", "yarn"), ("dtype", "int8"), ("dtype", "nonsense"), ("_attn_implementation", "nonsense"),
]  # fmt: skip


def edit_key(folder: Path, pick: random.Random) -> str:
    """A key of the config, or of its rope_parameters, is deleted, swapped or added."""
    data = json.loads((folder / CONFIG).read_text())
    level = data["rope_parameters"] if pick.random() < 0.3 else data
    key = pick.choice(sorted(level))
    how = pick.choice(["delete", "swap", "swap", "add"])
    if how == "delete":
        del level[key]
    elif how == "swap":
        level[key] = pick.choice(ODD)
    else:
        key, value = pick.choice(ADDED)
        data[key] = value
    (folder / CONFIG).write_text(json.dumps(data))
    return f"{how} {key} {level.get(key)!r:.40}"


def absurd_size(folder: Path, pick: random.Random) -> str:
    data = json.loads((folder / CONFIG).read_text())
    key = pick.choice([name for name, value in data.items() if type(value) is int])
    data[key] = pick.choice([10**9, 2**31 - 1, 2**40, 2**63, 10**40, -(10**9)])
    (folder / CONFIG).write_text(json.dumps(data))
    return f"{key} {data[key]}"


def _bytes(name: str) -> Callable[[Path, random.Random], str]:
    def damage(folder: Path, pick: random.Random) -> str:
        file = folder / name
        data = bytearray(file.read_bytes())
        near = min(len(data), pick.choice([64, 2000, len(data)]))
        how = pick.choice(["truncate", "flip", "flip", "empty", "longer"])
        if how == "truncate":
            del data[pick.randrange(near) :]
        elif how == "flip":
            for _ in range(pick.choice([1, 3, 50])):
                data[pick.randrange(near)] ^= 1 << pick.randrange(8)
        elif how == "longer":
            data += pick.randbytes(100)
        else:
            data.clear()
        file.write_bytes(data)
        return f"{how} {name} in the first {near} bytes"

    return damage


def header(folder: Path, pick: random.Random) -> str:
    """An entry of a weight file says something else."""
    file = folder / "model-00001-of-00002.safetensors"
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + size])
    name = pick.choice(sorted(set(entries) - {"__metadata__"}))
    changes: list[tuple[str, Any]] = [
        ("shape", [10**9, 10**9]), ("shape", [-1]), ("shape", "x"), ("dtype", "F4"), ("dtype", 3), ("dtype", "I64"),
        ("data_offsets", [0, 10**15]), ("data_offsets", [5, 1]), ("data_offsets", []),
        ("shape", entries[name]["shape"][::-1]),
    ]  # fmt: skip
    key, value = pick.choice(changes)
    entries[name][key] = value
    text = json.dumps(entries).encode()
    claimed = pick.choice([len(text)] * 4 + [2**62, 0, len(text) - 1])
    file.write_bytes(struct.pack("<Q", claimed) + text + data[8 + size :])
    return f"{name} {key} {value}, header of {claimed}"


def index(folder: Path, pick: random.Random) -> str:
    data = json.loads((folder / INDEX).read_text())
    name = pick.choice(sorted(data["weight_map"]))
    odd = pick.choice(["../config.json", "/etc/hostname", "", 3, None, "config.json", "model-00009.safetensors"])
    if pick.random() < 0.5:
        data["weight_map"][name] = odd
    else:
        data["weight_map"] = odd
    (folder / INDEX).write_text(json.dumps(data))
    return f"{name} in {odd!r}"


def entry(folder: Path, pick: random.Random) -> str:
    """A file is gone, a folder, a link to nothing or to itself, a pipe; or a folder links around."""
    name = pick.choice(sorted(path.name for path in folder.iterdir()))
    file = folder / name
    data = file.read_bytes()
    file.unlink()
    how = pick.choice(["gone", "folder", "dangling", "circle", "pipe", "around", "blob", "binary"])
    if how == "folder":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how in ("dangling", "circle", "around"):
        file.symlink_to({"dangling": "nowhere", "circle": name, "around": ".."}[how])
    elif how == "blob":
        (folder / "blobs").mkdir()
        (folder / "blobs" / "1").write_bytes(data)
        file.symlink_to("blobs/1")
    elif how == "binary":
        file.write_bytes(pick.randbytes(300))
    return f"{name} {how}"


DAMAGES = [
    edit_key, edit_key, edit_key, absurd_size, _bytes(CONFIG), _bytes("model-00001-of-00002.safetensors"), header,
    index, _bytes(INDEX), _bytes(TOKENIZER), entry, entry,
]  # fmt: skip
OPTIONS = [[], [], ["--meta"], ["--json"], ["--repair"], ["--repair"], ["--text"]]


def damage(folder: Path, seed: int) -> tuple[str, list[str]]:
    """Break one thing, or two; what was done, and the options to look at it with."""
    pick = random.Random(seed)
    done = [pick.choice(DAMAGES)(folder, pick)]
    if pick.random() < 0.2:
        done.append(edit_key(folder, pick) if (folder / CONFIG).is_file() and _is_json(folder / CONFIG) else "")
    return ", ".join(done), pick.choice(OPTIONS)


def _is_json(file: Path) -> bool:
    try:
        return isinstance(json.loads(file.read_bytes()).get("rope_parameters"), dict)
    except (ValueError, AttributeError):
        return False
