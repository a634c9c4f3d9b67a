"""Thumbnails and slices against `get_rope_index` of MiniCPM-V 4.7 (transformers)."""

import random

import pytest
import torch

from phasor.positions import from_canvas

from .mixes import IMAGE_ID, PAD, TEXT_ID, VIDEO_ID
from .theirs import bare_model, config_of

IMAGE_START, IMAGE_END, SLICE_START, SLICE_END, LINE = 1, 2, 3, 4, 6
MARKS = (IMAGE_START, IMAGE_END, SLICE_END, LINE)


def picture(draw: random.Random, token: int, sizes: list[list[int]], merge: int) -> list[int]:
    """As the processor writes it: thumbnail, then rows of slices between line breaks; slices may differ in size."""

    def crop() -> list[int]:
        h, w = draw.randint(1, 5), draw.randint(1, 5)
        sizes.append([h * merge + draw.randint(0, merge - 1), w * merge])
        return [token] * (h * w)

    row = [IMAGE_START, *crop(), IMAGE_END]
    rows, columns = draw.choice(((0, 0), (0, 0), (1, 1), (1, 3), (2, 1), (2, 2), (3, 2)))
    for i in range(rows):
        row += [LINE] * (i > 0)
        for _ in range(columns):
            row += [SLICE_START, *crop(), SLICE_END]
    return row


def batch(seed: int, merge: int):
    draw, images, videos, rows = random.Random(seed), [], [], []
    for _ in range(3):
        row = [TEXT_ID] * draw.randint(0, 3)
        for kind in draw.choices("tiv", k=draw.randint(1, 4)):
            if kind == "t":
                row += [draw.choice((TEXT_ID, TEXT_ID, LINE))] * draw.randint(1, 4)
            elif kind == "i":
                row += picture(draw, IMAGE_ID, images, merge)
            else:  # frames follow each other with nothing between them
                for _ in range(draw.randint(1, 3)):
                    row += picture(draw, VIDEO_ID, videos, merge)
        rows.append(row + [TEXT_ID] * draw.randint(1, 3))
    length = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        missing = length - len(row)
        before = draw.choice((0, missing))
        ids.append([PAD] * before + row + [PAD] * (missing - before))
        mask.append([0] * before + [1] * len(row) + [0] * (missing - before))
    return tuple(torch.tensor(x) if x else None for x in (ids, mask, images, videos))


@pytest.mark.parametrize("merge", [2, 4])
def test_canvas(merge):
    pytest.importorskip("transformers")
    marks = {"image_start_id": 1, "image_end_id": 2, "slice_start_id": 3, "slice_end_id": 4, "newline_id": 6}
    model = bare_model("minicpmv4_7", config_of("minicpmv4_7", **marks))
    for seed in range(60):
        ids, mask, images, videos = batch(seed, merge)
        kinds = (ids == IMAGE_ID).long() + 2 * (ids == VIDEO_ID).long()
        mode = {2: "4x", 4: "16x"}[merge]
        theirs, offset = model.get_rope_index(ids, kinds, images, videos, downsample_mode=mode, attention_mask=mask)
        ours = from_canvas(
            ids,
            kinds,
            slice_start=SLICE_START,
            marks=MARKS,
            image_sizes=images,
            video_sizes=videos,
            merge=merge,
            mask=mask,
        )
        assert torch.equal(ours.positions, theirs), seed
        assert torch.equal(ours.offset, offset)


def test_slices_by_hand():
    """A thumbnail of 1 x 2 above two slices of 2 x 2 side by side: the canvas is 2 x 4, and text goes on at 0 + 5."""
    ids = torch.tensor([[1, 9, 9, 2, 3, 9, 9, 9, 9, 4, 3, 9, 9, 9, 9, 4, 5]])
    sizes = torch.tensor([[1, 2], [2, 2], [2, 2]])
    placed = from_canvas(ids, (ids == 9).long(), slice_start=3, marks=MARKS, image_sizes=sizes, merge=1)
    assert placed.positions[0, 0].tolist() == [0] * 16 + [5]
    assert placed.positions[1, 0].tolist() == [0, 0, 0, 2, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 5]
    assert placed.positions[2, 0].tolist() == [0, 0, 3, 4, 0, 0, 1, 0, 1, 1, 2, 2, 3, 2, 3, 3, 5]
    assert placed.offset.tolist() == [[6 - 17]]
