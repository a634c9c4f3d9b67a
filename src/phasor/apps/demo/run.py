"""The demo from bundled configs to a folder with an index page."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from ...models.configs import ModelRotary, read_config
from ...support.plain_text import html_text, say
from ...support.whole_files import write_whole
from ...tools.inspect import SpecFacts, model_facts, page, to_dict
from ...tools.inspect.figures import caption, save_figures
from ..lab import quick
from ..run_folder.files import write_json
from .healing import MADE_SICK, healing
from .measurements import FAR, NEAR, LawResult, relative_law, rotation_times
from .studying import STRETCH, studying

COLUMNS = (f"{NEAR}", "its maximum", *(f"{place:,}" for place in FAR))
_LAB_LINK = (
    "<h2>Which encoding reaches how far</h2><p>Small models were trained on short contexts and measured on long ones: "
    '<a href="lab/report.html">the report</a>.</p>'
)
_STUDY_LINK = (
    "<h2>Which positions a model uses</h2><p>The small rotary model, pair by pair and head by head: "
    '<a href="study/study.html">the study</a>.</p>'
)
_DOCTOR_LINK = (
    "<h2>A model made sick, and healed</h2><p>What the doctor says of a small Llama after one common line of code: "
    '<a href="doctor/sick.html">sick</a>, <a href="doctor/healed.html">healed</a>.</p>'
)


def run(out: Path, say: Callable[[str], None] = say, *, train: bool = True, progress: bool = True) -> dict[str, Any]:
    """Write pages, figures, ``index.html`` and ``results.json`` into ``out``; returns the measurements.

    The index holds all pictures itself, so it can be moved and sent alone.
    With transformers it ends with the doctor's pages of a small model made sick and healed, in ``doctor``.
    With ``train`` it also trains small models on the standard library's sources and writes their report into ``lab``;
    with both, ``study/study.html`` shows which positions the rotary one uses.
    """
    out.mkdir(parents=True, exist_ok=True)
    say(f"{'model':<34}{'kind':<34}score change at position (share of |q||k|)")
    say(" " * 68 + "".join(f"{place:>15}" for place in COLUMNS))
    results: dict[str, Any] = {"models": {}}
    sections, rows = [], []
    for name, entry in bundled_models().items():
        result, row, section = _model(name, entry, out / name.replace("/", "--"), say)
        results["models"][name] = result
        rows.append(row)
        sections.append(section)
    results["rotation_seconds"] = rotation_times()
    speeds = _speed_lines(results["rotation_seconds"])
    say("\n" + "\n".join(speeds))
    doctor = find_spec("transformers") is not None
    index = out / "index.html"
    template = Template((files(__package__) / "index.html").read_text(encoding="utf-8"))
    content = template.substitute(
        places="".join(f"<th>{place}</th>" for place in COLUMNS),
        rows="\n".join(rows),
        speeds="".join(f"<li>{html_text(line)}</li>" for line in speeds),
        links=(_LAB_LINK if train else "")
        + (_STUDY_LINK if train and doctor else "")
        + (_DOCTOR_LINK if doctor else ""),
        sections="\n".join(sections),
    )
    write_whole(index, content.encode())
    if train:
        say("\nsmall models trained on 64 bytes at a time; loss at longer contexts, then the rotary one stretched")
        quick(out / "lab", say=say, progress=progress, command="phasor demo")
        if doctor:
            say(f"which pairs the rotary one uses, and the rotation that it wants at {STRETCH} times the length\n")
            results["study"] = studying(out / "lab" / "runs" / "text-rotary-seed0", out / "study", say)
    if doctor:
        say(f"\na small Llama after {MADE_SICK}, and after phasor.repair(model)\n")
        results["doctor"] = healing(out / "doctor", say)
    else:
        say("\nthe doctor's page is left out: it needs transformers (pip install 'phasor-rope[hf]')")
    write_json(out / "results.json", results)
    say(f"open {index.resolve()}")
    return results


def _model(
    name: str, entry: dict[str, Any], folder: Path, say: Callable[[str], None]
) -> tuple[dict[str, Any], str, str]:
    """The measurements of a model, its row of the index's table, and its section; page and figures into ``folder``."""
    model = read_config(entry["config"])
    facts = model_facts(model)
    maximum = max(fact.max_position for fact in facts)
    worst = _worst([relative_law(f.spec, model.num_heads, model.num_kv_heads, maximum=maximum) for f in facts])
    say(f"{name:<34}{entry['kind']:<34}" + "".join(f"{x:>15.0e}" for x in worst.exact) + "   exact")
    say(" " * 68 + "".join(f"{x:>15.0e}" for x in worst.float32) + "   float32 angles")
    figures = save_figures(model, facts, folder)
    text = page(model, facts)
    write_whole(folder / "page.txt", f"{text}\n".encode())
    write_json(folder / "facts.json", to_dict(model, facts))
    result = {"kind": entry["kind"], "law": asdict(worst), "first": _first(model, facts)}
    return (
        result,
        _row(name, f"{entry['kind']}; maximum {maximum:,}", worst),
        _section(name, entry["kind"], text, figures),
    )


def bundled_models() -> dict[str, dict[str, Any]]:
    """Shipped models, ``{name: {"kind": …, "config": …}}``: the keys of their configs that bear on positions."""
    models: dict[str, dict[str, Any]] = json.loads((files(__package__) / "models.json").read_text(encoding="utf-8"))
    return models


def _worst(laws: list[LawResult]) -> LawResult:
    """Over the distinct rotations of a model, the largest change at each place."""
    exact, usual = zip(*(law.exact for law in laws), strict=True), zip(*(law.float32 for law in laws), strict=True)
    return LawResult(laws[0].places, tuple(map(max, exact)), tuple(map(max, usual)))


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
        return "".join(f"<td{' class=bad' if v > 1e-3 else ''}>{v:.0e}</td>" for v in values)

    anchor = html_text(name.replace("/", "--"))
    return (
        f'<tr><td rowspan=2><a href="#{anchor}">{html_text(name)}</a><br><small>{html_text(kind)}</small></td>'
        f"<td>exact</td>{cells(law.exact)}</tr><tr><td>float32 angles</td>{cells(law.float32)}</tr>"
    )


def _inline(path: Path) -> str:
    return f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"


def _section(name: str, kind: str, text: str, figures: dict[str, Path]) -> str:
    pictures = "".join(
        f'<figure><img src="{_inline(path)}" alt="{html_text(caption(key))}">'
        f"<figcaption>{html_text(caption(key))}</figcaption></figure>"
        for key, path in figures.items()
    )
    anchor = html_text(name.replace("/", "--"))
    return (
        f'<section id="{anchor}"><h2>{html_text(name)}</h2><p>{html_text(kind)}</p>'
        f"<pre>{html_text(text)}</pre><div class=figures>{pictures}</div></section>"
    )
