"""The study as one HTML file that needs nothing else: heat maps of heads and pairs, and the curves of each head."""

import math
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from string import Template

from phasor.support.plain_text import html_text, script_json

from .heads import HeadUse
from .pairs import USED, PairUse
from .places import PlaceCost
from .result import Study, energies, in_words, layer_words, nats, wave_words

LEAST, MOST = 1e-4, 1.0  # nats: the ends of the colours
SHADES = 8
EMPTY = '<td class="share"></td>' * 4


def html_page(study: Study, name: str) -> str:
    """The page of a study of the model ``name``. Its curves are drawn by a script inside it; all else is plain HTML."""
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        name=html_text(name), used=USED, loss=f"{study.loss:.4f}", length=f"{study.length:,}",
        trained=html_text(str(study.trained)),
        declared=f"{study.declared:,} tokens" if study.declared else "no length",
        sections="\n".join(_section(study, rotation) for rotation in study.rotations),
        unrotated=_unrotated(study),
        rises=script_json({"contexts": study.trained.contexts, "rises": _rounded(study.trained.rises, 4)}),
        heads=script_json({_key(use): _curves(study, use) for use in study.heads}),
    )  # fmt: skip


def _key(use: HeadUse) -> str:
    return f"{use.layer}.{use.head}"


def _rounded(values: Sequence[float], places: int) -> list[float]:
    return [round(value, places) for value in values]


def _curves(study: Study, use: HeadUse) -> dict[str, object]:
    rotation = next((rotation for rotation in study.rotations if use.layer in rotation.layers), None)
    return {
        "kind": use.kind, "mass": _rounded(use.mass, 5), "score": _rounded(use.score, 4),
        "q": _rounded(use.q_energy, 4), "k": _rounded(use.k_energy, 4),
        "waves": [wave_words(wave) for wave in rotation.wavelengths] if rotation else [],
    }  # fmt: skip


def _section(study: Study, rotation: PairUse) -> str:
    """The heat map of one rotation: a row for the whole model, and one for each head."""
    uses = study.heads_of(rotation)
    whose = "all layers" if len(study.rotations) == 1 else layer_words(rotation)
    pairs = range(len(rotation.wavelengths))
    means = [energies(uses, pair) for pair in pairs]
    rows = [
        _whole("pair", [f'<td class="number">{pair}</td>' for pair in pairs], "numbers"),
        _whole(whose, [
            _shade(cost, f"{whose}, pair {i}; slowed {nats(rotation.slowed[i])}")
            for i, cost in enumerate(rotation.stopped)
        ], "whole"),
        *(_row(study, use) for use in uses),
        *(_whole(f"|{name}|², all heads", [f'<td class="number">{mean[i]:.2g}</td>' for mean in means], "numbers")
          for i, name in enumerate("qk")),
    ]  # fmt: skip
    head = "".join(f"<th>{wave_words(wave)}</th>" for wave in rotation.wavelengths)
    words = "<br>".join(html_text(line) for line in in_words(rotation))
    return (
        f'<p><b>{words}</b></p><div class="scroll"><table><thead><tr><th scope="row">wavelength</th>{head}'
        + "".join(f'<th class="share">{word}</th>' for word in ("looks at", "position", "content", "both"))
        + "</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _whole(name: str, cells: Sequence[str], kind: str) -> str:
    return f'<tr class="{kind}"><th scope="row">{name}</th>{"".join(cells)}{EMPTY}</tr>'


def _row(study: Study, use: HeadUse) -> str:
    columns = [study.cost_of(use.layer, use.head, pair) for pair in range(len(use.q_energy))]
    cells = "".join(_cell(cost, len(list(same)), _key(use)) for cost, same in groupby(columns))
    shares = "".join(f'<td class="share">{share:.0%}</td>' for share in (use.position, use.content, use.both))
    button = f'<button data-head="{_key(use)}">layer {use.layer}, head {use.head}</button>'
    return f'<tr><th scope="row">{button}</th>{cells}<td class="share">{html_text(use.kind)}</td>{shares}</tr>'


def _unrotated(study: Study) -> str:
    """The heads of layers without rotation."""
    uses = [use for use in study.heads if not use.q_energy]
    if not uses:
        return ""
    rows = "".join(_row(study, use) for use in uses)
    return f'<p>Layers without rotation:</p><div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _cell(cost: PlaceCost | None, columns: int, key: str) -> str:
    """What was measured in one place, as wide as the pairs that were stopped together."""
    if cost is None:
        return f'<td class="heat" colspan="{columns}" data-head="{key}">not tried</td>'
    place = cost.place
    whose = "all heads" if place.head is None else f"head {place.head}"
    pairs = f"pair {place.first}" if place.last - place.first == 1 else f"pairs {place.first} to {place.last - 1}"
    words = f"layer {place.layer}, {whose}, {pairs}; slowed {nats(cost.slowed)}"
    return _shade(cost.stopped, words, key, columns)


def _shade(cost: float, place: str, key: str = "", columns: int = 1) -> str:
    """One cell of the table: its colour by the logarithm of the cost, its words where the pointer is."""
    size = math.log(min(max(cost, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    words = html_text(f"{place}; stopped {nats(cost)} nats")
    link = f' data-head="{key}"' if key else ""
    link += f' colspan="{columns}"' if columns > 1 else ""
    return f'<td class="heat h{round(size * SHADES)}"{link} title="{words}"><i>{cost:.3f}</i></td>'
