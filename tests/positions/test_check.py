"""`positions.check`: no legal batch gives a finding, every mistake of a collator is named with its row and token."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import positions
from phasor.positions import Rule, check

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def padded(lengths: list[int], side: str) -> torch.Tensor:
    """The mask of rows with so many real tokens."""
    at = torch.arange(max(lengths) + 1)
    mask = (at < torch.tensor(lengths)[:, None]).long()
    return mask if side == "right" else mask.flip(-1)


def bounds(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def ids_like(mask: torch.Tensor) -> torch.Tensor:
    return torch.full_like(mask, 7)


# --- legal batches --------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(LENGTHS, st.sampled_from(["left", "right"]), st.integers(-3, 50))
def test_padded_rows_are_legal_whatever_stands_at_the_padding(lengths, side, filler):
    mask = padded(lengths, side)
    ids = torch.where(mask == 1, positions.from_mask(mask), filler)
    for given_mask in (mask, mask.bool(), mask.float(), mask.int()):
        assert check(ids_like(mask), ids, given_mask, pad=0) == ()
    assert check(ids_like(mask), ids + 2 * mask, mask, first=2) == ()
    cu = bounds(lengths)  # as flash-attention takes the same rows without their padding
    assert check(ids_like(mask), ids, mask, cu_seqlens=cu.int()) == ()
    assert check(ids_like(mask), positions.text(ids), mask, axes=3) == ()


@settings(max_examples=40)
@given(LENGTHS, st.integers(0, 3))
def test_packed_documents_are_legal_with_and_without_a_word_about_their_bounds(lengths, tail):
    ids = torch.cat([positions.packed(bounds(lengths)), torch.arange(tail)])
    tokens = torch.ones_like(ids)
    segments = torch.cat([torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)) + 1, torch.zeros(tail)])
    bounded = bounds([*lengths, tail]) if tail else bounds(lengths)
    assert check(tokens, ids, cu_seqlens=bounded) == ()
    assert check(tokens[None], ids[None], cu_seqlens=bounded) == ()
    assert check(tokens, ids, segments.long()) == ()
    assert check(tokens, ids, segments.long(), cu_seqlens=bounds(lengths)) == ()
    assert check(tokens, ids, (segments > 0).long(), cu_seqlens=bounds(lengths)) == ()
    if len(ids) > 2 and ids.any():
        assert check(tokens, ids) == ()
    assert check(tokens, positions.text(ids, 3), axes=3, cu_seqlens=bounded) == ()
    assert check(tokens[None], positions.text(ids[None], 4), axes=3, text_plane=True, cu_seqlens=bounded) == ()


@settings(max_examples=40)
@given(LENGTHS, st.integers(1, 4), st.sampled_from(["left", "right"]))
def test_new_tokens_beside_a_cache_are_legal(lengths, new, side):
    past = padded(lengths, side)
    cached = past.sum(-1)
    ids = positions.decode(cached, new)
    mask = torch.cat([past, torch.ones_like(ids)], 1)
    assert check(torch.ones_like(ids), ids, mask) == ()
    assert check(torch.ones_like(ids), ids, cached=cached) == ()


@settings(max_examples=40)
@given(LENGTHS, st.integers(1, 3), st.booleans())
def test_shards_are_legal(lengths, size, zigzag):
    whole = positions.packed(bounds(lengths))
    parts = list(torch.arange(len(whole)).tensor_split(2 * size if zigzag else size))
    for rank in range(size):
        places = torch.cat([parts[rank], parts[-1 - rank]]) if zigzag else parts[rank]
        if len(places):
            ids = torch.ones_like(places)
            assert check(ids, whole[places], cu_seqlens=bounds(lengths), places=places) == ()
            assert check(ids, places, places=places) == ()


RULE = Rule(merge=2)
GRIDS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=4)


def with_images(documents: list[tuple[int, int, int]], side: str):
    """Rows of two words, an image of h x w merged patches, more words: kinds, mask, grids, and the right positions."""
    rows = [[0, 0] + [1] * (h * w) + [0] * tail for h, w, tail in documents]
    width = max(map(len, rows)) + 1
    kinds = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros_like(kinds)
    for i, row in enumerate(rows):
        at = slice(width - len(row), width) if side == "left" else slice(len(row))
        kinds[i, at], mask[i, at] = torch.tensor(row), 1
    grids = torch.tensor([[1, 2 * h, 2 * w] for h, w, _ in documents])
    return kinds, mask, grids, positions.from_kinds(kinds, RULE, image_grids=grids, mask=mask).positions


@settings(max_examples=40)
@given(GRIDS, st.sampled_from(["left", "right"]))
def test_images_are_legal_padded_and_packed(documents, side):
    kinds, mask, grids, ids = with_images(documents, side)
    vision = {"axes": 3, "rule": RULE, "image_grids": grids}
    assert check(ids_like(mask), ids, mask, kinds=kinds, **vision) == ()
    assert check(ids_like(mask), ids, mask, axes=3) == ()
    real = mask.bool()
    packed, cu = ids[:, real], bounds(mask.sum(-1).tolist())
    text = positions.packed(cu)
    assert check(ids_like(text), packed, cu_seqlens=cu, kinds=kinds[real], **vision) == ()
    assert check(ids_like(text), packed, cu_seqlens=cu, axes=3) == ()
    four = torch.cat([text[None], packed])[:, None]
    assert check(ids_like(text), four, kinds=kinds[real], text_plane=True, **vision) == ()  # bounds from its plane


# --- mistakes -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(LENGTHS, st.data())
def test_any_wrong_position_of_a_real_token_is_found_at_its_token(lengths, data):
    ids = positions.packed(bounds(lengths))
    at = data.draw(st.integers(0, len(ids) - 1))
    ids[at] += data.draw(st.integers(-5, 5).filter(bool))
    found = check(torch.ones_like(ids), ids, cu_seqlens=bounds(lengths))
    assert len(found) == 1 and (found[0].row, found[0].token) == (0, at) and str(found)


ARANGE = torch.arange(8)
LEFT = torch.tensor([[1] * 8, [0, 0, 0] + [1] * 5])
UNEVEN = torch.tensor([[0] + [1] * 7, [0] * 3 + [1] * 5])
PACKED = torch.tensor([0, 3, 8])
RIGHT = positions.packed(PACKED)
IMAGE = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0]])
VISION = {"axes": 3, "kinds": IMAGE, "rule": RULE, "image_grids": torch.tensor([[1, 4, 4]])}
SEEN = positions.from_kinds(IMAGE, RULE, image_grids=VISION["image_grids"]).positions
ZIGZAG = torch.tensor([0, 1, 2, 3, 12, 13, 14, 15])


def edited(values: torch.Tensor, start: int, by: int) -> torch.Tensor:
    return torch.cat([values[..., :start], values[..., start:] + by], -1)


def zeroed(values: torch.Tensor) -> torch.Tensor:
    """The height of every patch that of the first."""
    values = values.clone()
    values[1, ..., 2:6] = values[1, ..., 2:3]
    return values


WIDE = {**VISION, "kinds": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]]), "image_grids": torch.tensor([[1, 4, 6]])}
BY_ROW = positions.from_kinds(WIDE["kinds"], RULE, image_grids=WIDE["image_grids"]).positions
BY_COLUMN = BY_ROW[..., [0, 1, 2, 5, 3, 6, 4, 7]]  # two rows of three


MISTAKES = {
    "not restarted": (ARANGE, None, {"cu_seqlens": PACKED}, "not restarted", 0, 3),
    "not restarted, by the numbers in the mask": (
        ARANGE, torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]]), {}, "not restarted", 0, 3),
    "not restarted on three axes": (
        positions.text(ARANGE), None, {"axes": 3, "cu_seqlens": PACKED}, "not restarted", 0, 3),
    "arange over left padding": (ARANGE.expand(2, -1), LEFT, {}, "padding is counted", 1, 3),
    "arange over left padding, three axes": (
        positions.text(ARANGE.expand(2, -1)), LEFT, {"axes": 3}, "padding is counted", 1, 3),
    "not padded with their ids": (ARANGE[:6], None, {}, "not padded with their ids", 0, 6),
    "one plane of three": (RIGHT[None], None, {"axes": 3}, "planes missing", None, None),
    "three planes of four": (
        positions.text(RIGHT[None]), None, {"axes": 3, "text_plane": True}, "plane of the text missing", None, None),
    "three planes of one": (positions.text(RIGHT[None]), None, {}, "too many planes", None, None),
    "planes stacked behind the batch": (
        positions.text(LEFT.cumsum(-1) - 1).movedim(0, 1), LEFT, {"axes": 3}, "planes in another place", None, None),
    "a shard numbered locally": (ARANGE, None, {"places": ARANGE + 8}, "shard numbered locally", 0, 0),
    "a zigzag shard numbered locally": (ARANGE, None, {"places": ZIGZAG}, "shard numbered locally", 0, 4),
    "chunks of a shard each from 0": (
        torch.cat([ARANGE[:4], ARANGE[:4]]), None, {"places": ZIGZAG}, "shard numbered locally", 0, 4),
    "off by one after the prompt": (
        torch.tensor([[5], [3]]), None, {"cached": torch.tensor([4, 3])}, "off by one after the prompt", 0, 0),
    "off by one inside a row": (edited(ARANGE, 5, 1), None, {}, "off by one", 0, 5),
    "a token twice at one place": (edited(ARANGE, 5, -1), None, {}, "off by one", 0, 5),
    "from 1": (ARANGE + 1, None, {}, "off by one", 0, 0),
    "again from 0 beside a cache": (
        ARANGE[:2].expand(2, -1), torch.ones(2, 6), {}, "starts again beside the cache", 0, 0),
    "the padding of a cache counted": (torch.tensor([[8], [8]]), torch.cat([LEFT, LEFT[:, -1:]], 1), {},
        "padding is counted", 1, 0),
    "counted on through the batch": (torch.arange(16).view(2, 8), None, {}, "counted on through the batch", 1, 0),
    "rows sorted without their positions": (
        positions.from_mask(UNEVEN).flip(0), UNEVEN, {"cu_seqlens": torch.tensor([0, 7, 12])},
        "positions of another row", 0, 2),
    "inverted mask": (positions.from_mask(1 - LEFT), LEFT, {}, "constant", 0, 1),
    "clamped": (ARANGE.clamp(max=5), None, {}, "clamped", 0, 6),
    "all zero": (ARANGE * 0, None, {}, "constant", 0, 1),
    "doubled": (ARANGE * 2, None, {}, "stretched", 0, 1),
    "through bfloat16": (
        torch.arange(300).bfloat16().long(), None, {"cu_seqlens": torch.tensor([0, 300])}, "rounded", 0, 257),
    "in bfloat16": (ARANGE.bfloat16(), None, {}, "dtype", None, None),
    "restarted inside a document": (
        torch.cat([ARANGE, ARANGE]), None, {"cu_seqlens": torch.tensor([0, 16])}, "restarted inside a document", 0, 8),
    "bounds without the first token of each": (
        positions.packed(torch.tensor([0, 4, 8])), None, {"cu_seqlens": PACKED}, "boundary moved", 0, 3),
    "cu_seqlens without the last document": (RIGHT, None, {"cu_seqlens": torch.tensor([0, 3])}, "cu_seqlens", 0, 3),
    "cu_seqlens of more tokens than there are": (
        RIGHT, None, {"cu_seqlens": torch.tensor([0, 3, 12])}, "cu_seqlens", 0, 7),
    "cu_seqlens of lengths": (RIGHT, None, {"cu_seqlens": torch.tensor([3, 5])}, "cu_seqlens", None, None),
    "a document over the end of a row": (
        ARANGE.expand(2, -1), None, {"cu_seqlens": torch.tensor([0, 9, 16])}, "cu_seqlens", 1, 0),
    "mask and cu_seqlens of other lengths": (
        RIGHT, torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2]]), {"cu_seqlens": PACKED}, "mask and cu_seqlens differ", 0, 3),
    "a mask that was not padded": (ARANGE, LEFT[:1, :6], {}, "mask of another length", 0, 6),
    "images numbered as text": (positions.text(ARANGE[None]), None, VISION, "images numbered as text", 0, 3),
    "height and width swapped": (SEEN[[0, 2, 1]], None, VISION, "planes in another order", 0, 3),
    "height of an image zeroed": (zeroed(SEEN), None, VISION, "a plane stands still", 0, 4),  # vllm 29425
    "patches column by column": (BY_COLUMN, None, WIDE, "patches in another order", 0, 3),  # pytorch-image-models 2541
    "text that counts the patches of an image": (edited(SEEN, 6, 2), None, VISION, "jump", 0, 6),
    "a gap": (edited(ARANGE, 4, 3), None, {}, "jump", 0, 4),
    "a gap on three axes that agree": (
        positions.text(edited(ARANGE, 4, 3)), None, {"axes": 3}, "images numbered as text", 0, 4),
    "backwards": (ARANGE.flip(0), None, {"cu_seqlens": torch.tensor([0, 8])}, "wrong", 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_named_with_its_row_and_token(name):
    ids, mask, more, kind, row, token = MISTAKES[name]
    rows = 1 if ids.ndim == 1 or (ids.ndim == 2 and ids.shape[0] == more.get("axes")) else ids.shape[-2]
    rows = len(mask) if mask is not None else 1 if kind == "planes missing" else rows
    length = 8 if kind == "not padded with their ids" else ids.shape[-1]
    found = check(torch.ones(rows, length).long(), ids, mask, **more)
    assert [(one.cause, one.row, one.token) for one in found][:1] == [(kind, row, token)], str(found)
    assert set(found.causes) == {kind}
    with pytest.raises(ValueError, match="position_ids must be right for their batch") as error:
        found.raise_if_any()
    assert str(found) in str(error.value) and (token is None or f"token {token}: {kind}" in str(found))


def test_leading_padding_is_no_document_of_its_own():
    """What follows it is then no document that goes on from the one before."""
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    text, image = torch.tensor([[0, 0, 0, 1, 2, 3]]), torch.tensor([[5, 5, 6, 7, 8, 9]])
    planes = torch.stack([text, image, image, image])
    (finding,) = check(ids_like(mask), planes, mask, axes=3, text_plane=True)
    assert (finding.cause, finding.row, finding.token) == ("shifted", 0, 2)
    assert "position 6 where 0 is needed: the whole document by +6" in finding.reason


def test_padding_that_no_mask_hides():
    tokens = torch.tensor([[0, 0, 5, 6, 7], [5, 6, 7, 0, 0], [5, 6, 7, 8, 0]])
    (found,) = check(tokens, torch.arange(5), pad=0)
    assert (found.cause, found.row, found.token) == ("padding is not masked", 0, 0)
    both = check(tokens, torch.arange(5), torch.ones(3, 5), pad=0)
    assert [(one.row, one.token) for one in both] == [(0, 0), (1, 3)]


def test_many_findings_print_shortly_and_are_all_there():
    found = check(torch.ones(20, 3).long(), torch.arange(3) + 1)
    assert len(found) == 20 and str(found).count("\n") == 8 and "12 more" in str(found)
    data = found.to_dict()[3]
    assert (data["cause"], data["verdict"], data["reason"]) == ("off by one", "wrong", found[3].reason)
    assert (data["difference"]["row"], data["difference"]["token"]) == (3, 0)
    check(torch.ones(20, 3).long(), torch.arange(3)).raise_if_any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((ARANGE, None), "position_ids must be a tensor of numbers, got NoneType"),
        ((ARANGE.float(), ARANGE), "input_ids must hold integers"),
        ((ARANGE[:0], ARANGE[:0]), "input_ids must hold tokens"),
        ((ARANGE, ARANGE, torch.ones(1, 1, 8, 8)), "attention_mask must be a tensor with 2 dimensions"),
        ((ARANGE, ARANGE, -ARANGE[None]), "attention_mask must be .batch, seq"),
    ],
)
def test_what_is_no_batch_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        check(*arguments)


@pytest.mark.parametrize(
    "more, message",
    [
        ({"axes": 0}, "axes must be an integer"),
        ({"text_plane": True}, "text_plane needs axes"),
        ({"kinds": IMAGE}, "kinds and rule must be given together"),
        ({"kinds": IMAGE, "rule": RULE}, "must have 1 axes"),
        ({"cached": torch.zeros(2).long()}, "cached must hold one length for each of 1 rows"),
        ({"cached": [1, 2]}, "cached must hold one length for each of 1 rows, or be one for all, got 2"),
        ({"cached": -1}, "cached must be an integer of at least 0, got -1"),
        ({"cached": [True]}, "cached must be an integer of at least 0, got True"),
        ({"cached": "1"}, "cached must be an integer of at least 0, got '1'"),
        ({"cached": torch.tensor([0.5])}, "cached must hold integers, got torch.float32"),
        ({"pad": 0.5}, "pad must be an integer of at least -1, got 0.5"),
        ({"places": ARANGE[:3]}, "places must hold the column"),
    ],
)
def test_what_does_not_fit_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        check(ARANGE, ARANGE, **more)


TENSORS = "input_ids position_ids attention_mask cu_seqlens cached places kinds image_grids video_grids seconds"


@pytest.mark.parametrize("name", TENSORS.split())
def test_nothing_can_be_checked_on_the_meta_device(name):
    """Errors name the argument: there are no values to look at."""
    given = {"input_ids": torch.zeros(1, 4).long(), "position_ids": torch.arange(4)[None]}
    given[name] = torch.zeros(1, 4, device="meta").long()
    with pytest.raises(ValueError, match=f"{name} must hold values to be checked, and is on the meta device"):
        check(**given)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_ids_are_integers(kind):
    with pytest.raises(ValueError, match=f"input_ids must hold integers, got {kind}"):
        check(torch.zeros(1, 4, dtype=kind), torch.arange(4)[None])


@pytest.mark.parametrize("cached", [3, [3, 3], (3, 3), torch.tensor([3, 3])])
def test_a_number_of_cached_tokens_in_any_form(cached):
    ids, new = torch.zeros(2, 2).long(), torch.tensor([[3, 4], [3, 4]])
    assert check(ids, new, cached=cached) == ()
    assert check(ids, new - 3, cached=cached).causes == ("starts again beside the cache",)
    assert check(ids, new, torch.tensor([[1, 1], [0, 0]]), cached=cached) == ()


ALONE = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]])  # a row of padding between two others


def test_a_row_of_padding_alone_is_never_wrong():
    ids, at = torch.zeros(3, 4).long(), torch.arange(4)
    for filler in (at, at * 0 + 1, at - 9):
        given = torch.stack([at, filler, at])
        for bounds in (None, torch.tensor([0, 4, 8]), torch.tensor([0, 4, 8, 12])):
            assert check(ids, given, ALONE, cu_seqlens=bounds, pad=1) == ()
        assert check(ids, given.expand(3, 3, 4), ALONE, axes=3) == ()


def test_a_row_of_padding_alone_hides_no_mistake():
    """No document goes on behind it, and its row is nobody's: zeros are constant, not those of the row of padding."""
    ids, at = torch.zeros(3, 4).long(), torch.arange(4)
    found = check(ids, torch.stack([at, at, at + 4]), ALONE, cu_seqlens=torch.tensor([0, 8]))
    assert [(f.cause, f.row, f.token) for f in found] == [("cu_seqlens", 2, 0)]
    assert "document 0 goes over the end of row 0" in found[0].reason
    found = check(ids, torch.stack([at, at, at * 0]), ALONE)
    assert [(f.cause, f.row, f.token) for f in found] == [("constant", 2, 1)]
