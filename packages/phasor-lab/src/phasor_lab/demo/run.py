"""The demo from bundled configs to a folder with an index page."""

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any

from phasor import ModelRotary, read_config
from phasor.support.plain_text import html_text, say
from phasor.support.whole_files import write_whole
from phasor.tools.inspect.model_page import model_facts, page, to_dict
from phasor.tools.inspect.numbers import SpecFacts

from ..lab import compare, load_model, read_text
from ..lab.export import export
from ..run_folder.files import write_json
from ..run_folder.pictures import png_source
from .figures import Picture, save_figures
from .healing import MADE_SICK, healing
from .measurements import FAR, NEAR, TOO_MUCH, LawResult, relative_law
from .studying import BYTES, STRETCH, studying

TRAINED: dict[str, Any] = {  # a minute and a half
    "encodings": ("sinusoidal", "rotary", "alibi"), "tokens": 600_000, "scored": 16_384, "times": (1, 1.5, 2, 4, 8),
    "schemes": ("none", "linear", "ntk", "yarn"),
}  # fmt: skip
COLUMNS = (f"at {NEAR}", "its maximum", *FAR.values())
_LAB = (
    "lab/report.txt",
    "Which encoding reaches how far",
    "Small models, trained on short contexts here, and measured on long ones.",
)
_STUDY = (
    "study/study.txt",
    "Which positions a model uses",
    "The rotary one, pair by pair and head by head.",
)
_DOCTOR = (
    ("doctor/sick.txt", "A model made sick", f"The rotary one after {MADE_SICK}: what the doctor finds."),
    ("doctor/healed.txt", "The same model healed", "After phasor.repair(model)."),
)


def run(out: Path, say: Callable[[str], None] = say, *, train: bool = True, progress: bool = True) -> dict[str, Any]:
    """Write pages, figures, ``index.html`` and ``results.json`` into ``out``; returns the measurements.

    The index holds all pictures itself, so it can be moved and sent alone.
    With ``train`` it also trains small models on the standard library's sources and writes their report into ``lab``.
    Where transformers is there too, ``study/study.txt`` shows which positions the rotary one uses, and ``doctor`` has
    the doctor's pages of it, made sick and healed.
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
    looked_at = train and find_spec("transformers") is not None
    template = Template((files(__package__) / "index.html").read_text(encoding="utf-8"))
    content = template.substitute(
        places="".join(f"<th>{place}</th>" for place in COLUMNS),
        rows="\n".join(rows),
        links="\n".join(
            _link(*link) for link in ((_LAB,) if train else ()) + ((_STUDY, *_DOCTOR) if looked_at else ())
        ),
        sections="\n".join(sections),
    )
    index = out / "index.html"
    write_whole(index, content.encode())
    if train:
        say("\nsmall models trained on 64 bytes at a time; loss at longer contexts, then the rotary one stretched")
        compare(out / "lab", **TRAINED, say=say, progress=progress, command="phasor demo")
    if looked_at:
        results |= _trained(out, say)
    elif train:
        say("\nthe pages of the study and the doctor are left out: they need pip install 'phasor-rope[hf]'")
    write_json(out / "results.json", results)
    say(f"open {index.resolve()}")
    return results


def _trained(out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The study and the doctor's pages of the rotary model that was trained, and their numbers."""
    tokens = read_text().held_out_sample(BYTES).long()
    with TemporaryDirectory() as scratch:
        folder = export(load_model(out / "lab" / "runs" / "rotary-seed0")[0], Path(scratch) / "model")
        say(f"which pairs the rotary one uses, and the rotation that it wants at {STRETCH} times the length\n")
        study = studying(folder, tokens, out / "study", say)
        say(f"\nthe same model after {MADE_SICK}, and after phasor.repair(model)\n")
        return {"study": study, "doctor": healing(folder, tokens, out / "doctor", say)}


def _link(page: str, title: str, words: str) -> str:
    return f'<li><a href="{page}">{html_text(title)}</a><br>{html_text(words)}</li>'


def _model(
    name: str, entry: dict[str, Any], folder: Path, say: Callable[[str], None]
) -> tuple[dict[str, Any], str, str]:
    """The measurements of a model, its row of the index's table, and its section; page and figures into ``folder``."""
    model = read_config(entry["config"])
    facts = model_facts(model)
    maximum = max(fact.max_position for fact in facts)
    worst = _worst([relative_law(f.spec, model.num_heads, model.num_kv_heads, maximum=maximum) for f in facts])
    say(f"{name:<34}{entry['kind']:<34}" + "".join(f"{x:>15.1e}" for x in worst.exact) + "   exact")
    say(" " * 68 + "".join(f"{x:>15.1e}" for x in worst.float32) + "   float32 angles")
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


def _row(name: str, kind: str, law: LawResult) -> str:
    anchor = html_text(name.replace("/", "--"))
    shown = html_text(name).replace("/", "/<wbr>")  # on a phone it breaks here, and not inside a word
    return (
        f'<tr><td rowspan=2><a href="#{anchor}">{shown}</a><br><small>{html_text(kind)}</small></td>'
        f"<td>exact</td>{_cells(law.exact)}</tr><tr><td>float32 angles</td>{_cells(law.float32)}</tr>"
    )


def _cells(values: tuple[float, ...]) -> str:
    """Marked is what is too much as it stands there, in two digits."""
    shown = [f"{value:.1e}" for value in values]
    return "".join(f"<td{' class=bad' if float(text) > TOO_MUCH else ''}>{text}</td>" for text in shown)


def _section(name: str, kind: str, text: str, pictures: list[Picture]) -> str:
    figures = "".join(
        f'<figure><img src="{png_source(picture.path.read_bytes())}" alt="{html_text(picture.caption)}">'
        f"<figcaption>{html_text(picture.caption)}</figcaption></figure>"
        for picture in pictures
    )
    anchor = html_text(name.replace("/", "--"))
    return (
        f'<details id="{anchor}"><summary>{html_text(name)} <small>{html_text(kind)}</small></summary>'
        f"<pre>{html_text(text)}</pre><div class=figures>{figures}</div></details>"
    )
