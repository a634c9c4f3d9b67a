"""Random changes of the configs of `cases`: what an engine's own code makes of them, and phasor's reader.

    python -m tests.engines.differ exllamav3 FOLDER 500     FOLDER as in run_exllamav3.py
    python -m tests.engines.differ sglang FOLDER 500        FOLDER as in run_sglang.py; change: its override
    python -m tests.engines.differ vllm FOLDER 150          FOLDER as in run_vllm.py; change: --hf-overrides
    python -m tests.engines.differ mlx-lm FOLDER 400        FOLDER as in run_mlx_lm.py
    python -m tests.engines.differ llama.cpp FOLDER 300     FOLDER as in run_llama_cpp.py; change: config and flags

Prints every table and length in which the two differ, and counts. A change that one of them refuses is counted.
"""

import copy
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
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


Case = tuple[dict[str, Any], dict[str, Any], Callable[[], dict[str, Any]]]  # config, flags, and what the engine makes


def exllamav3(folder: Path) -> Callable[[str, dict[str, Any], Random], Case]:
    from . import run_exllamav3

    own = run_exllamav3.ExLlama(folder)

    def case(name: str, changes: dict[str, Any], random: Random) -> Case:
        inner = configs()[name].get("text_config")
        changes = {"text_config": {**inner, **changes}} if inner else changes
        return changed(name, changes), {}, lambda: run_exllamav3.run(own, name, changes)

    return case


def sglang(folder: Path) -> Callable[[str, dict[str, Any], Random], Case]:
    from . import run_sglang

    own = run_sglang.Sglang(folder)

    def case(name: str, changes: dict[str, Any], random: Random) -> Case:
        nested = "text_config" in configs()[name] and random.random() < 0.7
        changes = {"text_config": changes} if nested else changes
        flags = {"--json-model-override-args": changes}
        return configs()[name], flags, lambda: run_sglang.run(own, name, changes)

    return case


def vllm(folder: Path) -> Callable[[str, dict[str, Any], Random], Case]:
    from . import run_vllm

    own = run_vllm.Vllm(folder)

    def case(name: str, changes: dict[str, Any], random: Random) -> Case:
        nested = "text_config" in configs()[name] and random.random() < 0.7
        changes = {"text_config": changes} if nested else changes
        return configs()[name], {"--hf-overrides": changes}, lambda: run_vllm.run(own, name, changes)

    return case


def mlx_lm(folder: Path) -> Callable[[str, dict[str, Any], Random], Case]:
    from . import run_mlx_lm

    run_mlx_lm.find_package(folder)

    def case(name: str, changes: dict[str, Any], random: Random) -> Case:
        return changed(name, changes), {}, lambda: {**run_mlx_lm.run(name, changes), "length": None}

    return case


def llama_cpp(folder: Path) -> Callable[[str, dict[str, Any], Random], Case]:
    from . import run_llama_cpp

    lib, scratch = run_llama_cpp.quiet_library(folder), Path(tempfile.mkdtemp())

    def case(name: str, changes: dict[str, Any], random: Random) -> Case:
        flags = random.choice([{}, *(flags for several in run_llama_cpp.FLAGS.values() for flags in several)])
        return {**configs()[name], **changes}, flags, lambda: run_llama_cpp.run(lib, scratch, name, flags, changes)

    return case


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The config of this name with other keys; None takes a key away."""
    return {key: value for key, value in {**configs()[name], **changes}.items() if value is not None}


def main(engine: str, folder: Path, count: int) -> None:
    from .run_llama_cpp import FLAGS
    from .run_mlx_lm import CASES
    from .run_sglang import SKIPPED

    made = {"exllamav3": exllamav3, "sglang": sglang, "vllm": vllm, "mlx-lm": mlx_lm, "llama.cpp": llama_cpp}[engine]
    known = {"mlx-lm": sorted({name for name, _ in CASES}), "llama.cpp": sorted(FLAGS)}
    names = known.get(engine) or [name for name in configs() if name not in SKIPPED]
    case_of, counted = made(folder), Counter[str]()
    for number in range(count):
        random = Random(f"{engine} {number}")
        name, changes = random.choice(names), change(random)
        config, flags, theirs = case_of(name, changes, random)
        config = copy.deepcopy(config)
        try:
            case = theirs()
        except Exception as error:  # whatever the engine raises
            case = {"error": f"{type(error).__name__}: {error}"}
        try:
            found = differences(case, read_as(config, engine, flags)) if "error" not in case else None
        except ValueError:
            counted["refused by phasor"] += 1
            continue
        counted["refused by the engine" if found is None else "differ" if found else "same"] += 1
        counted["tables"] += 0 if found is None else len(case["layers"])
        if found:
            print(number, name, json.dumps(changes)[:300], flags if engine == "llama.cpp" else "", found, flush=True)
        elif found is None and engine in ("mlx-lm", "llama.cpp"):
            print(number, name, json.dumps(changes)[:300], case["error"][:120], flush=True)
    print(dict(counted))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
