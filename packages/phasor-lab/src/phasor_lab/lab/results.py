"""Results of many runs, gathered and put side by side over seeds."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..run_folder.files import read_json
from .encodings import ENCODINGS
from .run import RunConfig
from .train import CHECKPOINT, RUN

EVALUATION, EXTENSION = "evaluation.json", "extension.json"
NUMBER = (int, float)
ABOUT = {"run": dict, "about": {"command?": str, "text?": str, "paths?": [str]}}
ALL = {"protocol": str, "trained_loss": NUMBER, "byte_pairs_loss": NUMBER}
PATTERNS = {
    EVALUATION: {**ALL, "by_length": [{"length": int, "loss": (*NUMBER, type(None))}]},
    EXTENSION: {**ALL, "table": [{"scheme": str, "factor": int, "length": int, "loss": NUMBER}]},
}

Points = dict[str, list[tuple[float, list[float]]]]  # name: points x and the values of all seeds there


def find_runs(folders: Sequence[str | Path]) -> list[Path]:
    """The run folders among ``folders`` and directly inside them, in order of name."""
    runs: list[Path] = []
    for folder in map(Path, folders):
        inside = sorted(path.parent for path in folder.glob(f"*/{CHECKPOINT}"))
        of_folder = [folder] if (folder / CHECKPOINT).is_file() else inside
        if not of_folder:
            raise ValueError(f"folder must hold runs as `phasor lab train` makes them, got {str(folder)!r}")
        runs += of_folder
    return runs


def read_run(folder: Path) -> dict[str, Any]:
    """``run`` and ``about`` as trained, and the run's encoding and seed. Raises ``ValueError`` for a damaged file."""
    data = read_json(folder / RUN, ABOUT)
    try:
        config = RunConfig.from_dict(data["run"])
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{folder / RUN} must be of a run of the lab, got: {error}; repeat `phasor lab train`"
        ) from None
    identity = {"name": folder.name, "encoding": config.model.encoding, "seed": config.seed}
    return identity | {key: data[key] for key in ("run", "about")}


def gather(folders: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Per run: ``run`` and ``about`` as trained, ``evaluation`` and ``extension`` as measured, None for neither."""
    runs: list[dict[str, Any]] = []
    for folder in find_runs(folders):
        run = read_run(folder)
        for key, file in (("evaluation", EVALUATION), ("extension", EXTENSION)):
            run[key] = read_json(folder / file, PATTERNS[file]) if (folder / file).is_file() else None
            rows = [] if run[key] is None else run[key].get("by_length", run[key].get("table"))
            if any(row[name] < 1 for row in rows for name in ("length", "factor") if name in row):
                raise ValueError(f"{folder / file} must have lengths and factors of at least 1; evaluate it again")
        runs.append(run)
    runs.sort(key=lambda run: (list(ENCODINGS).index(run["encoding"]), run["seed"]))
    if not any(run["evaluation"] or run["extension"] for run in runs):
        raise ValueError(
            "runs must have been evaluated to be reported; call `phasor lab evaluate` first on "
            + ", ".join(map(str, folders))
        )
    return runs


def by_length(runs: Sequence[dict[str, Any]]) -> Points:
    """``{encoding: [(context length, [a loss per seed])]}``, lengths without a number left out."""
    return _points(
        (run["encoding"], row["length"], row["loss"])
        for run in runs
        if run["evaluation"]
        for row in run["evaluation"]["by_length"]
        if row["loss"] is not None
    )


def extensions(runs: Sequence[dict[str, Any]]) -> Points:
    """``{scheme: [(factor, [loss per seed])]}`` of extended runs."""
    extended = (run for run in runs if run["extension"])
    return _points((row["scheme"], row["factor"], row["loss"]) for run in extended for row in run["extension"]["table"])


def _points(rows: Iterable[tuple[str, float, float]]) -> Points:
    table: dict[str, dict[float, list[float]]] = {}
    for name, x, value in rows:
        table.setdefault(name, {}).setdefault(x, []).append(value)
    return {name: sorted(points.items()) for name, points in table.items()}


def seeds_of(runs: Sequence[dict[str, Any]]) -> str:
    """In words, how many seeds stand behind the lines, and what is drawn around those of several."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run["encoding"], set()).add(run["seed"])
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in seeds.items():
        groups.setdefault(tuple(sorted(numbers)), []).append(name)
    sentences = [
        f"{', '.join(names)}: one seed ({numbers[0]})"
        if len(numbers) == 1
        else f"{', '.join(names)}: means over {len(numbers)} seeds ({', '.join(map(str, numbers))}), bands and small "
        "numbers from the least to the greatest"
        for numbers, names in groups.items()
    ]
    return "; ".join(sentences) + "."


def training_note(runs: Sequence[dict[str, Any]]) -> str:
    """What to know of models that are hardly trained; "" if there are none.

    A model that predicts a byte no better than by counting which byte follows which need not use its context at all,
    and then no position encoding can help or harm it.
    """
    hardly = []
    for run in runs:
        measured = run["evaluation"] or run["extension"]
        if measured and measured["trained_loss"] >= measured["byte_pairs_loss"]:
            hardly.append(f"{run['name']} ({measured['trained_loss']:.2f} against {measured['byte_pairs_loss']:.2f})")
    if not hardly:
        return ""
    return (
        f"Hardly trained: {', '.join(hardly)}. At the trained length these models predict no better than by "
        "counting, in the text that they were trained on, which byte follows which. Nothing shows that they use a "
        "context, so their numbers say nothing about positions; train longer (--tokens)."
    )


def one_value(runs: Sequence[dict[str, Any]], what: str, pick: Any) -> Any:
    """The value that all runs share, or ``ValueError``: numbers of different protocols are not put side by side."""
    values = {pick(run) for run in runs}
    if len(values) > 1:
        raise ValueError(
            f"runs of one report must share their {what}, got {sorted(map(str, values))}; report them apart"
        )
    return values.pop() if values else None
