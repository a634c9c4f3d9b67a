"""docs/pictures.md says of every class whether it turns by the bits of its spec, and what stays where it is patched."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from eye.class_bits import DTYPES, GRIDS
from eye.test_pictures import packages
from integrations.whole_pictures import patched
from phasor import read_config
from phasor.eye.tiny.picture_call import inputs_of

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
DOCS = Path(__file__).parents[2] / "docs"
# One of each kind: tables of a pipeline, text put before, complex numbers, half of a head, two angles in a pair; and
# positions that are divided before they are multiplied.
QUICK = (
    "AllegroTransformer3DModel", "CogVideoXTransformer3DModel", "CogView4Transformer2DModel",
    "ErnieImageTransformer2DModel", "MiniMaxMusic3Transformer1DModel", "QwenImageTransformer2DModel",
)  # fmt: skip
TURNS, BITS, FATE, WHOLE = range(2, 6)


def rows() -> dict[str, list[str]]:
    """The cells of each class."""
    lines = (DOCS / "pictures.md").read_text(encoding="utf-8").splitlines()
    cells = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| [A-Z]\w+ \|", line)
    )
    return {row[0]: row for row in cells if len(row) > WHOLE}


@cache
def page() -> Any:
    """The script that wrote them."""
    packages()
    spec = importlib.util.spec_from_file_location("pictures_page", DOCS / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


classes = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in rows()]
)


@classes
def test_tables_queries_and_keys_have_the_bits_of_the_spec_where_the_page_says_so(name: str) -> None:
    made, said = page(), rows()[name][BITS]
    if said == "–":
        with pytest.raises(ValueError, match=r"observed|rotates nothing"):
            read_config(made.config_of(name))
        return
    found = made.sides(name)
    dtypes = DTYPES[:1] if "no bfloat16" in said else DTYPES
    assert {(one.dtype, one.grid) for one in found} == {(dtype, grid) for dtype in dtypes for grid in GRIDS}
    assert all(one.far.none for one in found) == said.startswith("equal")
    assert max(one.far.tables for one in found if one.dtype == torch.float32) < 1e-4


@pytest.mark.parametrize(
    "name, angles, tables",
    [
        ("Kandinsky5Transformer3DModel", "float32_exp", "activation"),
        ("Lumina2Transformer2DModel", "float64", "float64"),
        ("SanaVideoTransformer3DModel", "float64", "float32"),
        ("ZImageTransformer2DModel", "float64_rounded", "float32"),
    ],
)
def test_the_arithmetic_of_a_class_is_read(name: str, angles: str, tables: str) -> None:
    """From the sources: a ladder by exp, powers of the base in float64, what has turned is halved and widened again,
    angles in float64 that are rounded."""
    (spec,) = read_config(page().config_of(name)).with_angles("float32").distinct
    assert (spec.angles, spec.tables, spec.frequencies) == (angles, tables, None)


@classes
def test_a_patched_model_keeps_its_bits_where_the_page_says_so(name: str) -> None:
    model, cells = page().small_model(name), rows()[name]
    report, said = patched(model, [inputs_of(model, model.config, grid) for grid in GRIDS])
    assert f"{report.replaced} of {len(report.rows)}" == cells[FATE].partition(";")[0]
    assert said == cells[WHOLE]


def test_most_classes_are_read_have_the_bits_of_their_spec_and_are_replaced() -> None:
    turning = [row for row in rows().values() if "rotates nothing" not in row[TURNS]]
    read = [row for row in turning if row[BITS] != "–"]
    assert len(turning) > 60
    assert len(read) >= 0.9 * len(turning)
    assert sum(row[BITS].startswith("equal") for row in read) >= 0.95 * len(read)
    assert sum(not row[FATE].startswith("0 of") for row in turning) >= 0.85 * len(turning)
    assert not any("results differ" in row[WHOLE] for row in turning)
