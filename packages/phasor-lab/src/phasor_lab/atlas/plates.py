"""The plates of the atlas, in the order in which they are looked at."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import absolute, all_encodings, relative, rotary
from .paper import Paper


@dataclass(frozen=True)
class Plate:
    """One picture: ``values`` computes what ``draw`` shows; ``equations`` are those of docs/theory.md."""

    name: str
    title: str
    equations: tuple[int, ...]
    words: str
    values: Callable[[], Any]
    draw: Callable[[Paper, Any], Any]

    @property
    def code(self) -> str:
        """The line that computes what is drawn, as it stands in the source of ``values``."""
        source = textwrap.dedent(inspect.getsource(self.values))
        function = ast.parse(source).body[0]
        assert isinstance(function, ast.FunctionDef)
        returned = function.body[-1]
        assert isinstance(returned, ast.Return)
        lines = source.splitlines()[returned.lineno - 1 : returned.end_lineno]
        return textwrap.dedent("\n".join(lines)).removeprefix("return ")


PLATES = (
    Plate(
        "together", "What each encoding adds to a score", (21, 50, 52, 53, 54, 55),
        "Every row is a query, always the same vector, and every column a key; 48 of each. Where lines run parallel "
        "to the diagonal, only the distance counts. That is so for all but the learned table. Each panel has a scale "
        "of its own. Rotary encoding adds nothing but multiplies, so its panel shows the mean cosine of its pairs. "
        "For tables that are added to tokens, the panel shows the products of their rows. Learned weights are made "
        "up here.",
        all_encodings.values, all_encodings.draw,
    ),
    Plate(
        "sinusoidal", "Sinusoidal table", (48,),
        "Each row is the vector that is added to the token at one position. Sines and cosines alternate; they are "
        "fast on the left and slow on the right.",
        absolute.sinusoidal, absolute.draw_sinusoidal,
    ),
    Plate(
        "shift", "A shift is a matrix", (49,),
        "Two matrices: they take the sinusoidal vector of any position to that of the position 1 and 8 further on. "
        "Each pair of channels is rotated, by a large angle in the first pairs and by hardly any in the last.",
        absolute.shift, absolute.draw_shift,
    ),
    Plate(
        "learned", "Learned table", (51,),
        "A table with a vector for each of 48 positions. Left: as it begins, with a normal deviation of 0.02. Right: "
        "after 200 steps of learning to look one position back. Only training ties one row to the next, and there is "
        "no row for position 48.",
        absolute.learned, absolute.draw_learned,
    ),
    Plate(
        "plane", "Rotation in the complex plane", (6, 7, 9),
        "One pair of channels as a complex number. The query is at positions 0 to 7, the key always three positions "
        "behind it. Both rotate, and the angle between them stays the same. So does the score.",
        rotary.plane, rotary.draw_plane,
    ),
    Plate(
        "phases", "Rotary phases", (13, 18, 19),
        "Above: the cosine of each of 64 pairs at 256 positions, base 10,000. Below: how many positions one turn "
        "takes, for three bases. Pairs above the dotted line made no whole turn in 4,096 tokens of training.",
        rotary.phases, rotary.draw_phases,
    ),
    Plate(
        "decay", "Decay, and its bound", (21, 23),
        "Above: the mean cosine of the 64 pairs by distance. The band runs from its lowest to its highest value near "
        "each distance. It is first negative at 1,707. Below: the published curve, which is only an upper bound.",
        rotary.decays, rotary.draw_decays,
    ),
    Plate(
        "alibi", "ALiBi", (55,),
        "A penalty that grows with the distance, for each of 8 heads. From one head to the next its slope is halved.",
        relative.alibi, relative.draw_alibi,
    ),
    Plate(
        "t5", "T5", (54,),
        "Left: which of 32 learned numbers a distance takes. Distances up to 15 have a number each. Then ever more "
        "share one, and all from 113 on have the last. Right: two heads with made-up numbers.",
        relative.t5, relative.draw_t5,
    ),
)  # fmt: skip
