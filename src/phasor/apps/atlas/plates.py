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
        "A query at each row, the same in all, and a key at each column, 48 tokens. Where lines run parallel to the "
        "diagonal only the distance counts. That is so for all but the learned table. Each panel has a scale of its "
        "own; rotary encoding multiplies, and its panel is the mean cosine of its pairs. Of tables that are added to "
        "tokens the products of their rows are shown. Weights that others learn are made up here.",
        all_encodings.values, all_encodings.draw,
    ),
    Plate(
        "sinusoidal", "Sinusoidal table", (48,),
        "The vector that is added to the token at each position: sines and cosines by turns, fast on the left, slow "
        "on the right.",
        absolute.sinusoidal, absolute.draw_sinusoidal,
    ),
    Plate(
        "shift", "A shift is a matrix", (49,),
        "The matrix that takes the sinusoidal vector of any position to that of the position 1 and 8 further on: a "
        "rotation of each pair of channels, quick in the first, hardly any in the last.",
        absolute.shift, absolute.draw_shift,
    ),
    Plate(
        "learned", "Learned table", (51,),
        "A vector for each position, here 48 of them, as it begins (normal, deviation 0.02) and after 200 steps of "
        "learning to look one position back. Nothing ties one row to the next but training, and there is no row 48.",
        absolute.learned, absolute.draw_learned,
    ),
    Plate(
        "plane", "Rotation in the complex plane", (6, 7, 9),
        "One pair of channels as a number. The query at positions 0 to 7, the key three positions behind it: both "
        "turn, and the angle between them stays, and with it the score.",
        rotary.plane, rotary.draw_plane,
    ),
    Plate(
        "polar", "Rotation in polar form", (12, 18),
        "Left: the angle of four pairs of a head of 128, out from position 0 to 24; a turn of the fastest takes 6.28 "
        "positions. Right: what a pair adds to the score at each distance: a wave whose height and start are the "
        "content's, and whose speed is the pair's.",
        rotary.polar, rotary.draw_polar,
    ),
    Plate(
        "phases", "Rotary phases", (13, 18, 19),
        "Above: the cosine of each of 64 pairs at 256 positions, base 10,000. Below: how many positions one turn "
        "takes, for three bases; pairs above the dotted line made no whole turn in 4,096 tokens of training.",
        rotary.phases, rotary.draw_phases,
    ),
    Plate(
        "decay", "Decay, and its bound", (21, 23, 24),
        "Above: the mean cosine of the 64 pairs by distance, between its lowest and its highest value near each, and "
        "the integral that it follows at first. It is first negative at 1,707. Below: the published curve, which is a"
        " bound from above.",
        rotary.decays, rotary.draw_decays,
    ),
    Plate(
        "alibi", "ALiBi", (55,),
        "A penalty that grows with the distance, for each of 8 heads: the steepest is halved from head to head.",
        relative.alibi, relative.draw_alibi,
    ),
    Plate(
        "t5", "T5", (54,),
        "Left: which of 32 learned numbers a distance takes: one each up to 15, then ever wider ones, all the same "
        "from 113 on. Right: two heads with made-up numbers.",
        relative.t5, relative.draw_t5,
    ),
    Plate(
        "shaw", "Shaw", (52,),
        "What the vectors of distances add to the scores of three queries, clipped at 16: beyond, all distances are "
        "one. Query and vectors are made up.",
        relative.shaw, relative.draw_shaw,
    ),
    Plate(
        "transformer_xl", "Transformer-XL", (53,),
        "What the sinusoid of a distance adds to the scores of three queries, through a made-up matrix: waves that "
        "depend on the query, on the distance, and have no end.",
        relative.transformer_xl, relative.draw_transformer_xl,
    ),
)  # fmt: skip
