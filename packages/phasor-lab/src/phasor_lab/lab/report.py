"""The results of runs: tables with their protocol and the commands as text, the figures, and the numbers as JSON."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phasor.support.plain_text import one_line, printable
from phasor.support.whole_files import write_together

from ..run_folder.files import json_bytes
from ..run_folder.pictures import png_bytes
from ..run_folder.training import threads
from . import results
from .data import Text
from .evaluate import SCHEMES, TIMES
from .figures import curves

CAPTIONS = {
    "loss_by_length": "Up to the dotted line all have been trained. Beyond it a flat line is an encoding that reaches "
    "further, a rising one an encoding that does not.",
    "extension": "Each scheme at the length that it was set up for, without fine-tuning: lower is better.",
}


def report(
    folders: Sequence[str | Path],
    out: str | Path,
    text: Text | None = None,
    *,
    times: Sequence[float] = TIMES,
    schemes: Sequence[str] = tuple(SCHEMES),
    tokens: int = 65_536,
) -> dict[str, Any]:
    """Measure runs, and write ``report.txt``, the figures as PNG and ``report.json`` into ``out``; returns what the
    JSON says.

    ``folders`` are runs or folders of runs; ``text``, ``times`` and ``tokens`` as for `evaluate`, by default the text
    that they were trained on. Rotary ones are also extended by ``schemes``. Several seeds of one encoding become a mean
    and a range. Raises ``ValueError`` if texts or training lengths differ.
    """
    with threads(1):
        runs = results.measure(folders, text, times, schemes, tokens)
    out = Path(out)
    data = _numbers(runs)
    pictures = {out / f"{name}.png": png_bytes(figure, dpi=150) for name, figure in _figures(data).items()}
    write_together({**pictures, out / "report.json": json_bytes(data), out / "report.txt": _page(data).encode()})
    return data


def summary(numbers: dict[str, Any], out: Path) -> str:
    """What a person reads of a report on a terminal: the tables, and where everything is."""
    tables = [table_text(name, section["curves"], mean_cell) for name, section in numbers["sections"].items()]
    note = [numbers["training"]] if numbers["training"] else []
    return "\n\n".join([*tables, *note, f"open {(out / 'report.txt').resolve()}"])


def _numbers(runs: list[results.Measured]) -> dict[str, Any]:
    sections = {"loss_by_length": _section(runs, results.by_length(runs), runs[0].evaluation)}
    if extended := [run for run in runs if run.extension]:
        sections["extension"] = _section(extended, results.extensions(runs), extended[0].extension)
    return {
        "trained_length": runs[0].config.model.length,
        "sections": sections,
        "runs": [{"name": run.name, **run.config.to_dict()} for run in runs],
        "training": results.training_note(runs),
        "commands": sorted({run.about["command"] for run in runs if run.about.get("command")}),
        "texts": sorted({run.about["text"] for run in runs if run.about.get("text")}),
    }


def _section(runs: Sequence[results.Measured], curves: results.Points, measured: Any) -> dict[str, Any]:
    return {"protocol": measured["protocol"], "seeds": results.seeds_of(runs), "curves": curves}


def _figures(data: dict[str, Any]) -> dict[str, Any]:
    looks: dict[str, dict[str, Any]] = {
        "loss_by_length": {
            "title": "Loss by context length", "xlabel": "context length (bytes)", "trained": data["trained_length"],
        },
        "extension": {"title": "Extension without fine-tuning", "xlabel": "times the trained length"},
    }  # fmt: skip
    return {name: curves(section["curves"], **looks[name]) for name, section in data["sections"].items()}


def _page(data: dict[str, Any]) -> str:
    """The report in words: every section's table and protocol, then how all of it was made."""
    parts = ["How far encodings reach"]
    if data["training"]:
        parts.append(data["training"])
    for name, section in data["sections"].items():
        parts.append(f"{name}.png: {CAPTIONS[name]}")
        parts.append(table_text(name, section["curves"], _cell))
        parts.append(f"{section['seeds']} Protocol: {section['protocol'] or ''}")
    parts.append("\n".join([f"Text: {'; '.join(data['texts'])}", *(data["commands"] or ["(called from Python)"])]))
    parts.append("\n".join(map(_run_line, data["runs"])))
    return printable("\n\n".join(parts)) + "\n"


def table_text(title: str, points: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    """Curves as a table: a row per name, a column per point."""
    columns = sorted({x for curve in points.values() for x, _ in curve})
    rows = [[title.replace("_", " "), *(f"{x:g}" for x in columns)]]
    rows += [[one_line(name), *(show(dict(curve).get(x)) for x in columns)] for name, curve in points.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def mean_cell(values: Sequence[float] | None) -> str:
    """The mean over seeds."""
    return f"{sum(values) / len(values):.3f}" if values else "–"


def _cell(values: Sequence[float] | None) -> str:
    some = f" ({min(values):.2f}–{max(values):.2f})" if values and len(values) > 1 else ""
    return mean_cell(values) + some


def _run_line(run: dict[str, Any]) -> str:
    model = run["model"]
    return (
        f"{run['name']}: {model['layers']} layers, {model['dim']} wide, {model['heads']} heads of "
        f"{model['dim'] // model['heads']}; {run['tokens']:,} tokens, batch {run['batch']} × {model['length']}, "
        f"lr {run['lr']:g}, seed {run['seed']}"
    )
