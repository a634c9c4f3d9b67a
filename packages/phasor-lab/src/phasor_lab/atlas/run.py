"""The atlas as a folder: a page, and each plate on light and on dark paper."""

from importlib.resources import files
from pathlib import Path
from string import Template

from phasor.support.plain_text import html_text
from phasor.support.whole_files import write_together

from .paper import DARK, LIGHT, png
from .plates import PLATES, Plate


def run(out: Path) -> list[Path]:
    """Write ``index.html`` and two pictures for each plate into ``out``: all of them or none; gives their paths.

    The page is light or dark as its reader's system is, and loads nothing from elsewhere. Raises ``OSError`` for what
    cannot be written. Needs matplotlib.
    """
    images = pictures()
    page = Template(files(__package__).joinpath("index.html").read_text(encoding="utf-8"))
    sections = "\n".join(map(_section, PLATES))
    images["index.html"] = page.substitute(sections=sections).encode()
    out.mkdir(parents=True, exist_ok=True)
    write_together({out / name: data for name, data in images.items()})
    return [out / name for name in images]


def pictures() -> dict[str, bytes]:
    """Each plate as ``NAME.png`` and ``NAME-dark.png``."""
    images = {}
    for plate in PLATES:
        values = plate.values()
        for suffix, paper in (("", LIGHT), ("-dark", DARK)):
            images[f"{plate.name}{suffix}.png"] = png(plate.draw(paper, values))
    return images


def _section(plate: Plate) -> str:
    numbers = ", ".join(f"({n})" for n in plate.equations)
    name, title, words, code = map(html_text, (plate.name, plate.title, plate.words, plate.code))
    return f"""<section id="{name}"><h2>{title}</h2>
<picture><source media="(prefers-color-scheme: dark)" srcset="{name}-dark.png">
<img src="{name}.png" alt="{title}: {words}" width="728"></picture>
<p>{words}</p>
<p class="about">{"Equation" if len(plate.equations) == 1 else "Equations"} {numbers} of docs/theory.md</p>
<pre><code>{code}</code></pre></section>"""
