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


TENSORS = "input_ids position_ids attention_mask cu_seqlens cached places kinds image_grids video_grids seconds"


@pytest.mark.parametrize("name", TENSORS.split())
def test_nothing_can_be_checked_on_the_meta_device(name):
    """Errors name the argument: there are no values to look at."""
    given = {"input_ids": torch.zeros(1, 4).long(), "position_ids": torch.arange(4)[None]}
    given[name] = torch.zeros(1, 4, device="meta").long()
    with pytest.raises(ValueError, match=f"{name} must hold values, got a tensor on the meta device"):
        check(**given)


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
