"""The configs and flags with which every engine's own code was run, and where the results stand."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Name -> config: the models of the demo, and of `configs.json` rope keys and what a class needs to be built."""
    demo = json.loads((files("phasor_lab.demo") / "models.json").read_text(encoding="utf-8"))
    more = json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
    found = {**{name: entry["config"] for name, entry in demo.items()}, **more}
    llama4 = found["meta-llama/Llama-4-Maverick"]  # whose text keys stand at the top as well
    only = {
        key: llama4[key] for key in ("architectures", "model_type", "text_config", "vision_config") if key in llama4
    }
    return {**found, "meta-llama/Llama-4-Maverick": only}


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The config of that name with some keys changed; None takes a key away. Of another name, the changes alone."""
    return {key: value for key, value in {**configs().get(name, {}), **changes}.items() if value is not None}


def save(name: str, about: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    """Write what an engine's own code gave, frequencies with nine digits: float32 values, exactly."""
    lines = ",\n".join(f"  {json.dumps(case)}" for case in cases)
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in about.items())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(f'{{\n{head},\n "cases": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def layer(frequencies: Any, factor: float) -> dict[str, Any]:
    """Frequencies in radians per position, and the factor on cos and sin."""
    return {"inv_freq": [float(f"{f:.9g}") for f in frequencies], "factor": float(f"{factor:.7g}")}
