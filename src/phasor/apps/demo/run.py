"""The demo from bundled configs to a folder with an index page."""

import html
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ...configs import ModelRotary, read_config
from ...inspect import SpecFacts, model_facts, page, to_dict
from ...inspect.figures import caption, save_figures
from ..lab import quick
from .law import PLACES, LawResult, relative_law
from .speed import rotation_times

_LAB_LINK = (
    "<h2>Which encoding reaches how far</h2><p>Small models were trained on short contexts and measured on long ones: "
    '<a href="lab/report.html">the report</a>.</p>'
)


def run(out: Path, say: Callable[[str], None] = print, *, train: bool = True, progress: bool = True) -> dict[str, Any]:
    """Write pages, figures, ``index.html`` and ``results.json`` into ``out``; returns the measurements.

    With ``train`` it also trains small models on the standard library's sources and writes their report into ``lab``.
    """
    out.mkdir(parents=True, exist_ok=True)
    say(f"{'model':<34}{'kind':<34}score change at position (share of |q||k|)")
    say(" " * 68 + "".join(f"{p:>15,}" for p in PLACES))
    results: dict[str, Any] = {"models": {}}
    sections, rows = [], []
    for name, entry in bundled_models().items():
        model = read_config(entry["config"])
        facts = model_facts(model)
        laws = [relative_law(fact.spec, model.num_heads, model.num_kv_heads) for fact in facts]
        worst = _worst(laws)
        say(f"{name:<34}{entry['kind']:<34}" + "".join(f"{x:>15.0e}" for x in worst.exact) + "   exact")
        say(" " * 68 + "".join(f"{x:>15.0e}" for x in worst.float32) + "   float32 angles")
        folder = out / name.replace("/", "--")
        figures = save_figures(model, facts, folder)
        text = page(model, facts)
        (folder / "page.txt").write_text(text + "\n", encoding="utf-8")
        (folder / "facts.json").write_text(json.dumps(to_dict(model, facts), indent=1) + "\n", encoding="utf-8")
        sections.append(_section(name, entry["kind"], text, {n: p.relative_to(out) for n, p in figures.items()}))
        rows.append(_row(name, entry["kind"], worst))
        results["models"][name] = {"kind": entry["kind"], "law": asdict(worst), "first": _first(model, facts)}
    results["rotation_seconds"] = rotation_times()
    say("")
    for line in _speed_lines(results["rotation_seconds"]):
        say(line)
    index = out / "index.html"
    template = Template((files(__package__) / "index.html").read_text(encoding="utf-8"))
    speeds = "".join(f"<li>{html.escape(line)}</li>" for line in _speed_lines(results["rotation_seconds"]))
    heads = "".join(f"<th>{p:,}</th>" for p in PLACES)
    lab = _LAB_LINK if train else ""
    index.write_text(
        template.substitute(places=heads, rows="\n".join(rows), speeds=speeds, lab=lab, sections="\n".join(sections)),
        encoding="utf-8",
    )
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if train:
        say("\nsmall models trained on 64 bytes at a time; loss at longer contexts, then the rotary one stretched")
        quick(out / "lab", say=say, progress=progress, command="phasor demo")
    say(f"open {index.resolve()}")
    return results


def bundled_models() -> dict[str, dict[str, Any]]:
    """Shipped models, ``{name: {"kind": …, "config": …}}``: the keys of their configs that bear on positions."""
    models: dict[str, dict[str, Any]] = json.loads(
        (files("phasor") / "data" / "models.json").read_text(encoding="utf-8")
    )
    return models


def _worst(laws: list[LawResult]) -> LawResult:
    """Over the distinct rotations of a model, the largest change at each place."""
    exact, usual = zip(*(law.exact for law in laws), strict=True), zip(*(law.float32 for law in laws), strict=True)
    return LawResult(PLACES, tuple(map(max, exact)), tuple(map(max, usual)))


def _first(model: ModelRotary, facts: list[SpecFacts]) -> dict[str, Any]:
    fact = facts[0]
    return {
        "layers": len(model.layers),
        "rotations": len(facts),
        "attention_factor": fact.attention_factor,
        "never_turn": fact.never_turn,
        "float32_error": fact.float32_error,
    }


def _speed_lines(seconds: dict[str, float]) -> list[str]:
    lines = []
    for dtype in ("float32", "bfloat16"):
        ours = seconds[f"phasor {dtype}"]
        line = f"one rotation of q and k, 32 and 8 heads of 128, 1024 tokens, {dtype}: {ours * 1e3:.1f} ms"
        if theirs := seconds.get(f"transformers {dtype}"):
            line += f"; transformers' function: {theirs * 1e3:.1f} ms"
        lines.append(line + " (medians of one run)")
    return lines


def _row(name: str, kind: str, law: LawResult) -> str:
    def cells(values: tuple[float, ...]) -> str:
        return "".join(f"<td{' class=bad' if v > 1e-3 else ''}>{v:.1e}</td>" for v in values)

    anchor = html.escape(name.replace("/", "--"))
    return (
        f'<tr><td rowspan=2><a href="#{anchor}">{html.escape(name)}</a><br><small>{html.escape(kind)}</small></td>'
        f"<td>exact</td>{cells(law.exact)}</tr><tr><td>float32 angles</td>{cells(law.float32)}</tr>"
    )


def _section(name: str, kind: str, text: str, figures: dict[str, Path]) -> str:
    pictures = "".join(
        f'<figure><img src="{html.escape(path.as_posix())}" alt="{html.escape(caption(key))}" loading="lazy">'
        f"<figcaption>{html.escape(caption(key))}</figcaption></figure>"
        for key, path in figures.items()
    )
    anchor = html.escape(name.replace("/", "--"))
    return (
        f'<section id="{anchor}"><h2>{html.escape(name)}</h2><p>{html.escape(kind)}</p>'
        f"<pre>{html.escape(text)}</pre><div class=figures>{pictures}</div></section>"
    )
