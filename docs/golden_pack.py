"""Write docs/golden: golden vectors of every model type that rotates, and of twelve models that ship, in one pack.

    python docs/golden_pack.py                              writes the pack
    python docs/golden_pack.py --check                      says whether it is what the readers say; writes nothing
    python docs/golden_pack.py FOLDER a.json b/config.json  writes a pack of these configs, all of their parts

Every distinct rotation is in a pack once, and every distinct array. The values are those of the mathematics, in
float64; cos, sin and heads are then rounded once to float32. Temperatures of queries are not in it, and trained
log-scales count as zero. Two formats hold the same, and are made of bytes that depend on nothing but the content.

The pack of all types needs the version of transformers that the conformance suite is written for.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "golden"
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

from conformance.walk import default_config, model_types, quiet  # noqa: E402
from phasor import ModelRotary, RotarySpec, Rotation, apply_rotary, read_parts  # noqa: E402
from phasor.rotary.fixed_point import exact  # noqa: E402
from phasor.rotary.spec import exact_frequencies  # noqa: E402
from phasor.tools.golden.layer_kinds import Kind, kinds_of  # noqa: E402
from phasor.tools.golden.tensors import PER_RADIAN, TABLE, WIDEST, channels, noise  # noqa: E402
from phasor_lab.demo.run import bundled_models  # noqa: E402

FORMAT = "phasor golden pack 1"
VERSION = 2  # of the pack of all model types: one more whenever a number in it changes
LICENCE = "CC0-1.0"
INTEGERS = (100, 1_000_003)
REALS = (0.625, -100.25)  # exact in float32
TURNED = 0  # the token whose whole head is in the pack, before and after, and its gradient
NAME = "phasor_golden"
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


def pack_of(models: Mapping[str, Any]) -> Pack:
    """The pack of some models: name -> a `ModelRotary`, or a config, of which all parts are read."""
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
    if isinstance(source, ModelRotary):
        return [(source.part, source)], []
    read = read_parts(source)
    parts = [(path, part) for path, part in read.items() if isinstance(part, ModelRotary)]
    if not parts:
        raise ValueError(f"{name}: {'; '.join(dict.fromkeys(map(str, read.values())))}; leave it out")
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


# --- its two formats ---


def files_of(pack: Pack) -> dict[str, bytes]:
    """Name -> bytes. safetensors: all but the arrays as JSON in the metadata, under ``pack``; JSON: ``arrays``: name ->
    numbers, nested as the array is; a float32 has the digits that give it back."""
    head = json.dumps({**pack.about, "sha256": pack.sha256}, separators=(",", ":"), allow_nan=False)
    rows = ",\n".join(f"{json.dumps(name)}:{_nested(array)}" for name, array in pack.arrays.items())
    return {
        f"{NAME}.safetensors": save(pack.arrays, {"pack": head}),
        f"{NAME}.json": f'{head[:-1]},"arrays":{{\n{rows}\n}}}}\n'.encode(),
    }


def _nested(array: np.ndarray[Any, Any]) -> str:
    """The shortest digits of each value that give it back, 0.5 and 1 and 1e-07."""
    if array.ndim > 1:
        return f"[{','.join(map(_nested, array))}]"
    return f"[{','.join(str(value).removesuffix('.0') for value in array)}]"


# --- of all types ---


def models() -> dict[str, Any]:
    """Model type -> its default config; name of a model -> its own."""
    with quiet():
        configs = {name: default_config(name) for name in model_types()}
        shipped = {name: entry["config"] for name, entry in bundled_models().items()}
        return {name: config for name, config in (configs | shipped).items() if _rotates(config)}


def _rotates(config: Any) -> bool:
    return any(isinstance(part, ModelRotary) for part in read_parts(config).values())


def stale() -> list[str]:
    """The files of the pack that are not as they would be written now."""
    made = files_of(pack_of(models()))
    return [
        name for name, data in made.items() if not (FOLDER / name).is_file() or (FOLDER / name).read_bytes() != data
    ]


def main(words: list[str]) -> None:
    if words == ["--check"]:
        found = stale()
        sys.exit(f"{', '.join(found)}: stale; run: python docs/golden_pack.py" if found else None)
    folder, configs = (Path(words[0]), {config: config for config in words[1:]}) if words else (FOLDER, models())
    if not configs:
        sys.exit("name the configs of the pack: python docs/golden_pack.py FOLDER config.json ...")
    files = files_of(pack_of(configs))
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    print(f"wrote {folder}: {sum(map(len, files.values())):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
