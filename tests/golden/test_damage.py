"""Damaged files: whatever is damaged, one clear line, and nothing else."""

import json
import random
import struct

import pytest
import torch
from safetensors.torch import load_file, save

from phasor.tools.golden import check

SEEDS = range(130)


def truncated(draw, data):
    return data[: draw.randrange(len(data))]


def flipped(draw, data):
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def lengthened(draw, data):
    return data + draw.randbytes(draw.randrange(1, 100))


def absurd_header(draw, data):
    return struct.pack("<Q", draw.choice((0, 2**63, 2**40, len(data) + 1))) + data[8:]


def absurd_shape(draw, data):
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    entry = header[draw.choice([name for name in header if name != "__metadata__"])]
    how = draw.randrange(4)
    entry["shape"] = ([2**62, 2**62], [-1], [], [*entry["shape"][::-1], 1])[how]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def empty(draw, data):
    return b""


def changed_value(draw, data):
    """Somewhere in the description another value, of any type, or a key less."""
    found = json.loads(data)
    node, key = found, draw.choice(list(found))
    while isinstance(node[key], dict | list) and node[key] and draw.random() < 0.8:
        node = node[key]
        key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
    if draw.random() < 0.4:
        del node[key]
    else:
        other = draw.choice([None, "", -1, 2**62, 1e308, [], {}, True, "bfloat16", [[[]]]])
        node[key] = {"other": 1} if node[key] == other else other
    return json.dumps(found).encode()


BYTES = (truncated, flipped, lengthened, empty)
OF_VECTORS = {"vectors.safetensors": (*BYTES, absurd_header, absurd_shape), "vectors.json": (*BYTES, changed_value)}


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_vectors(seed, folder_of, tmp_path):
    """Cut off, a bit flipped, other types and sizes, a key missing: refused in one line that names the file."""
    draw = random.Random(seed)
    source = folder_of(draw.choice(("llama", "yarn", "mrope")))
    name = draw.choice(tuple(OF_VECTORS))
    for file in OF_VECTORS:
        (tmp_path / file).write_bytes((source / file).read_bytes())
    damaged = draw.choice(OF_VECTORS[name])(draw, (source / name).read_bytes())
    (tmp_path / name).write_bytes(damaged)
    if name == "vectors.json" and same_meaning(damaged, (source / name).read_bytes()):
        return  # a blank more or less
    with pytest.raises(ValueError, match=r"\A[^\n]{1,500}\Z") as refused:
        check(tmp_path, source / "vectors.safetensors")
    assert str(refused.value).startswith("vectors: ") and name in str(refused.value)


def same_meaning(a, b):
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return False


def other_tensors(draw, tensors):
    """Another shape, type or name, or a value that is none, somewhere."""
    name = draw.choice(list(tensors))
    t = tensors[name]
    how = draw.randrange(7)
    if how == 0:
        return tensors | {name: t.unsqueeze(-1).expand(*t.shape, 3)}
    if how == 1:
        return tensors | {name: t.flatten()[: t.numel() // 2]}
    if how == 2:
        return tensors | {name: torch.zeros(0)}
    if how == 3:
        return tensors | {name: t.to(torch.complex64) if t.is_floating_point() else t.bool()}
    if how == 4:
        return tensors | {"x" * draw.choice((1, 100_000)): t.clone()}
    if how == 5:
        return tensors | {name: torch.full(t.shape, draw.choice((torch.nan, torch.inf, 1e300)), dtype=torch.float64)}
    return tensors | {name: (t.double() * 1e30).clamp(-(2**62), 2**62).to(torch.int64)}


@pytest.mark.parametrize("seed", range(40))
def test_damaged_tensors_of_others(seed, folder_of, tmp_path, phasor):
    """At the command line: exit code 1 with a finding, or 2 with one line."""
    draw = random.Random(f"other {seed}")
    tensors = load_file(folder_of("llama") / "vectors.safetensors")
    names = draw.sample(list(tensors), 3)
    data = save({n: t.contiguous() for n, t in other_tensors(draw, {n: tensors[n] for n in names}).items()})
    if draw.random() < 0.5:
        data = draw.choice((truncated, absurd_header, absurd_shape, empty))(draw, data)
    (tmp_path / "mine.safetensors").write_bytes(data)
    code, said, err = phasor("check", folder_of("llama"), "--against", tmp_path / "mine.safetensors")
    assert (code == 1 and said.startswith("golden vectors: wrong: ") and not err) or (
        code == 2 and not said and err.count("\n") == 1
    ), said + err
    assert len(err) < 1000


def test_a_pack_says_what_it_is(folder_of):
    """Who wrote it, under which licence, and what its files must hash to."""
    import hashlib
    from importlib.metadata import version

    data = json.loads((folder_of("llama") / "vectors.json").read_text())
    content = (folder_of("llama") / "vectors.safetensors").read_bytes()
    assert data["sha256"]["vectors.safetensors"] == hashlib.sha256(content).hexdigest()
    assert data["phasor"] == version("phasor-rope") and data["licence"] == "Apache-2.0"
    readme = (folder_of("llama") / "README.md").read_text()
    assert data["phasor"] in readme and "Apache-2.0" in readme and data["sha256"]["vectors.safetensors"] in readme
