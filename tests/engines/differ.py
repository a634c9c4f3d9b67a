"""Random changes of the configs of `cases`: what an engine's own code makes of them, and phasor's reader.

    python -m tests.engines.differ exllamav3 FOLDER 500     FOLDER as in run_exllamav3.py
    python -m tests.engines.differ sglang FOLDER 500        FOLDER as in run_sglang.py; change: its override

Prints every table and length in which the two differ, and counts. A change that one of them refuses is counted.
"""

import copy
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import torch

from phasor.serving.engines import EngineReading, read_as

from .cases import configs

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
ROPES: list[dict[str, Any] | None] = [
    None, {}, {"rope_type": "default"}, {"factor": 8.0}, {"type": "linear", "factor": 2.0}, YARN,
    {**YARN, "beta_fast": 16, "beta_slow": 2, "truncate": False}, {"rope_type": "yarn", "factor": 4.0},
    {**YARN, "attention_factor": 1.3, "mscale": 1.0, "mscale_all_dim": 1.0}, {"rope_type": "dynamic", "factor": 2.0},
    {**LLAMA3, "original_max_position_embeddings": 8192},
]  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "rope_parameters": ROPES, "rope_scaling": ROPES, "rope_theta": [None, 5e5, 7e5], "partial_rotary_factor": [0.5],
    "max_position_embeddings": [8192, 65536, 131072],
}  # fmt: skip


def change(random: Random) -> dict[str, Any]:
    """One to three keys with random values; a dictionary may hold base and share as well."""
    made: dict[str, Any] = {}
    for _ in range(random.choice((1, 1, 2, 3))):
        key = random.choice(list(VALUES))
        made[key] = copy.deepcopy(random.choice(VALUES[key]))
        if isinstance(made[key], dict) and random.random() < 0.3:
            made[key] |= random.choice(({"rope_theta": 1e6}, {"partial_rotary_factor": 0.25}))
    return made


def differences(case: dict[str, Any], reading: EngineReading) -> list[str]:
    """Where a reading is not what the engine's code gave."""
    found = [] if case.get("length") == reading.length else [f"length {case.get('length')}, read {reading.length}"]
    length = reading.seq_len if reading.seq_len is not None else reading.length
    for index, row in case["layers"].items():
        spec = reading.model.layers[int(index)]
        if spec is None or row["inv_freq"] is None:
            continue
        mine, theirs = spec.inv_freq(length), torch.tensor(row["inv_freq"], dtype=torch.float64)
        if mine.shape != theirs.shape or not torch.allclose(mine, theirs, rtol=3e-6, atol=1e-12):
            found.append(f"layer {index}: frequencies")
        elif abs(spec.attention_factor(length) / row["factor"] - 1) > 1e-6:
            found.append(f"layer {index}: factor {row['factor']}")
    return found


def main(engine: str, folder: Path, count: int) -> None:
    from . import run_exllamav3, run_sglang

    own: Any = run_exllamav3.ExLlama(folder) if engine == "exllamav3" else run_sglang.Sglang(folder)
    names, counted = [name for name in configs() if name not in run_sglang.SKIPPED], Counter[str]()
    for number in range(count):
        random = Random(f"{engine} {number}")
        name, changes, flags = random.choice(names), change(random), {}
        config: dict[str, Any] = copy.deepcopy(configs()[name])
        inner = config.get("text_config")
        try:
            if engine == "sglang":
                changes = {"text_config": changes} if inner and random.random() < 0.7 else changes
                flags = {"--json-model-override-args": changes}
                case = run_sglang.run(own, name, changes)
            else:
                changes = {"text_config": {**inner, **changes}} if inner else changes
                config = {key: value for key, value in {**config, **changes}.items() if value is not None}
                case = run_exllamav3.run(own, name, changes)
        except Exception as error:  # whatever the engine raises
            case = {"error": type(error).__name__}
        try:
            found = differences(case, read_as(config, engine, flags)) if "error" not in case else None
        except ValueError:
            counted["refused by phasor"] += 1
            continue
        counted["refused by the engine" if found is None else "differ" if found else "same"] += 1
        counted["tables"] += 0 if found is None else len(case["layers"])
        if found:
            print(number, name, json.dumps(changes)[:300], found)
    print(dict(counted))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
