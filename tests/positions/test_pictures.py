"""`pictures` against the tables that models of diffusers and timm form from their own ids."""

from typing import Any

import pytest
import torch
from torch import Tensor

from eye.picture_tables import builders, with_tables
from eye.test_pictures import packages
from phasor.positions import pictures

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
STILLS = [(4, 4), (3, 5), (2, 7)]
CLIPS = [(1, 4, 4), (2, 3, 5), (3, 2, 2)]
QWEN = [((1, 4, 4),), ((1, 3, 5),), ((1, 2, 4), (1, 3, 3))]
DIAGONAL = {"grid": "centred", "text": 3, "text_at": "diagonal"}
# Of each model: the pictures of its three grids, the rule, the channels of each axis, and the base.
RULES: dict[str, tuple[list[Any], dict[str, Any], tuple[int, ...], float]] = {
    "flux": (STILLS, {"text": 3}, (4, 6, 6), 1e4),
    "flux2": (STILLS, {"text": 3, "text_at": "axis"}, (4, 4, 4, 4), 2e3),
    "wan": (CLIPS, {}, (8, 4, 4), 1e4),
    "hunyuan_video": (CLIPS, {}, (4, 6, 6), 256.0),
    "qwen_image": (QWEN, DIAGONAL, (4, 6, 6), 1e4),
    "cogvideox": (CLIPS, {"grid": "cropped", "base": (6, 8)}, (4, 6, 6), 1e4),
    "cogvideox15": (CLIPS, {}, (4, 6, 6), 1e4),
    "easyanimate": (CLIPS, {"grid": "cropped", "base": (30, 45)}, (4, 6, 6), 1e4),
    "lumina2": (STILLS, {"text": 3, "text_at": "plane"}, (4, 6, 6), 1e4),
    "z_image": (STILLS, {"text": 32, "text_at": "plane", "first": 1, "text_last": True}, (4, 6, 6), 256.0),
    "hidream": (STILLS[:1], {"text": 3, "text_last": True}, (4, 6, 6), 1e4),
    "prx": (STILLS, {}, (0, 8, 8), 1e4),
    "cogview4": (STILLS, {"grid": "spread", "base": (16, 16)}, (0, 8, 8), 1e4),
    "timm_eva02": ([(4, 4), (3, 5), (6, 6)], {"grid": "stretched", "base": (3, 3)}, (0, 8, 8), 1e4),
}
LONGER = {"lumina2": [3, 3, 5]}  # words of text


def angles(at: Tensor, widths: tuple[int, ...], base: float) -> Tensor:
    """Radians ``[S, pairs]``, pairs axis by axis."""
    rates = [base ** (-torch.arange(0, width, 2, dtype=torch.float64) / max(width, 1)) for width in widths]
    return torch.cat([row[:, None].double() * rate for row, rate in zip(at, rates, strict=True)], 1)


def tables(name: str, grid: int) -> list[Tensor]:
    """Complex ``[S, pairs]``: every table that a model forms on one of its three grids."""
    packages()
    make, inputs = builders().MODELS[name]
    model, given = make(), inputs[grid]()
    with torch.no_grad():
        _, found = with_tables(name, model, given, lambda: model(**given))
    return [rows[:, 0] for rows, _ in found]


def is_at_an_end(turns: Tensor, found: list[Tensor]) -> bool:
    """Whether one table begins or ends with these rows."""
    near = [part for part in found if part.shape[1] == turns.shape[1] and len(part) >= len(turns)]
    cuts = [cut for part in near for cut in (part[: len(turns)], part[len(part) - len(turns) :])]
    return not len(turns) or any(bool((cut - turns).abs().max() < 2e-5) for cut in cuts)


@pytest.mark.parametrize("name", RULES)
def test_tokens_stand_where_the_model_puts_them(name: str) -> None:
    sizes, rule, widths, base = RULES[name]
    for number, size in enumerate(sizes):
        shapes = size if isinstance(size[0], tuple) else (size,)
        words = {"text": LONGER[name][number]} if name in LONGER else {}
        at = pictures(*shapes, **(rule | words))
        count = rule.get("text", 0) if name not in LONGER else words["text"]
        cut = at.shape[1] - count if rule.get("text_last") else count
        own = tables(name, number)
        parts = [angles(part, widths, base) for part in (at, at[:, :cut], at[:, cut:])]
        whole, first, second = (is_at_an_end(torch.polar(torch.ones_like(x), x), own) for x in parts)
        assert whole or (first and second), number


def test_learned_frequencies_of_mochi_meet_its_cell_middles() -> None:
    for number, size in enumerate(CLIPS):
        packages()
        frequencies = builders().MODELS["mochi"][0]().pos_frequencies[:, 0]  # [axes, pairs] of the first head
        at = pictures(size, grid="middles", base=(192, 192)).T @ frequencies.detach().double()
        assert is_at_an_end(torch.polar(torch.ones_like(at), at), tables("mochi", number))


@pytest.mark.parametrize("number, fps", list(enumerate((None, 30, 16))))
def test_frames_of_cosmos_are_counted_in_time(number: int, fps: int | None) -> None:
    """Each axis of 8 channels has a base of its own; scale 2 along time, 1 along rows and columns."""
    at = pictures(CLIPS[number], frame_step=1 if fps is None else 24 / fps)
    bases = [1e4 * scale ** (8 / 6) for scale in (2.0, 1.0, 1.0)]
    turned = torch.cat([angles(at[a : a + 1], (8,), bases[a]) for a in range(3)], 1)
    assert is_at_an_end(torch.polar(torch.ones_like(turned), turned), tables("cosmos", number))


def test_layers_of_qwen_image_begin_at_planes_of_their_own() -> None:
    """The condition, which comes last, is one frame before all others."""
    for number, (shapes, planes) in enumerate(zip(QWEN, ([-1], [-1], [0, -1]), strict=True)):
        at = angles(pictures(*shapes, grid="centred", planes=planes), (4, 6, 6), 1e4)
        assert is_at_an_end(torch.polar(torch.ones_like(at), at), tables("qwen_image_layered", number))


# Of 2 rows and 3 columns, counted by hand from the code of FLUX, Qwen-Image, EVA-02, CogVideoX, CogView4 and Mochi.
STAND: dict[str, tuple[Any, list[float], list[float]]] = {
    "counted": (None, [0, 1], [0, 1, 2]),
    "centred": (None, [-1, 0], [-2, -1, 0]),
    "stretched": ((4, 9), [0, 2], [0, 3, 6]),
    "cropped": ((6, 15), [0, 3], [3, 5.5, 8]),  # the middle 9 of 15 columns, from 3 on and to two thirds of 12
    "spread": ((4, 10), [0, 2], [0, 3, 6]),
    "middles": ((8, 12), [-2, 2], [-4, 0, 4]),
}


@pytest.mark.parametrize("grid", STAND)
def test_where_rows_and_columns_stand(grid: str) -> None:
    base, rows, columns = STAND[grid]
    at = pictures((2, 3), grid=grid, **({} if base is None else {"base": base}))
    assert at[1].tolist() == [y for y in rows for _ in columns] and at[2].tolist() == columns * 2, at
