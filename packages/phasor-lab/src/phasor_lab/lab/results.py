"""Results of many runs: gathered, averaged over seeds, and compared pair by pair with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..run_folder.files import read_json
from .model import ENCODINGS
from .run import RunConfig
from .train import CHECKPOINT, RUN

EVALUATION, EXTENSION = "evaluation.json", "extension.json"
NUMBER, MAYBE = (int, float), (int, float, type(None))
ABOUT = {"run": dict, "about": {"command?": str, "text?": str, "paths?": [str], "glob?": str}}
MEASURED = {"length": int, "loss?": MAYBE, "accuracy?": MAYBE, "blocks?": [NUMBER]}
TRAINING = {"trained_loss?": NUMBER, "byte_pairs_loss?": NUMBER}
LOSSES = {"task": str, "protocol": str, "by_length": [MEASURED], "by_position?": (dict, type(None)), **TRAINING}
STRETCHED = [{"scheme": str, "factor": int, "length": int, "loss": NUMBER, "blocks?": [NUMBER]}]
PATTERNS = {EVALUATION: LOSSES, EXTENSION: {"protocol": str, "table": STRETCHED, "curves": STRETCHED, **TRAINING}}
CURVE = {"position": [NUMBER], "loss": [NUMBER]}
RESAMPLES = 2000
COVERAGE = 0.95

Points = dict[str, list[tuple[float, list[float]]]]  # name: points x and the values of all seeds there
Measured = Mapping[int, Mapping[str, Any]]  # by seed, what `evaluate.summary` says


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


def gather(folders: Sequence[str | Path], parts: Sequence[str] = ("evaluation", "extension")) -> list[dict[str, Any]]:
    """Per run: ``run`` and ``about`` as trained, and of what was measured those ``parts``; None for the others."""
    runs: list[dict[str, Any]] = []
    for folder in find_runs(folders):
        run = read_run(folder)
        for key, file in (("evaluation", EVALUATION), ("extension", EXTENSION)):
            there = key in parts and (folder / file).is_file()
            run[key] = read_json(folder / file, PATTERNS[file]) if there else None
        if run["evaluation"] and run["evaluation"].get("by_position"):
            read_json(folder / EVALUATION, {"by_position": CURVE})
        if any(row[key] < 1 for row in _rows(run) for key in ("length", "factor") if key in row):
            raise ValueError(f"{folder} must have results at lengths and factors of at least 1; evaluate it again")
        runs.append(run)
    runs.sort(key=lambda run: (list(ENCODINGS).index(run["encoding"]), run["seed"]))
    if not any(run["evaluation"] or run["extension"] for run in runs):
        raise ValueError(
            "runs must have been evaluated to be reported; call `phasor lab evaluate` first on "
            + ", ".join(map(str, folders))
        )
    return runs


def _rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    """All that was measured of a run."""
    extension = run["extension"] or {"table": [], "curves": []}
    return [*(run["evaluation"] or {"by_length": []})["by_length"], *extension["table"], *extension["curves"]]


def by_length(runs: Sequence[dict[str, Any]], task: str, value: str) -> Points:
    """``{encoding: [(context length, [a value per seed])]}``, lengths without a number left out."""
    some = of_task(runs, task)
    points = _points(
        (run["encoding"], row["length"], run["seed"], row[value])
        for run in some
        for row in run["evaluation"]["by_length"]
        if row.get(value) is not None
    )
    return {run["encoding"]: [] for run in some} | points


def by_position(runs: Sequence[dict[str, Any]]) -> Points:
    """``{encoding: [(position, [loss per seed])]}`` inside the longest context that the encoding reached."""
    return _points(
        (run["encoding"], position, run["seed"], loss)
        for run in of_task(runs, "text")
        if (curve := run["evaluation"].get("by_position"))
        for position, loss in zip(curve["position"], curve["loss"], strict=False)
    )


def extensions(runs: Sequence[dict[str, Any]], part: str, key: str) -> Points:
    """``{scheme: [(factor or length, [loss per seed])]}`` from the ``table`` or the ``curves`` of extended runs."""
    extended = (run for run in runs if run["extension"])
    return _points((r["scheme"], r[key], run["seed"], r["loss"]) for run in extended for r in run["extension"][part])


def measured(runs: Sequence[dict[str, Any]], part: str) -> dict[str, dict[float, dict[int, dict[str, Any]]]]:
    """``{encoding: {length: {seed: row}}}`` of evaluations, or ``{scheme: {factor: {seed: row}}}`` of extensions."""
    if part == "evaluation":
        rows = ((run["encoding"], "length", run["seed"], row) for run in runs for row in run[part]["by_length"])
    else:
        rows = ((row["scheme"], "factor", run["seed"], row) for run in runs for row in run[part]["table"])
    table = _table((name, row[x], seed, row) for name, x, seed, row in rows if row.get("loss") is not None)
    return {
        name: {x: {seed: rows[-1] for seed, rows in seeds.items()} for x, seeds in points.items()}
        for name, points in table.items()
    }


def _table(rows: Iterable[tuple[str, float, int, Any]]) -> dict[str, dict[float, dict[int, list[Any]]]]:
    """``{name: {x: {seed: values}}}`` of rows (name, x, seed, value)."""
    table: dict[str, dict[float, dict[int, list[Any]]]] = {}
    for name, x, seed, value in rows:
        table.setdefault(name, {}).setdefault(x, {}).setdefault(seed, []).append(value)
    return table


def _points(rows: Iterable[tuple[str, float, int, float]]) -> Points:
    return {
        name: [(x, [sum(values) / len(values) for values in seeds.values()]) for x, seeds in sorted(points.items())]
        for name, points in _table(rows).items()
    }


def seeds_of(runs: Sequence[dict[str, Any]], bands: bool) -> str:
    """In words, how many seeds stand behind the lines, and with ``bands`` what is drawn around those of several."""
    around = ", bands and small numbers from the least to the greatest" if bands else ""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run["encoding"], set()).add(run["seed"])
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in seeds.items():
        groups.setdefault(tuple(sorted(numbers)), []).append(name)
    sentences = [
        f"{', '.join(names)}: one seed ({numbers[0]})"
        if len(numbers) == 1
        else f"{', '.join(names)}: means over {len(numbers)} seeds ({', '.join(map(str, numbers))}){around}"
        for numbers, names in groups.items()
    ]
    return "; ".join(sentences) + "."


def of_task(runs: Sequence[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["evaluation"] and run["evaluation"]["task"] == task]


def training_note(runs: Sequence[dict[str, Any]]) -> str:
    """What to know of models that are hardly trained, or of which that was not measured; "" if there are none.

    A model that predicts a byte no better than by counting which byte follows which need not use its context at all,
    and then no position encoding can help or harm it.
    """
    hardly, unknown = [], []
    for run in runs:
        texts = [part for part in (run["evaluation"], run["extension"]) if part and part.get("task", "text") == "text"]
        measured = next((part for part in texts if "trained_loss" in part and "byte_pairs_loss" in part), None)
        if measured is None:
            unknown += [run["name"]] if texts else []
        elif measured["trained_loss"] >= measured["byte_pairs_loss"]:
            hardly.append(f"{run['name']} ({measured['trained_loss']:.2f} against {measured['byte_pairs_loss']:.2f})")
    sentences = []
    if hardly:
        sentences.append(
            f"Hardly trained: {', '.join(hardly)}. At the trained length these models predict no better than by "
            "counting, in the text that they were trained on, which byte follows which. Nothing shows that they use a "
            "context, so their numbers say nothing about positions; train longer (--tokens)."
        )
    if unknown:
        sentences.append(
            f"Not shown for {', '.join(unknown)}: whether they are trained enough to say anything about positions; "
            "evaluate them again."
        )
    return " ".join(sentences)


def one_value(runs: Sequence[dict[str, Any]], what: str, pick: Any) -> Any:
    """The value that all runs share, or ``ValueError``: numbers of different protocols are not put side by side."""
    values = {pick(run) for run in runs}
    if len(values) > 1:
        raise ValueError(
            f"runs of one report must share their {what}, got {sorted(map(str, values))}; report them apart"
        )
    return values.pop() if values else None


class PairedDifference(NamedTuple):
    """A mean difference of losses and its interval, from so many seeds."""

    mean: float
    low: float
    high: float
    seeds: int


def paired(ours: Measured, theirs: Measured) -> PairedDifference | None:
    """Mean of ``ours - theirs`` over the seeds that both have, None if there is none.

    The interval is that of the bootstrap (percentiles): blocks of the text are drawn again, the same ones for all
    models, and seeds too where there are several. One seed says nothing about the next.

    >>> paired({0: {"loss": 2.0, "blocks": [1.5, 2.5]}}, {0: {"loss": 1.0, "blocks": [0.5, 1.5]}})
    PairedDifference(mean=1.0, low=1.0, high=1.0, seeds=1)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    mean = float(np.mean([ours[s]["loss"] - theirs[s]["loss"] for s in seeds]))
    pairs = [(ours[s].get("blocks", []), theirs[s].get("blocks", [])) for s in seeds]
    sizes = {len(blocks) for pair in pairs for blocks in pair}
    if len(sizes) > 1 or sizes == {0}:
        return PairedDifference(mean, mean, mean, len(seeds))
    low, high = _interval(np.array([np.subtract(*pair) for pair in pairs]))
    return PairedDifference(mean, low, high, len(seeds))


def _interval(differences: np.ndarray) -> tuple[float, float]:
    """Of the mean of ``[seeds, blocks]``."""
    chance = np.random.default_rng(0)
    seeds, blocks = differences.shape
    means = differences[:, chance.integers(0, blocks, (RESAMPLES, blocks))].mean(-1)  # [seeds, resamples]
    drawn = np.take_along_axis(means, chance.integers(0, seeds, (seeds, RESAMPLES)), axis=0).mean(0)
    low, high = np.quantile(drawn, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def against(reference: str, measured: Mapping[str, Mapping[float, Measured]]) -> dict[str, list[tuple[float, Any]]]:
    """``{name: [(x, difference to the reference there)]}`` of all others, from ``{name: {x: measured}}``."""
    base = measured[reference]
    differences = {
        name: [(x, d) for x in sorted(points) if x in base and (d := paired(points[x], base[x])) is not None]
        for name, points in measured.items()
        if name != reference
    }
    return {name: points for name, points in differences.items() if points}


def protocol_of(reference: str, curves: Mapping[str, Sequence[tuple[float, PairedDifference]]]) -> str:
    """In words, what the differences and their intervals mean."""
    fewest = min(d.seeds for points in curves.values() for _, d in points)
    drawn = (
        "blocks of the text and seeds drawn again; from few seeds it is too narrow rather than too wide"
        if fewest > 1
        else "blocks of the text drawn again; one seed, so it says nothing about another one"
    )
    return (
        f"Loss minus that of {reference}: models of one seed start from the same weights, see the same batches and are "
        f"scored on the same bytes. Intervals: {COVERAGE:.0%} of {RESAMPLES:,} bootstrap samples, {drawn}."
    )
