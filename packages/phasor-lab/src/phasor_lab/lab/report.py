"""The results of runs: tables with their protocol and the commands as text, the figures, and the numbers as JSON."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phasor.support.plain_text import one_line, printable
from phasor.support.png_bytes import png_bytes
from phasor.support.whole_files import write_together

from ..run_folder.files import json_bytes
from . import results
from .figures import curves, intervals

LOSS, LENGTH = "loss (nats per byte)", "context length (bytes)"
DIFFERENCES = ("differences", "extension_differences")  # sections of intervals
POSITIONS = "loss_by_position"  # smoothed, and without bands
DIFFERENCE = "difference of losses (nats per byte)"
CAPTIONS = {
    "loss_by_length": "Up to the dotted line all have been trained. Beyond it a flat line is an encoding that reaches "
    "further, a rising one an encoding that does not.",
    "differences": "Each encoding against one of them, model by model: below zero it is better. An interval that "
    "crosses zero does not separate the two.",
    "loss_by_position": "Loss of the byte at each position of the longest context, smoothed over its neighbours "
    "(faint: as measured): where a line turns upwards is how far that encoding reaches.",
    "extension_table": "Each scheme at the length that it was set up for, without fine-tuning: lower is better.",
    "extension_differences": "Each scheme against the same models left as they are: below zero it helps.",
    "extension_curves": "Each scheme set up for the largest factor, at all lengths: what it costs on short contexts "
    "is on the left.",
    "copy": "Share of a copied string that is right, by the length of the whole sequence.",
    "passkey": "Share of a hidden key that is found again, by the length of the text around it (mean of five depths).",
}


def report(folders: Sequence[str | Path], out: str | Path) -> dict[str, Any]:
    """Write ``report.txt``, the figures as PNG and ``report.json`` into ``out``; returns what the JSON says.

    ``folders`` are runs or folders of runs. Several seeds of one encoding become a mean and a range, and pairs of
    models that differ in nothing but their encoding become differences with intervals. Raises ``ValueError`` if nothing
    was evaluated yet, or if texts, training lengths or protocols differ.
    """
    runs = results.gather(folders)
    out = Path(out)
    data = _numbers(runs)
    pictures = {out / f"{name}.png": png_bytes(figure, dpi=150) for name, figure in _figures(data).items()}
    write_together({**pictures, out / "report.json": json_bytes(data), out / "report.txt": _page(data).encode()})
    return data


def _numbers(runs: list[dict[str, Any]]) -> dict[str, Any]:
    text, extended = results.of_task(runs, "text"), [run for run in runs if run["extension"]]
    results.one_value([*text, *extended], "text", lambda r: r["run"]["source"])
    trained = results.one_value(runs, "training length", lambda r: r["run"]["model"]["length"])
    data: dict[str, Any] = {"trained_length": trained, "sections": {}}

    def add(name: str, protocol: str | None, points: Mapping[str, Any], some: list[dict[str, Any]]) -> None:
        if points:
            seeds = results.seeds_of(some, bands=name not in (*DIFFERENCES, POSITIONS))
            data["sections"][name] = {"protocol": protocol, "seeds": seeds, "curves": points}

    def add_differences(name: str, reference: str, part: str, some: list[dict[str, Any]]) -> None:
        table = results.measured(some, part)
        if table:
            reference = reference if reference in table else next(iter(table))
            if points := results.against(reference, table):
                add(name, results.protocol_of(reference, points), points, some)

    measured = results.one_value(text, "protocol", lambda r: r["evaluation"]["protocol"])
    add("loss_by_length", measured, results.by_length(runs, "text", "loss"), text)
    add_differences("differences", "rotary", "evaluation", text)
    add(POSITIONS, measured, results.by_position(runs), text)
    stretched = results.one_value(extended, "extension protocol", lambda r: r["extension"]["protocol"])
    add("extension_table", stretched, results.extensions(runs, "table", "factor"), extended)
    add_differences("extension_differences", "none", "extension", extended)
    add("extension_curves", stretched, results.extensions(runs, "curves", "length"), extended)
    for task in ("copy", "passkey"):
        some = results.of_task(runs, task)
        protocol = results.one_value(some, "protocol", lambda r: r["evaluation"]["protocol"])
        add(task, protocol, results.by_length(runs, task, "accuracy"), some)
    data["runs"] = [{"name": run["name"], **run["run"]} for run in runs]
    data["training"] = results.training_note(runs)
    data["commands"] = sorted({run["about"]["command"] for run in runs if run["about"].get("command")})
    data["texts"] = sorted({run["about"]["text"] for run in runs if run["about"].get("text")})
    return data


def _figures(data: dict[str, Any]) -> dict[str, Any]:
    trained = {"trained": data["trained_length"]}
    lengths = {"xlabel": LENGTH, "ylabel": LOSS, **trained}
    times = {"xlabel": "times the trained length"}
    positions = {"xlabel": "position in the context (bytes)", "ylabel": LOSS, "log": False, "smooth": True, **trained}
    looks: dict[str, dict[str, Any]] = {
        "loss_by_length": {"title": "Loss by context length", **lengths},
        "differences": {"title": "Differences between encodings", "xlabel": LENGTH, "ylabel": DIFFERENCE, **trained},
        "loss_by_position": {"title": "Loss by position", **positions},
        "extension_table": {"title": "Extension without fine-tuning", **times, "ylabel": LOSS},
        "extension_differences": {"title": "Differences to no scaling", **times, "ylabel": DIFFERENCE},
        "extension_curves": {"title": "Set up for the largest factor, at all lengths", **lengths},
    }
    for task in ("copy", "passkey"):
        share = {"xlabel": "sequence length (bytes)", "ylabel": "answer bytes right (share)", "share": True}
        looks[task] = {"title": f"Task: {task}", **share, **trained}
    return {
        name: (intervals if name in DIFFERENCES else curves)(section["curves"], **looks[name])
        for name, section in data["sections"].items()
    }


def _page(data: dict[str, Any]) -> str:
    """The report in words: every section's table and protocol, then how all of it was made."""
    parts = ["How far encodings reach"]
    if data["training"]:
        parts.append(data["training"])
    for name, section in data["sections"].items():
        parts.append(f"{name}.png: {CAPTIONS[name]}")
        if name != POSITIONS:
            parts.append(table_text(name, section["curves"], _interval_cell if name in DIFFERENCES else _cell))
        parts.append(f"{section['seeds']} Protocol: {section['protocol'] or ''}")
    commands = "\n".join(data["commands"]) or "(called from Python)"
    parts.append(f"Text: {'; '.join(data['texts']) or 'made by the tasks'}\n{commands}")
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


def _interval_cell(difference: Any) -> str:
    if difference is None:
        return "–"
    mean, low, high, _ = difference
    return f"{mean:+.3f} ({low:+.2f} to {high:+.2f})"


def _run_line(run: dict[str, Any]) -> str:
    model = run["model"]
    return (
        f"{run['name']}: {model['layers']} layers, {model['dim']} wide, {model['heads']} heads of "
        f"{model['dim'] // model['heads']}; {run['tokens']:,} tokens, batch {run['batch']} × {model['length']}, "
        f"lr {run['lr']:g}, seed {run['seed']}"
    )
