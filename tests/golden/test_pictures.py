"""Golden vectors of models of pictures, at the places where the tokens of three grids stand."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import phasor
from eye.picture_tables import builders
from eye.test_pictures import packages
from phasor import ModelRotary, RotarySpec
from phasor.axes import Axial
from phasor.eye.grid import wrapped
from phasor.eye.sites import Side, sites_of
from phasor.tools.golden.vectors import read_vectors

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
# Heads that differ; learned directions; half a turn a row and more.
NO_SPEC = {
    "ltx", "ltx2", "ltx2_split", "mochi", "timm_mixed", "timm_naflex_mixed", "timm_dinov3", "timm_naflex_dinov3",
}  # fmt: skip
# Which spread every picture over one grid, or choose frequencies by its size: tables are of the picture that was seen.
STRETCHED = {"timm_eva02", "timm_pe", "lumina", "omnigen"}


def turned(side: Side, spec: RotarySpec) -> torch.Tensor:
    """Radians [pairs, tokens] by which a model's own code turns the pairs of a spec; some stand still on some grids."""
    assert side.operator is not None
    pairs = tuple(zip(*(x.tolist() for x in spec.layout.split(torch.arange(spec.head_dim))), strict=True))
    turns = side.operator.of_pairs(pairs, pairs)
    assert turns is not None
    return turns[0].angle()


def places(angles: torch.Tensor, spec: RotarySpec) -> list[list[float]]:
    """Where the tokens stand on each axis: the slowest pair says it roughly, each faster one more exactly."""
    values, axis = (spec.inv_freq() * spec.position_scale)[:, None], spec.axes.axis_of_pair(spec.pairs)
    rows = []
    for a in range(spec.axes.count):
        at = torch.zeros(angles.shape[1], dtype=torch.float64)
        mine = [p for p, of in enumerate(axis) if of == a and values[p]]
        for p in sorted(mine, key=lambda p: float(values[p])):
            at += wrapped(angles[p] - values[p] * at) / values[p]
        rows.append([round(x) if spec.coordinates == "integer" else x for x in at.tolist()])
    return rows


@pytest.mark.parametrize("name", list(builders().MODELS) if builders() and find_spec("diffusers") else ["none"])
def test_the_vectors_of_a_model_are_its_own_tables_on_every_grid(name: str, tmp_path: Path) -> None:
    """The spec is that of one grid; tables are of three, one after the other, where the model does not stretch them."""
    packages()
    make, inputs = builders().MODELS[name]
    model = make()
    seen = phasor.observe(model, inputs[1]())
    assert (seen.rotary is None) == (name in NO_SPEC)
    if seen.rotary is None:
        with pytest.raises(ValueError, match="must rotate q and k in a way that was shown"):
            phasor.golden.write(seen, tmp_path / "vectors")
        return
    spec = next(iter(seen.rotary.distinct))
    first = next(site for site in seen.sites if site.q.turns and site.layers[0] in seen.parts)
    others = [] if name in STRETCHED else [sites_of(replace(seen.call, kwargs=inputs[i]()).tape()) for i in (0, 2)]
    sides = [first.q, *(next(s.q for s in sites if s.where == first.where and s.q.turns) for sites in others)]
    angles = torch.cat([turned(side, spec) for side in sides], 1)
    rows = places(angles, spec)
    folder = phasor.golden.write(seen.rotary, tmp_path / "vectors", positions=rows if len(rows) > 1 else [rows[0]])
    kind = next(iter(read_vectors(folder).kinds.values())).name
    cos, sin = (turn.T * spec.attention_factor(angles.shape[1]) for turn in (angles.cos(), angles.sin()))
    report = phasor.golden.check(folder, {f"{kind}.exact.cos": cos, f"{kind}.exact.sin": sin})
    assert report.verdict == "right", report


TOY = ModelRotary(
    model_type="toy", layers=(RotarySpec(head_dim=8, axes=Axial((2, 2))),), layer_types=("a",), num_heads=1
)


@pytest.mark.parametrize(
    "rows, said",
    [
        ([[0, 1], [0, 1], [0, 1]], r"one for each of 2 axes, equally long, got rows of \[2, 2, 2\]"),
        ([[0, 1], [0]], r"got rows of \[2, 1\]"),
        ([[0, 1], [0, 2.5]], "positions must be integers .* got 2.5"),
    ],
)
def test_rows_of_positions_are_one_for_each_axis(rows: list[list[int]], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        phasor.golden.write(TOY, tmp_path / "vectors", positions=rows)
