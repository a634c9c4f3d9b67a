"""Many runs, measured and put side by side over seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .data import Text, read_text
from .encodings import ENCODINGS
from .evaluate import FACTORS, evaluate, extend
from .run import RunConfig
from .train import CHECKPOINT, load_run
from .training import State

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


@dataclass(frozen=True)
class Measured:
    """A run, what was said of it when it was trained, and what `evaluate` and, of a rotary one, `extend` give."""

    name: str
    config: RunConfig
    about: dict[str, Any]
    evaluation: dict[str, Any]
    extension: dict[str, Any] | None


def measure(
    folders: Sequence[str | Path], text: Text | None, times: Sequence[float], schemes: Sequence[str], tokens: int
) -> list[Measured]:
    """The runs among ``folders``, by encoding and seed; ``text``: by default what each was trained on."""
    found = [(folder, *load_run(folder)) for folder in find_runs(folders)]
    found.sort(key=lambda run: (list(ENCODINGS).index(run[2].config.model.encoding), run[2].config.seed))
    check_alike("text", (state.config.source for *_, state in found))
    check_alike("training length", (state.config.model.length for *_, state in found))
    source = text or _text_of(found[0][0], found[0][2])
    factors, runs = [factor for factor in FACTORS if factor <= max(times, default=0)], []
    for folder, model, state in found:
        config = state.config
        evaluation, extension = evaluate(model, config, source, times=times, tokens=tokens), None
        if schemes and factors and config.model.rotary_spec:
            extension = extend(model, config, source, schemes=schemes, factors=factors, tokens=tokens)
        runs.append(Measured(folder.name, config, state.about, evaluation, extension))
    return runs


def check_alike(what: str, values: Iterable[Any]) -> None:
    """Raise ``ValueError`` for runs that differ in ``what``: their numbers are not put side by side."""
    if len(different := set(values)) > 1:
        raise ValueError(
            f"runs of one report must share their {what}, got {sorted(map(str, different))}; report them apart"
        )


def _text_of(folder: Path, state: State) -> Text:
    try:
        return read_text(state.about.get("paths", ()))
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}; {folder} was trained on it: name its place now with --text") from None


def by_length(runs: Sequence[Measured]) -> Points:
    """``{encoding: [(context length, [a loss per seed])]}``, lengths without a number left out."""
    return _points(
        (run.config.model.encoding, row["length"], row["loss"])
        for run in runs
        for row in run.evaluation["by_length"]
        if row["loss"] is not None
    )


def extensions(runs: Sequence[Measured]) -> Points:
    """``{scheme: [(factor, [loss per seed])]}`` of extended runs."""
    tables = (run.extension["table"] for run in runs if run.extension)
    return _points((row["scheme"], row["factor"], row["loss"]) for table in tables for row in table)


def _points(rows: Iterable[tuple[str, float, float]]) -> Points:
    table: dict[str, dict[float, list[float]]] = {}
    for name, x, value in rows:
        table.setdefault(name, {}).setdefault(x, []).append(value)
    return {name: sorted(points.items()) for name, points in table.items()}


def seeds_of(runs: Sequence[Measured]) -> str:
    """In words, how many seeds stand behind the lines, and what is drawn around those of several."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.config.model.encoding, set()).add(run.config.seed)
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


def training_note(runs: Sequence[Measured]) -> str:
    """What to know of models that are hardly trained; "" if there are none.

    A model that predicts a byte no better than by counting which byte follows which need not use its context at all,
    and then no position encoding can help or harm it.
    """
    hardly = [
        f"{run.name} ({run.evaluation['trained_loss']:.2f} against {run.evaluation['byte_pairs_loss']:.2f})"
        for run in runs
        if run.evaluation["trained_loss"] >= run.evaluation["byte_pairs_loss"]
    ]
    if not hardly:
        return ""
    return (
        f"Hardly trained: {', '.join(hardly)}. At the trained length these models predict no better than by "
        "counting, in the text that they were trained on, which byte follows which. Nothing shows that they use a "
        "context, so their numbers say nothing about positions; train longer (--tokens)."
    )
