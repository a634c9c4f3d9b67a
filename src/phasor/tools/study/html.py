"""The study as one HTML file that needs nothing else: a heat map of heads and pairs, and the curves of each head."""

import math
from importlib.resources import files
from itertools import groupby
from string import Template

from ...support.plain_text import html_text, json_text
from .cells import PlaceCost
from .heads import HeadUse
from .study import Study

LEAST, MOST = 1e-4, 1.0  # nats: the ends of the colours
SHADES = 8


def html_page(found: Study, name: str) -> str:
    """The page of a study of the model ``name``. Its curves are drawn by a script inside it; all else is plain HTML."""
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    waves = found.pairs.wavelengths
    curves = {f"{use.layer}.{use.head}": _curve(use) for use in found.heads}
    return template.substitute(
        name=html_text(name),
        used=len(found.pairs.used), pairs=len(waves), length=f"{found.pairs.length:,}", loss=f"{found.pairs.loss:.4f}",
        shares='<td class="share"></td>' * 4,
        waves="".join(f"<th>{_rounded(wave)}</th>" for wave in waves),
        whole="".join(_shade(cost, f"all layers, wavelength {wave:.4g}") for cost, wave in zip(
            found.pairs.stopped, waves, strict=True)),
        rows="\n".join(_row(found, use) for use in found.heads),
        curves=json_text(curves, indent=None).replace("<", "\\u003c"),
    )  # fmt: skip


def _rounded(wave: float) -> str:
    return f"{wave:,.0f}" if wave >= 100 else f"{wave:.3g}"


def _curve(use: HeadUse) -> dict[str, object]:
    return {"mass": [round(x, 5) for x in use.mass], "score": [round(x, 4) for x in use.score]}


def _row(found: Study, use: HeadUse) -> str:
    key = f"{use.layer}.{use.head}"
    columns = [found.cost_of(use.layer, use.head, pair) for pair in range(len(found.pairs.wavelengths))]
    cells = "".join(_cell(cell, len(list(same)), key) for cell, same in groupby(columns))
    shares = "".join(f'<td class="share">{share:.0%}</td>' for share in (use.position, use.content, use.both))
    head = f'<th scope="row"><button data-head="{key}">layer {use.layer}, head {use.head}</button></th>'
    return f'<tr>{head}<td class="share">{html_text(use.kind)}</td>{shares}{cells}</tr>'


def _cell(cell: PlaceCost, columns: int, key: str) -> str:
    """What was measured in one, as wide as the pairs that were stopped together."""
    place = cell.place
    whose = "all heads" if place.head is None else f"head {place.head}"
    pairs = f"pair {place.first}" if place.last - place.first == 1 else f"pairs {place.first} to {place.last - 1}"
    words = f"layer {place.layer}, {whose}, {pairs}; slowed {cell.slowed:.4f}"
    return _shade(cell.stopped, words, key, columns)


def _shade(cost: float, place: str, key: str = "", columns: int = 1) -> str:
    """One cell of the table: its colour by the logarithm of the cost, its words where the pointer is."""
    size = math.log(min(max(cost, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    words = html_text(f"{place}; stopped {cost:.4f} nats")
    link = f' data-head="{key}"' if key else ""
    link += f' colspan="{columns}"' if columns > 1 else ""
    return f'<td class="heat h{round(size * SHADES)}"{link} title="{words}"><i>{cost:.3f}</i></td>'
