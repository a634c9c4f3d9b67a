"""Sixty mistakes of collators and servers, each named at its place, and thirty right batches, none accused.

Positions are written down by plain arithmetic, not by the builders of phasor; those of images by the rule of the
Qwen2-VL paper, section 2.1: an image of h x w tokens takes ``max(h, w)`` positions.
"""

import pytest
import torch

from phasor.positions import Rule, check

RULE = Rule(merge=2)
T = torch.tensor


def arange(*sizes):
    return torch.cat([torch.arange(size) for size in sizes])


def rows(*lists):
    return torch.tensor(lists)


def image(start, h, w):
    """``[3, h * w]``: time, height and width of an image that starts at this position."""
    at = torch.arange(h * w)
    return torch.stack([at * 0, at // w, at % w]) + start


# three words, an image of 2 x 3 tokens, two words: the image takes 3 positions, 3 less than its tokens
KINDS = rows([0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0])
SEEN = torch.cat([arange(3).expand(3, -1), image(3, 2, 3), T([6, 7]).expand(3, -1)], 1)[:, None]
STILL = SEEN.clone()
STILL[1, :, 3:9] = 3
VISION = {"axes": 3, "kinds": KINDS, "rule": RULE, "image_grids": rows([1, 4, 6])}
LEFT = rows([0, 0, 0, 1, 1, 1, 1, 1], [1] * 8)
RIGHT_PAD = LEFT.flip(1)
PACKED = {"cu_seqlens": T([0, 3, 8])}
LONG = torch.arange(700)
ZIGZAG = T([0, 1, 2, 3, 12, 13, 14, 15])
ALONE = {"cu_seqlens": T([0, 700])}

# positions, what else the batch says, cause, row, token; the batch has the rows and the length of its positions
WRONG = {
    "an arange over two documents": (torch.arange(8), PACKED, "not restarted", 0, 3),
    "an arange over numbered documents": (
        torch.arange(8)[None], {"attention_mask": rows([1, 1, 1, 2, 2, 3, 3, 3])}, "not restarted", 0, 3),
    "three planes over two documents": (torch.arange(8).expand(3, 1, 8), {"axes": 3, **PACKED}, "not restarted", 0, 3),
    "an arange over left padding": (
        torch.arange(8).expand(2, 8), {"attention_mask": LEFT}, "padding is counted", 0, 3),
    "left padding counted beside a cache": (
        T([[8], [8]]), {"attention_mask": torch.cat([LEFT, LEFT[:, :1] * 0 + 1], 1)}, "padding is counted", 0, 0),
    "cumsum without the minus": (
        LEFT.cumsum(1) * LEFT, {"attention_mask": LEFT}, "off by one", 0, 3),
    "counted from 1": (torch.arange(1, 9), {}, "off by one", 0, 0),
    "counted from 2 where 0 is right": (torch.arange(2, 10), {}, "shifted", 0, 0),
    "counted from 0 where 2 is right": (torch.arange(8), {"first": 2, "cu_seqlens": T([0, 8])}, "shifted", 0, 0),
    "a step of two": (2 * torch.arange(8), {}, "stretched", 0, 1),
    "all at one place": (torch.zeros(8).long(), {}, "constant", 0, 1),
    "through bfloat16": (LONG.bfloat16().long(), ALONE, "rounded", 0, 257),
    "through float16": (torch.arange(4000).half().long(), {"cu_seqlens": T([0, 4000])}, "rounded", 0, 2049),
    "kept in bfloat16": (torch.arange(8).bfloat16(), {}, "dtype", None, None),
    "kept in uint8": (torch.arange(8, dtype=torch.uint8), {}, "dtype", None, None),
    "through uint8": (LONG.to(torch.uint8).long(), ALONE, "overflow", 0, 256),
    "through int8": (LONG.to(torch.int8).long(), ALONE, "overflow", 0, 128),
    "through int16": (
        torch.arange(40_000).to(torch.int16).long(), {"cu_seqlens": T([0, 40_000])}, "overflow", 0, 32_768),
    "a modulo of 512": (LONG % 512, ALONE, "wrapped", 0, 512),
    "a modulo of 512 while decoding": (T([[388]]), {"cached": 900}, "wrapped", 0, 0),
    "a modulo of 300": (LONG % 300, ALONE, "wrapped", 0, 300),
    "a modulo of 512 on three axes": (
        (LONG % 512).expand(3, 1, 700), {"axes": 3, **ALONE}, "wrapped", 0, 512),
    "a table of 512 rows, clamped": (LONG.clamp(max=511), ALONE, "clamped", 0, 512),
    "decoding from 0": (T([[0], [0]]), {"cached": [4, 9]}, "starts again beside the cache", 0, 0),
    "one too far while decoding": (T([[5], [10]]), {"cached": [4, 9]}, "off by one after the prompt", 0, 0),
    "the longest row for all while decoding": (T([[9], [9]]), {"cached": [4, 9]}, "positions of another row", 0, 0),
    "a shard that counts from 0": (torch.arange(8), {"places": torch.arange(8) + 8}, "shard numbered locally", 0, 0),
    "a zigzag shard that counts on": (torch.arange(8), {"places": ZIGZAG}, "shard numbered locally", 0, 4),
    "the batch counted on": (torch.arange(16).view(2, 8), {}, "counted on through the batch", 1, 0),
    "sorted without its rows": (
        rows([0, 0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 2, 3, 4]),
        {"attention_mask": rows([0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]), "cu_seqlens": T([0, 5, 12])},
        "positions of another row", 0, 3),
    "a document cut one token early": (arange(2, 6), PACKED, "boundary moved", 0, 2),
    "a document cut one token late": (arange(4, 4), PACKED, "boundary moved", 0, 3),
    "chunks that start again": (arange(8, 8), {"cu_seqlens": T([0, 16])}, "restarted inside a document", 0, 8),
    "a gap": (T([0, 1, 2, 3, 7, 8, 9, 10]), {}, "jump", 0, 4),
    "an image numbered as text": (torch.arange(11).expand(3, 1, 11), VISION, "images numbered as text", 0, 4),
    "height and width exchanged": (SEEN[[0, 2, 1]], VISION, "planes in another order", 0, 4),
    "text after an image counts its patches": (
        torch.cat([SEEN[..., :9], SEEN[..., 9:] + 3], -1), VISION, "jump", 0, 9),
    "decoding after an image without its offset": (
        T([[11]]).expand(3, 1, 1), {"axes": 3, "cached": 11, "offset": -3}, "shifted", 0, 0),
    "one plane where the model takes three": (torch.arange(8)[None], {"axes": 3}, "planes missing", None, None),
    "no plane of the text": (
        torch.arange(8).expand(3, 1, 8), {"axes": 3, "text_plane": True}, "plane of the text missing", None, None),
    "an arange over left padding on three axes": (
        torch.arange(8).expand(3, 2, 8), {"axes": 3, "attention_mask": LEFT}, "padding is counted", 0, 3),
    "not padded with their ids": (torch.arange(6), {"length": 8}, "not padded with their ids", 0, 6),
    "three planes where the model takes one": (torch.arange(8).expand(3, 1, 8), {}, "too many planes", None, None),
    "planes stacked behind the batch": (
        torch.arange(8).expand(2, 3, 8), {"axes": 3, "batch": 2}, "planes in another place", None, None),
    "chunks of a shard that count from 0": (arange(4, 4), {"places": ZIGZAG}, "shard numbered locally", 0, 4),
    "one too far inside a row": (T([0, 1, 2, 3, 4, 6, 7, 8]), {}, "off by one", 0, 5),
    "a token twice at one place": (T([0, 1, 2, 3, 4, 4, 5, 6]), {}, "off by one", 0, 5),
    "again from 0 beside a cache, by the mask of all": (
        torch.arange(2).expand(2, 2), {"attention_mask": torch.ones(2, 6)}, "starts again beside the cache", 0, 0),
    "an inverted mask": (
        rows([0, 1, 2, 2, 2, 2, 2, 2], [0] * 8), {"attention_mask": LEFT[:1].expand(2, 8)}, "constant", 0, 3),
    "bounds without the last document": (arange(3, 5), {"cu_seqlens": T([0, 3])}, "cu_seqlens", 0, 3),
    "bounds of more tokens than there are": (arange(3, 5), {"cu_seqlens": T([0, 3, 12])}, "cu_seqlens", 0, 7),
    "bounds that are lengths": (arange(3, 5), {"cu_seqlens": T([3, 5])}, "cu_seqlens", None, None),
    "a document over the end of a row": (
        torch.arange(8).expand(2, 8), {"cu_seqlens": T([0, 9, 16])}, "cu_seqlens", 1, 0),
    "mask and bounds of other lengths": (
        arange(3, 5)[None], {"attention_mask": rows([1, 1, 1, 1, 2, 2, 2, 2]), **PACKED}, "mask and cu_seqlens differ",
        0, 3),
    "a mask that was not padded": (
        torch.arange(8)[None], {"attention_mask": LEFT[:1, :6]}, "mask of another length", 0, 6),
    "height of an image zeroed": (STILL, VISION, "a plane stands still", 0, 6),  # vllm 29425
    "patches column by column": (  # pytorch-image-models 2541
        SEEN[..., [0, 1, 2, 3, 6, 4, 7, 5, 8, 9, 10]], VISION, "patches in another order", 0, 4),
    "a gap on three axes that agree": (
        T([0, 1, 2, 3, 7, 8, 9, 10]).expand(3, 1, 8), {"axes": 3}, "images numbered as text", 0, 4),
    "all planes of one image turned round": (SEEN.flip(-1), VISION, "wrong", 0, 0),
    "backwards": (torch.arange(8).flip(0), {"cu_seqlens": T([0, 8])}, "wrong", 0, 0),
}  # fmt: skip

RIGHT = {
    "one row": (torch.arange(8), {}),
    "one row for a batch": (torch.arange(8)[None], {"batch": 3}),
    "a plane in front of a batch": (torch.arange(8).expand(1, 2, 8), {}),
    "int32": (torch.arange(8).int(), {}),
    "right padding, filled with 0": ((RIGHT_PAD.cumsum(1) - 1) * RIGHT_PAD, {"attention_mask": RIGHT_PAD}),
    "right padding, counted on": (torch.arange(8).expand(2, 8), {"attention_mask": RIGHT_PAD}),
    "left padding, filled with 1": (
        (LEFT.cumsum(1) - 1).masked_fill(LEFT == 0, 1), {"attention_mask": LEFT}),
    "left padding, a mask of bfloat16": ((LEFT.cumsum(1) - 1).clamp(0), {"attention_mask": LEFT.bfloat16()}),
    "left padding, a mask of bools": ((LEFT.cumsum(1) - 1).clamp(0), {"attention_mask": LEFT.bool()}),
    "one mask for a batch": (torch.arange(8).expand(2, 8), {"attention_mask": torch.ones(1, 8)}),
    "packed, nothing said": (arange(3, 5), {}),
    "packed by bounds": (arange(3, 5), PACKED),
    "packed with a document of nothing": (arange(3, 5), {"cu_seqlens": T([0, 3, 3, 8])}),
    "packed by numbers in the mask": (arange(3, 5)[None], {"attention_mask": rows([1, 1, 1, 2, 2, 2, 2, 2])}),
    "packed, the tail is padding": (arange(3, 3, 2)[None], {"attention_mask": rows([1, 1, 1, 2, 2, 2, 0, 0])}),
    "documents of 512 tokens, by bounds": (arange(512, 512), {"cu_seqlens": T([0, 512, 1024])}),
    "a long text": (torch.arange(70_000), {}),
    "RoBERTa counts from 2": (torch.arange(2, 10), {"first": 2}),
    "decoding": (T([[4], [9]]), {"cached": [4, 9]}),
    "decoding, beams": (T([[4], [4], [9], [9]]), {"cached": T([[4], [4], [9], [9]])}),
    "several new tokens, by the mask of all": (
        T([[5, 6], [8, 9]]), {"attention_mask": torch.cat([LEFT, torch.ones(2, 2).long()], 1)}),
    "the second chunk of a prompt": (torch.arange(512, 1024), {"cached": 512}),
    "a shard": (torch.arange(8) + 8, {"places": torch.arange(8) + 8}),
    "a zigzag shard": (ZIGZAG, {"places": ZIGZAG}),
    "text on three axes": (torch.arange(8).expand(3, 1, 8), {"axes": 3}),
    "an image": (SEEN, VISION),
    "an image, and nobody knows of it": (SEEN, {"axes": 3}),
    "decoding after an image": (
        T([[8], [5]]).expand(3, 2, 1), {"axes": 3, "cached": [11, 5], "offset": T([[-3], [0]])}),
    "decoding after an image, the text has a plane": (
        torch.cat([T([[[11]]]), T([[8]]).expand(3, 1, 1)]),
        {"axes": 3, "text_plane": True, "cached": 11, "offset": -3}),
    "decoding after an image, by the mask of all": (
        T([[8, 9]]).expand(3, 1, 2), {"axes": 3, "attention_mask": torch.ones(1, 13), "offset": [-3]}),
}  # fmt: skip


def found_in(positions, more):
    more = dict(more)
    length, axes = more.pop("length", positions.shape[-1]), more.get("axes", 1) + more.get("text_plane", False)
    several = positions.ndim > 1 and positions.shape[0] != axes
    batch = more.pop("batch", positions.shape[-2] if positions.ndim == 3 or several else 1)
    return check(torch.full((batch, length), 7), positions, **more)


def test_there_are_sixty_and_thirty():
    assert (len(WRONG), len(RIGHT)) == (60, 30)


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_at_its_place(name):
    positions, more, cause, row, token = WRONG[name]
    found = found_in(positions, more)
    assert found and (found[0].cause, found[0].row, found[0].token) == (cause, row, token), str(found)
    assert found.wrong == found and set(found.causes) == {cause}, str(found)
    with pytest.raises(ValueError, match="position_ids must be right for their batch") as error:
        found.raise_if_any()
    assert str(found) in str(error.value) and (token is None or f"token {token}: {cause}" in str(found))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_batch_is_not_accused(name):
    found = found_in(*RIGHT[name])
    assert found == (), str(found)


@pytest.mark.parametrize("rows", [128, 256, 512, 32_768])
def test_equal_documents_that_nothing_states_are_not_shown(rows):
    """Documents of so many tokens, or a modulo: both give these positions, and bounds decide."""
    at = torch.arange(2 * rows + 5)
    (finding,) = found = check(at * 0, at % rows)
    assert (finding.verdict, finding.cause, finding.token) == ("not shown", "wrapped or packed", rows)
    assert found.wrong == () and "not shown: wrapped or packed" in str(found)
    found.raise_if_any()
    assert check(at * 0, at % rows, cu_seqlens=torch.tensor([0, rows, 2 * rows, 2 * rows + 5])) == ()
    assert check(at * 0, at % rows, cu_seqlens=torch.tensor([0, len(at)])).wrong
    longer = torch.cat([torch.arange(rows), torch.arange(rows + 1)])
    assert check(longer * 0, longer) == ()  # which no modulo gives


def test_an_unknown_offset_is_not_shown():
    """Lower than text would stand: images in the cache may explain it. Higher, or at 0, nothing does."""
    ids = torch.zeros(1, 2).long()
    at = torch.tensor([[8, 9]]).expand(3, 1, 2)
    (finding,) = check(ids, at, axes=3, cached=11)
    assert (finding.verdict, finding.cause) == ("not shown", "offset of the cache") and "3 lower" in finding.reason
    assert check(ids, at, axes=3, cached=11, offset=-3) == ()
    assert check(ids, at + 4, axes=3, cached=11).wrong.causes == ("off by one after the prompt",)
    assert check(ids, at - 8, axes=3, cached=11).wrong.causes == ("starts again beside the cache",)
    with pytest.raises(ValueError, match="offset belongs to new tokens beside a cache"):
        check(ids, at, axes=3, offset=-3)
