"""Keys rotated into a KV cache: every layout, against a loop that writes one head at a time; and what is refused."""

from functools import partial

import pytest
import torch

from calls import built
from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qk
from phasor.caches import apply_rotary_to_cache, cache_slots, page_slots
from refused import refused

from .test_cache_forms import bytes_of

# Rows [batch, tokens, heads, channels] of each order of axes.
ROWS = {
    "bhsd": lambda x: x.transpose(-3, -2),
    "bshd": lambda x: x,
    "sbhd": lambda x: x.transpose(0, 1),
    "thd": lambda x: x,
}


def looped(cache, rows, slots, kv_layout):
    """What vLLM's `reshape_and_cache_flash` does, one token at a time, as its csrc/cache_kernels.cu says (002a0ba):
    block ``slot / block_size``, place ``slot % block_size``, a slot below 0 is padding. HND is FlashInfer's other order
    (flashinfer/page.py, 0478a48).
    """
    for row, slot in zip(rows.reshape(-1, *rows.shape[-2:]), slots.flatten().tolist(), strict=True):
        if slot < 0:
            continue
        for head in range(row.shape[0]):
            if kv_layout == "NHD":
                block_size = cache.shape[1]
                cache[slot // block_size, slot % block_size, head] = row[head]
            else:
                block_size = cache.shape[2]
                cache[slot // block_size, head, slot % block_size] = row[head]


@pytest.mark.parametrize("part", range(3))
def test_the_plain_expression_is_the_loop_in_every_layout(part):
    """Of all kernels by their law. Norms are those of their own call; float8 is rounded once, from float32."""
    for number in range(40 * part, 40 * part + 40):
        call = built(f"loop {number}", "cache", bad=False)
        q, k, v, rotation, *caches, slots = call.args
        given = {name: call.kwargs.pop(name) for name in ("tensor_format", "kv_layout")} | {"kernel": "reference"}
        scales = [call.kwargs.pop(name, None) for name in ("k_scale", "v_scale")]
        norm = {name: call.kwargs[name] for name in ("eps", "unit_offset", "rounding") if name in call.kwargs}
        weights = [call.kwargs.get(name) for name in ("q_weight", "k_weight")]
        float8 = scales != [None, None]
        if (float8 and (norm or torch.float64 in (q.dtype, rotation.cos.dtype))) or (
            rotation.per_head and q.shape != k.shape
        ):
            continue  # float8 after a norm has a test of its own
        about = {"tensor_format": given["tensor_format"], "kernel": "reference"}
        turned = (
            partial(apply_qk_norm_rotary, q_weight=weights[0], k_weight=weights[1], **norm) if norm else apply_rotary_qk
        )
        y, z = turned(q, k, rotation, **about)
        expected = [c.clone() for c in caches]
        for i, (x, scale) in enumerate(((z, scales[0]), (v, scales[1]))):
            rows = ROWS[given["tensor_format"]](x)
            if scale is not None:
                rows = ROWS[given["tensor_format"]](apply_rotary(k.float(), rotation, **about) if i == 0 else v.float())
                each = torch.as_tensor(scale).reshape(-1, 1)
                rows, expected[i] = bytes_of(rows, each), expected[i].view(torch.uint8)
            looped(expected[i], rows, slots, given["kv_layout"])
        more = {name: x for name, x in (("k_scale", scales[0]), ("v_scale", scales[1])) if x is not None}
        more |= norm | ({"q_weight": weights[0], "k_weight": weights[1]} if norm else {})
        assert torch.equal(apply_rotary_to_cache(q, k, v, rotation, *caches, slots, **given, **more), y)
        caches = [c.view(e.dtype) for c, e in zip(caches, expected, strict=True)]
        assert all(torch.equal(a, b) for a, b in zip(caches, expected, strict=True)), number


def test_slots_of_a_block_table_and_of_pages_agree():
    """One layout of two sequences in blocks of 4, as vLLM and as FlashInfer write it down."""
    positions = torch.tensor([[0, 3, 4, 9], [2, 5, 6, 7]])
    table = torch.tensor([[6, 1, 3], [0, 5, 2]])
    slots = cache_slots(positions, 4, table)
    assert slots.tolist() == [[24, 27, 4, 13], [2, 21, 22, 23]]
    rows = torch.arange(2).repeat_interleave(4)
    pages = page_slots(rows, positions.flatten(), table.flatten(), torch.tensor([0, 3, 6]), 4)
    assert torch.equal(pages, slots.flatten())


def test_the_plain_expression_reads_nothing_back():
    """On the meta device there is nothing to read: whatever looked at a value would raise."""
    rotation = Rotation(
        cos=torch.ones(2, 8, device="meta"), sin=torch.ones(2, 8, device="meta"), layout=RotarySpec(head_dim=16).layout
    )
    q, cache = torch.randn(1, 4, 2, 16, device="meta"), torch.zeros(3, 8, 4, 16, device="meta")
    slots = torch.zeros(1, 2, dtype=torch.int64, device="meta")
    assert apply_rotary_to_cache(q, q, q, rotation, cache, cache.clone(), slots).shape == q.shape


ROTATION = Rotation.at(RotarySpec(head_dim=16), torch.arange(2))
Q, K, CACHE, SLOTS = (
    torch.randn(1, 4, 2, 16),
    torch.randn(1, 2, 2, 16),
    torch.zeros(3, 8, 2, 16),
    torch.tensor([[1, 9]]),
)


def write(**changes):
    """Whatever is refused, nothing is written."""
    given = {
        "q": Q, "k": K, "v": K.clone(), "rotation": ROTATION, "k_cache": CACHE, "v_cache": CACHE.clone(),
        "slot_mapping": SLOTS,
    }  # fmt: skip
    try:
        apply_rotary_to_cache(**given | changes)
    finally:
        assert not CACHE.any()


MISTAKES = """
slot_mapping=torch.tensor([[1, 24]]) => -1 (skip), or from 0 to 23 (3 blocks of 8), got 24
slot_mapping=torch.tensor([[-2, 1]]) => -1 (skip), or from 0 to 23 (3 blocks of 8), got -2
slot_mapping=torch.tensor([[5, 5]]) => every token a slot of its own, got 5 twice
slot_mapping=torch.tensor([1, 9]) => slot_mapping must be integers (1, 2), one for every token of k, got
slot_mapping=SLOTS.float() => slot_mapping must be integers (1, 2) … got torch.float32
slot_mapping=[[1, 9]] => slot_mapping must be integers (1, 2) … got list
slot_mapping=SLOTS.to('meta') => slot_mapping and k must be on the same device, got meta and cpu
k_cache=CACHE.bfloat16() => k_cache must be torch.float32 or … on cpu, as what is written, got torch.bfloat16
v_cache=CACHE.to('meta') => v_cache must be torch.float32 or … on cpu, as what is written, got torch.float32 on meta
k_cache=CACHE[..., :8] => k_cache must be [blocks, block_size, kv_heads, 16] with 2 heads
k_cache=CACHE.transpose(1, 2) => got shape (3, 2, 8, 16); did you mean kv_layout='HND'?
v_cache=CACHE[:2].clone() => must have the same blocks and block_size, got (3, 8) and (2, 8)
k_cache=CACHE.clone().requires_grad_() => caches must need no gradient
q=Q.clone().requires_grad_() => caches must need no gradient
v_cache=CACHE => k_cache and v_cache must not overlap
k_cache=torch.zeros(1, 8, 2, 16).expand(3, 8, 2, 16) => k_cache must not overlap itself, got strides
v=K[..., :1, :] => v must be torch.float32
v=None => v must be a torch tensor, got builtins.NoneType
k=K.bfloat16() => q and k must have the same dtype
kv_layout='NDH' => kv_layout must be 'NHD' or 'HND', got 'NDH'
rotation=RotarySpec(head_dim=16) => rotation must be a Rotation, got RotarySpec
"""
test_mistakes = refused(MISTAKES, globals(), "write({})")
test_mistakes_by_name = refused(MISTAKES, globals(), "write({}, kernel='reference')")


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_a_cache_must_not_be_what_is_read(kernel):
    whole = torch.zeros(3, 8, 2, 16)
    k = whole[:1, :2].transpose(1, 2)
    with pytest.raises(ValueError, match="k_cache must not overlap k"):
        apply_rotary_to_cache(Q, k, K, ROTATION, whole, CACHE.clone(), SLOTS, kernel=kernel)
    q = whole.view(-1)[:256].view(1, 4, 4, 16)[:, :, :2]
    with pytest.raises(ValueError, match="k_cache must not overlap out"):
        apply_rotary_to_cache(Q, K, K, ROTATION, whole, CACHE.clone(), SLOTS, kernel=kernel, out=q)
    with torch.inference_mode():
        made = torch.zeros(3, 8, 2, 16)
    with pytest.raises(ValueError, match=r"v_cache was made in torch\.inference_mode"):
        apply_rotary_to_cache(Q, K, K, ROTATION, CACHE.clone(), made, SLOTS, kernel=kernel)


def flat(*lists):
    return [torch.tensor(values, dtype=torch.int64) for values in lists]


def test_slots_of_padding_alone_where_nothing_is_allocated():
    assert cache_slots(torch.tensor([[3, 4], [0, -1]]), 8).tolist() == [[3, 4], [8, -1]]  # a block for each sequence
    assert cache_slots(torch.tensor([[-1]]), 4, torch.zeros(1, 0, dtype=torch.int64)).tolist() == [[-1]]
    assert page_slots(*flat([0], [-1], [], [0, 0]), 16).tolist() == [-1]


SLOT_MISTAKES = """
cache_slots(torch.tensor([[8]]), 8) => positions must be below 8 (1 blocks of 8 per sequence), got 8
cache_slots(torch.tensor([1]), 8) => positions must be integers with 2 dimensions, got torch.int64
cache_slots(torch.tensor([[1]]), 0) => block_size must be an integer of at least 1, got 0
cache_slots(torch.tensor([[1]]), 8, torch.zeros(2, 1).long()) => a row for each of 1 sequences
cache_slots(torch.tensor([[3]]), 4, torch.tensor([[-1]])) => block_table must have a block for every
page_slots(*flat([0, 1, 1], [5, 16, 31], [4, 2], [0, 1, 2]), 16) => on a page of their sequence (kv_indptr), got 31,
    which is beyond
page_slots(*flat([0], [15], [-1], [0, 1]), 16) => kv_indices must have a block for every position
page_slots(*flat([0], [40], [4, 2], [0, 3]), 16) => kv_indptr must go from 0 to the number of pages in kv_indices, 2,
    got 0 to 3
page_slots(*flat([0], [0], [4, 2], [-1, 2]), 16) => in kv_indices, 2, got -1 to 2
page_slots(torch.zeros(1, dtype=torch.int64, device='meta'), *flat([0], [4], [0, 1]), 16) => must be on the same device,
    got batch_indices on meta, positions on cpu, kv_indices on cpu
cache_slots(torch.zeros(1, 1, dtype=torch.int64, device='meta'), 4, torch.tensor([[1]])) => positions and block_table
    must be on the same device, got positions on meta, block_table on cpu
page_slots(*flat([2], [0], [4, 2, 9], [0, 2, 3]), 16) => batch_indices must be sequences 0 to 1
page_slots(torch.tensor([0]), torch.tensor([4]), torch.tensor([7]), torch.tensor([0, 1]), 4) => positions must be on a
    page of their sequence
page_slots(torch.tensor([0, 0]), torch.tensor([4]), torch.tensor([7]), torch.tensor([0, 1]), 4) => must have one entry
    per token
"""
test_mistakes_about_slots = refused(SLOT_MISTAKES, globals())


def test_a_result_must_not_lie_where_keys_are_still_read():
    """A cache is filled tile by tile: rotated queries over keys of later tokens would be rotated again."""
    q, caches = torch.randn(1, 2, 40, 16), [torch.zeros(1, 2, 40, 16) for _ in range(2)]
    rotation, slots = Rotation.at(RotarySpec(head_dim=16), torch.arange(40)), torch.arange(40)[None]
    for name in "kv":
        given = {"k": q.clone(), "v": q.clone()}
        with pytest.raises(ValueError, match=f"out must not overlap {name}"):
            apply_rotary_to_cache(q, *given.values(), rotation, *caches, slots, kv_layout="HND", out=given[name])
