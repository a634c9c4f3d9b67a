"""One page of results that needs nothing else: figures inside, numbers beside them, protocol and commands."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from phasor.support.plain_text import html_text, png_source
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
    """Write ``report.html``, the figures as PNG and ``report.json`` into ``out``; returns what the JSON says.

    ``folders`` are runs or folders of runs. Several seeds of one encoding become a mean and a range, and pairs of
    models that differ in nothing but their encoding become differences with intervals. Raises ``ValueError`` if nothing
    was evaluated yet, or if texts, training lengths or protocols differ.
    """
    runs = results.gather(folders)
    out = Path(out)
    data = _numbers(runs)
    figures = {name: png_bytes(figure, dpi=150) for name, figure in _figures(data).items()}
    pictures = {out / f"{name}.png": image for name, image in figures.items()}
    page = _page(data, figures).encode()
    write_together({**pictures, out / "report.json": json_bytes(data), out / "report.html": page})
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


def _page(data: dict[str, Any], figures: dict[str, bytes]) -> str:
    sections = []
    for name, image in figures.items():
        section = data["sections"][name]
        source = png_source(image)
        cell = _interval_cell if name in DIFFERENCES else _cell
        numbers = "" if name == POSITIONS else _table(section["curves"], cell)
        sections.append(
            f'<section id="{name}"><figure><img src="{source}" alt="{html_text(CAPTIONS[name])}">'
            f"<figcaption>{html_text(CAPTIONS[name])}</figcaption></figure>{numbers}"
            f"<p><small>{html_text(section['seeds'])} Protocol: {html_text(section['protocol'] or '')}</small></p>"
            "</section>"
        )
    template = Template((files(__package__) / "report.html").read_text(encoding="utf-8"))
    return template.substitute(
        training=f'<p class="warning">{html_text(data["training"])}</p>' if data["training"] else "",
        sections="\n".join(sections),
        runs="\n".join(_run_row(run) for run in data["runs"]),
        commands=html_text("\n".join(data["commands"]) or "(called from Python)"),
        texts=html_text("; ".join(data["texts"]) or "made by the tasks"),
        trained=data["trained_length"],
    )


def _table(points: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    columns = sorted({x for curve in points.values() for x, _ in curve})
    head = "".join(f"<th>{x:g}</th>" for x in columns)
    rows = []
    for name, curve in points.items():
        cells = dict(curve)
        values = "".join(f"<td>{show(cells.get(x))}</td>" for x in columns)
        rows.append(f"<tr><th>{html_text(name)}</th>{values}</tr>")
    head = f"<thead><tr><th></th>{head}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _cell(values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean}<br><small>{min(values):.2f}–{max(values):.2f}</small>"


def _interval_cell(difference: Any) -> str:
    if difference is None:
        return "–"
    mean, low, high, _ = difference
    return f"{mean:+.3f}<br><small>{low:+.2f} to {high:+.2f}</small>"


def _run_row(run: dict[str, Any]) -> str:
    model = run["model"]
    shape = f"{model['layers']} layers, {model['dim']} wide, {model['heads']} heads of {model['dim'] // model['heads']}"
    training = (
        f"{run['tokens']:,} tokens, batch {run['batch']} × {model['length']}, lr {run['lr']:g}, seed {run['seed']}"
    )
    return f"<tr><th>{html_text(run['name'])}</th><td>{shape}</td><td>{training}</td></tr>"
