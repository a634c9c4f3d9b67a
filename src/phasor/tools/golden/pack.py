"""One pack of golden vectors for many models: every distinct rotation once, every distinct array once."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...eye import Observation
from ...models.configs import ModelRotary, read_parts
from ...models.rotary_of import rotary_of
from ...rotary.apply import apply_rotary
from ...rotary.fixed_point import exact
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec, exact_frequencies
from ...support.whole_files import check_folder_target, whole_folder, write_together
from .layer_kinds import Kind, kinds_of
from .pack_formats import FORMATS, NAME
from .tensors import PER_RADIAN, TABLE, WIDEST, channels, noise

FORMAT = "phasor golden pack 1"
VERSION = 2  # of the pack of all model types: one more whenever a number in it changes
LICENCE = "CC0-1.0"
INTEGERS = (100, 1_000_003)
REALS = (0.625, -100.25)  # exact in float32
TURNED = 0  # the token whose whole head is in the pack, before and after, and its gradient
HEAD = "in"  # the head before, of the widest model; narrower ones are its first channels

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Pack:
    """What a pack holds: ``about``, which JSON can say, and the arrays that it names."""

    about: dict[str, Any]
    arrays: Arrays

    @property
    def sha256(self) -> str:
        """Of the content, the same in every format: of ``about`` as JSON, then of each array, in the order of names.

        An array counts as the line ``name dtype shape`` and its values, little endian.
        """
        digest = hashlib.sha256(json.dumps(self.about, sort_keys=True, separators=(",", ":")).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            digest.update(f"\n{name} {array.dtype} {list(array.shape)}\n".encode())
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


def write_pack(
    models: Mapping[str, str | os.PathLike[str] | dict[str, Any] | ModelRotary | Any], folder: str | os.PathLike[str]
) -> Path:
    """Write one pack of golden vectors for many models, in two formats; returns the folder.

    ``models``: name -> a `ModelRotary`, an `Observation` or a torch model, or a config as `phasor.read_config` takes
    it, of which all parts are read.
    Every distinct rotation is in the pack once: its rates in radians per position, cos and sin at two positions (100
    and 1,000,003), and at the first of them a head before and after, and its gradient. The values are those of the
    mathematics, in float64; cos, sin and heads are then rounded once to float32. Temperatures of queries are not in it,
    and trained log-scales count as zero.
    The files ``phasor_golden.safetensors`` and ``.json`` hold the same and carry one SHA-256.
    The same models give the same bytes. The folder appears whole or not at all; an older pack in it is replaced.

    Raises ``ValueError`` for a config that cannot be read or does not rotate, and for a folder that holds anything
    else. Needs safetensors.

    >>> import tempfile
    >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = write_pack({"mine": config, "another": config}, f"{place}/pack")
    ...     held = json.loads((folder / "phasor_golden.json").read_text())
    >>> held["models"], len(held["rotations"]), held["arrays"]["rates.0"]
    ([['mine', '', 'attention', 0], ['another', '', 'attention', 0]], 1, [[1, 0.01]])
    """
    folder = Path(folder)
    check_folder_target("folder", folder, whole=True)
    if folder.is_dir() and any(path.stem != NAME for path in folder.iterdir()):
        raise ValueError(f"folder must be new, empty, or hold an older pack, got {str(folder)!r}; name another")
    pack = pack_of(models)
    files = {f"{NAME}.{suffix}": write(pack.about, pack.arrays, pack.sha256) for suffix, write in FORMATS.items()}
    with whole_folder(folder) as scratch:
        write_together({scratch / name: data for name, data in files.items()})
    return folder


def pack_of(models: Mapping[str, Any]) -> Pack:
    """The pack of some models, by name; `write_pack` says what is in it."""
    if not models:
        raise ValueError("models must name at least one model, got none")
    kept = _Kept()
    rotations: dict[str, int] = {}  # as JSON -> its number
    rows: list[list[Any]] = []
    not_read: list[list[str]] = []
    for name, source in models.items():
        parts, unread = _parts(name, source)
        not_read += unread
        for path, kind in [(path, kind) for path, model in parts for kind in kinds_of(model) if kind.exact]:
            rotation = json.dumps(_rotation(kind, kept))
            rows.append([name, path, kind.name, rotations.setdefault(rotation, len(rotations))])
    if not rotations:
        raise ValueError(f"models must have a layer that rotates, got none in {', '.join(models)}")
    about = {
        "format": FORMAT,
        "version": VERSION,
        "licence": LICENCE,
        "tokens": len(INTEGERS),
        "turned": TURNED,
        "tolerance": {"cos_sin": TABLE, "out": WIDEST * TABLE, "float32_angles_per_radian": PER_RADIAN},
        "rotations": [json.loads(rotation) for rotation in rotations],
        "models": rows,
        "not_read": not_read,
    }
    widest = max(json.loads(rotation)["head_dim"] for rotation in rotations)
    return Pack(about, {HEAD: _head(widest).numpy(), **kept.arrays})


class _Kept:
    """Arrays by name; one that is there already keeps the name that it has."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self._counts: dict[str, int] = {}

    def name_of(self, word: str, array: np.ndarray[Any, Any]) -> str:
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._names:
            count = self._counts.get(word, 0)
            self._counts[word] = count + 1
            self._names[key] = f"{word}.{count}"
            self.arrays[self._names[key]] = array
        return self._names[key]


def _parts(name: str, source: Any) -> tuple[list[tuple[str, ModelRotary]], list[list[str]]]:
    """The parts that rotate, and those that cannot be read, each with the reason."""
    if isinstance(source, ModelRotary | Observation | nn.Module):
        model = rotary_of(source)
        return [(model.part, model)], []
    read = read_parts(source)
    parts = [(path, part) for path, part in read.items() if isinstance(part, ModelRotary)]
    if not parts:
        raise ValueError(f"models: {name}: {'; '.join(dict.fromkeys(map(str, read.values())))}; leave it out")
    return parts, [[name, path, why] for path, why in read.items() if isinstance(why, str) and "not read" in why[:8]]


def _rotation(kind: Kind, kept: _Kept) -> dict[str, Any]:
    """One rotation, its arrays by their names."""
    spec = kind.exact
    assert spec is not None
    numbers = torch.tensor(REALS if spec.coordinates == "real" else INTEGERS)
    positions = torch.stack([numbers + axis * (axis + 4) for axis in range(spec.axes.count)])
    untrained = torch.zeros(spec.pairs) if spec.learned else None
    at = positions if spec.axes.count > 1 else positions[0]
    rotation = Rotation.at(spec, at, dtype=torch.float64, seq_len=kind.seq_len, log_scale=untrained)
    head, one = _head(spec.head_dim).double()[None, None, None], rotation.slice(TURNED, TURNED + 1)
    outs = {"out": apply_rotary(head, one), "grad": apply_rotary(head, one.transpose())}
    values: dict[str, Tensor] = {"cos": rotation.cos, "sin": rotation.sin}
    if rotation.second is not None:
        values |= {"cos_second": rotation.second[0], "sin_second": rotation.second[1]}
    arrays = {
        "positions": positions.numpy().astype(np.float64),
        "rates": _rates(spec, kind.seq_len),
        **({} if spec.second is None else {"rates_second": _rates(_second(spec), kind.seq_len)}),
        **{name: value.numpy().astype(np.float32) for name, value in values.items()},
        **{name: np.array(index, dtype=np.int32) for name, index in channels(spec).items()},
        **{name: value.flatten().numpy().astype(np.float32) for name, value in outs.items()},
    }
    return {
        "describe": spec.describe() + (f", sequences of {kind.seq_len} tokens" if kind.seq_len else ""),
        "head_dim": spec.head_dim,
        "pairs": spec.pairs,
        "axes": spec.axes.count,
        "factor": spec.attention_factor(kind.seq_len),
        "arrays": {name: kept.name_of(name.split("_")[0], array) for name, array in arrays.items()},
    }


def _head(width: int) -> Tensor:
    """``[width]`` made-up values, exact in bfloat16 and float16 too; a wider head begins with a narrower one."""
    return noise(0, "pack", width)


def _second(spec: RotarySpec) -> RotarySpec:
    assert spec.second is not None
    return spec.replace(axes=spec.second, second=None)


def _rates(spec: RotarySpec, seq_len: int | None) -> np.ndarray[Any, Any]:
    """``[axes, P]`` radians per position, with everything inside: scaling, scale of the positions, direction."""
    sign = -1 if spec.reverse else 1
    with exact():
        frequencies = [f * Decimal(spec.position_scale) * sign for f in exact_frequencies(spec, seq_len)]
        shares = spec.axes.weights(spec.pairs)
        rows = [[float(f * Decimal(w)) for f, w in zip(frequencies, row, strict=True)] for row in shares]
    return np.array(rows, dtype=np.float64)
