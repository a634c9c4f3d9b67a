"""Results of many runs, gathered and put side by side: means and ranges over seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runs import checkpoint
from .model import ENCODINGS
from .train import CHECKPOINT, RUN

EVALUATION, EXTENSION = "evaluation.json", "extension.json"


def find_runs(folders: Sequence[str | Path]) -> list[Path]:
    """The run folders among ``folders`` and directly inside them, in order of name."""
    found: list[Path] = []
    for folder in map(Path, folders):
        inside = sorted(path.parent for path in folder.glob(f"*/{CHECKPOINT}"))
        here = [folder] if (folder / CHECKPOINT).is_file() else inside
        if not here:
            raise ValueError(f"folder must hold runs as `phasor lab train` makes them, got {str(folder)!r}")
        found += here
    return found


def gather(folders: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Per run: ``run`` and ``about`` as trained, and what was measured: ``evaluation``, ``extension``."""
    runs: list[dict[str, Any]] = []
    for folder in find_runs(folders):
        run: dict[str, Any] = {"name": folder.name, **checkpoint.read_json(folder / RUN)}
        for key, file in (("evaluation", EVALUATION), ("extension", EXTENSION)):
            run[key] = checkpoint.read_json(folder / file) if (folder / file).is_file() else None
        runs.append(run)
    runs.sort(key=lambda run: (list(ENCODINGS).index(run["run"]["model"]["encoding"]), run["run"]["seed"]))
    if not any(run["evaluation"] or run["extension"] for run in runs):
        raise ValueError("runs must have been evaluated to be reported; call `phasor lab evaluate` on them first")
    return runs


def by_length(runs: Sequence[dict[str, Any]], task: str, value: str) -> dict[str, list[tuple[float, list[float]]]]:
    """``{encoding: [(context length, [a value per seed])]}``, lengths without a number left out."""
    table: dict[str, dict[int, dict[int, list[float]]]] = {}
    for run in of_task(runs, task):
        seeds = table.setdefault(run["run"]["model"]["encoding"], {})
        for row in run["evaluation"]["by_length"]:
            if row.get(value) is not None:
                seeds.setdefault(row["length"], {}).setdefault(run["run"]["seed"], []).append(row[value])
    return {
        name: [(length, [sum(v) / len(v) for v in seeds.values()]) for length, seeds in sorted(points.items())]
        for name, points in table.items()
    }


def by_position(runs: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, list[float]]]]:
    """``{encoding: [(position, [loss per seed])]}`` inside the longest context that the encoding reached."""
    table: dict[str, dict[float, list[float]]] = {}
    for run in of_task(runs, "text"):
        curve = run["evaluation"]["by_position"]
        if curve:
            points = table.setdefault(run["run"]["model"]["encoding"], {})
            for position, loss in zip(curve["position"], curve["loss"], strict=True):
                points.setdefault(position, []).append(loss)
    return {name: sorted(points.items()) for name, points in table.items()}


def extensions(runs: Sequence[dict[str, Any]], part: str, key: str) -> dict[str, list[tuple[float, list[float]]]]:
    """``{scheme: [(factor or length, [loss per seed])]}`` from the ``table`` or the ``curves`` of extended runs."""
    table: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        for row in (run["extension"] or {}).get(part, ()):
            table.setdefault(row["scheme"], {}).setdefault(row[key], []).append(row["loss"])
    return {name: sorted(points.items()) for name, points in table.items()}


def of_task(runs: Sequence[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["evaluation"] and run["evaluation"]["task"] == task]


def one_value(runs: Sequence[dict[str, Any]], what: str, pick: Any) -> Any:
    """The value that all runs share, or ``ValueError``: numbers of different protocols are not put side by side."""
    values = {pick(run) for run in runs}
    if len(values) > 1:
        raise ValueError(
            f"runs of one report must share their {what}, got {sorted(map(str, values))}; report them apart"
        )
    return values.pop() if values else None
