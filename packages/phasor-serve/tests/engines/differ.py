"""Random changes of the configs of `cases`: what an engine's own code makes of them, and phasor's reader.

    python -m tests.engines.differ exllamav3 FOLDER 500     FOLDER as in run_exllamav3.py
    python -m tests.engines.differ sglang FOLDER 500        FOLDER as in run_sglang.py; change: its override
    python -m tests.engines.differ vllm FOLDER 500          FOLDER as in run_vllm.py; change: --hf-overrides
    python -m tests.engines.differ mlx-lm FOLDER 500        FOLDER as in run_mlx_lm.py
    python -m tests.engines.differ llama.cpp FOLDER 500     FOLDER as in run_llama_cpp.py; flags change, the config too

What a script needs (msgspec, mlx) stands at the head of its file; all of it with PYTHONPATH=src:tests.
Prints every table and length in which the two differ, and counts. A change that one of them refuses is counted.
"""

import copy
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import torch

from phasor_serve.engines import EngineReading, read_as

from . import run_exllamav3, run_llama_cpp, run_mlx_lm, run_sglang
from .cases import configs

Made = tuple[dict[str, Any], dict[str, Any], Callable[[], dict[str, Any]]]  # config, flags, what the engine makes

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
    found = [] if case["length"] in (None, reading.length) else [f"length {case.get('length')}, read {reading.length}"]
    length = reading.seq_len if reading.seq_len is not None else reading.length
    for index, row in case["layers"].items():
        spec = reading.model.layers[int(index)]
        if spec is None or row is None or row["inv_freq"] is None:
            continue
        mine, theirs = spec.inv_freq(length), torch.tensor(row["inv_freq"], dtype=torch.float64)
        if mine.shape != theirs.shape or not torch.allclose(mine, theirs, rtol=3e-6, atol=1e-12):
            found.append(f"layer {index}: frequencies")
        elif abs(spec.attention_factor(length) / row["factor"] - 1) > 1e-6:
            found.append(f"layer {index}: factor {row['factor']}")
    return found


FLAGS: dict[str, list[Any]] = {  # of llama.cpp
    "--rope-scaling": ["none", "linear", "yarn"], "--rope-scale": [2.0, 4.0, 8.0], "--rope-freq-base": [5e5, 5e6],
    "--rope-freq-scale": [0.25], "--yarn-orig-ctx": [8192, 32768], "--yarn-ext-factor": [0.0, 0.5],
    "--yarn-attn-factor": [1.5], "--yarn-beta-fast": [16.0], "--yarn-beta-slow": [2.0], "-c": [8192, 131072],
}  # fmt: skip


class Asked:
    """One engine: its own code, and how a change reaches it: config, flags, and what it made of both."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self.folder, self.names = folder, [name for name in names if name not in run_sglang.SKIPPED]

    def config(self, name: str, changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The changed config, and the changes at its top."""
        config: dict[str, Any] = copy.deepcopy(configs()[name])
        inner = config.get("text_config")
        changes = {"text_config": {**inner, **changes}} if inner else changes
        return {key: value for key, value in {**config, **changes}.items() if value is not None}, changes

    def override(self, name: str, changes: dict[str, Any], random: Random) -> dict[str, Any]:
        inner = configs()[name].get("text_config")
        return {"text_config": changes} if inner and random.random() < 0.7 else changes


class ExLlama(Asked):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, configs())
        self.own = run_exllamav3.ExLlama(folder)

    def __call__(self, name: str, random: Random) -> Made:
        config, changes = self.config(name, change(random))
        return config, {}, lambda: run_exllamav3.run(self.own, name, changes)


class Sglang(Asked):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, configs())
        self.own = run_sglang.Sglang(folder)

    def __call__(self, name: str, random: Random) -> Made:
        changes = self.override(name, change(random), random)
        flags = {"--json-model-override-args": changes}
        return configs()[name], flags, lambda: run_sglang.run(self.own, name, changes)


class Vllm(Asked):
    def __init__(self, folder: Path) -> None:
        from . import run_vllm

        super().__init__(folder, configs())
        self.own, self.run = run_vllm.Vllm(folder), run_vllm.run

    def __call__(self, name: str, random: Random) -> Made:
        changes = self.override(name, change(random), random)
        return configs()[name], {"--hf-overrides": changes}, lambda: self.run(self.own, name, changes)


class MlxLm(Asked):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sorted({name for name, _ in run_mlx_lm.CASES}))
        run_mlx_lm.find_package(folder)

    def __call__(self, name: str, random: Random) -> Made:
        config, changes = self.config(name, change(random))
        return config, {}, lambda: run_mlx_lm.run(name, changes)


class LlamaCpp(Asked):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, run_llama_cpp.FLAGS)
        self.own, self.scratch = run_llama_cpp.quiet_library(folder), tempfile.TemporaryDirectory()

    def __call__(self, name: str, random: Random) -> Made:
        config, changes = self.config(name, change(random) if random.random() < 0.5 else {})
        flags = {flag: random.choice(FLAGS[flag]) for flag in random.sample(list(FLAGS), random.choice((1, 1, 2, 3)))}
        folder = Path(self.scratch.name)
        return config, flags, lambda: run_llama_cpp.run(self.own, folder, name, flags, changes)


ENGINES = {"exllamav3": ExLlama, "sglang": Sglang, "vllm": Vllm, "mlx-lm": MlxLm, "llama.cpp": LlamaCpp}


def main(engine: str, folder: Path, count: int) -> None:
    own, counted = ENGINES[engine](folder), Counter[str]()
    for number in range(count):
        random = Random(f"{engine} {number}")
        name = random.choice(own.names)
        config, flags, made = own(name, random)
        try:
            case = made()
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
            changed = {key: value for key, value in config.items() if configs()[name].get(key) != value}
            print(number, name, json.dumps([changed, flags])[:600], found)
    print(dict(counted))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
