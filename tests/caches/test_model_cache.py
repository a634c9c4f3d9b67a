"""A cache of ledgers in models of transformers: what stays has the bits of their own cache, what moves is right."""

import pytest
import torch
from torch.nn import functional as F

transformers = pytest.importorskip("transformers")

from transformers.cache_utils import Cache, DynamicLayer  # noqa: E402

import phasor  # noqa: E402
from cache_argument import given  # noqa: E402
from integrations.models import FAMILIES, causal, tokens  # noqa: E402
from phasor.caches import LedgerCache  # noqa: E402
from phasor.caches.tokens import check_distinct_after  # noqa: E402
from refused import refused  # noqa: E402
from stories import converted, stories, token_by_token, told  # noqa: E402

NOPE = ("SmolLM3Config", {"no_rope_layers": [1, 0], "rope_theta": 10_000.0})
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 64}


def model_of(family: str, **changes):
    if family == "smollm3":
        FAMILIES[family] = NOPE
        try:
            return causal(family, **changes)
        finally:
            del FAMILIES[family]
    if family == "yarn":
        return causal("llama", rope_parameters=YARN, **changes)
    return causal(family, **changes)


@torch.no_grad()
@pytest.mark.parametrize("family", [*FAMILIES, "smollm3", "yarn"])
def test_a_growing_cache_has_the_bits_of_transformers_own(family):
    """Prompt, then token by token; beams; a row repeated, chosen, cropped."""
    model, ids = model_of(family), tokens(2, 24)
    ours, theirs = (token_by_token(model, ids, cache) for cache in (LedgerCache(model), None))
    assert torch.equal(ours, theirs)
    how = {"max_new_tokens": 8, "do_sample": False, "num_beams": 2}
    beams = model.generate(ids, **given(LedgerCache(model)), **how)
    assert torch.equal(beams, model.generate(ids, **how))
    cache, own = LedgerCache(model), transformers.DynamicCache(config=model.config)
    for one in (cache, own):
        model(ids, **given(one))
        one.batch_repeat_interleave(2)
        one.batch_select_indices(torch.tensor([3, 0]))
        one.crop(-4)
    assert cache.get_seq_length() == own.get_seq_length() == 20
    again = [model(ids[:, :3], **given(one)).logits for one in (cache, own)]
    assert torch.equal(*again)


class Brute(DynamicLayer):
    """Sinks by transformers' own code: every key un-rotated and rotated again, for every token, in float64."""

    def __init__(self, rotary, rotate, sinks, window):
        super().__init__()
        self.rotary, self.rotate, self.sinks, self.window, self.seen = rotary, rotate, sinks, window, 0

    def at(self, k, positions):
        cos, sin = self.rotary(k, positions[None])
        return self.rotate(k, k, cos, sin)[1]

    def update(self, k, v, *args, **kwargs):
        at = torch.arange(self.seen, self.seen + k.shape[-2])
        raw = self.at(k, -at) / self.rotary.attention_scaling**2
        raw, v = (raw, v) if self.seen == 0 else (torch.cat((self.raw, raw), -2), torch.cat((self.values, v), -2))
        self.seen += len(at)
        last = torch.arange(self.seen - raw.shape[-2], self.seen)
        self.is_initialized = True
        keys, values = self.at(raw, last), v
        stays = self.sinks + self.window - 1
        if raw.shape[-2] > stays:
            raw, v = (torch.cat((t[:, :, : self.sinks], t[:, :, 1 - self.window :]), -2) for t in (raw, v))
        self.raw, self.values, self.keys = raw, v, raw
        return keys, values

    def get_seq_length(self):
        return self.seen

    def get_mask_sizes(self, query_length):
        held = self.raw.shape[-2] if self.seen else 0
        return held + query_length, self.seen - held


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "yarn"])
def test_sinks_stand_where_they_should(family):
    """Against the brute force; 90 tokens through 4 sinks and a window of 28, in parts of 1 and of 5."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, ids = model_of(family).double(), tokens(2, 90)
    brute = Cache(layers=[Brute(model.model.rotary_emb, apply_rotary_pos_emb, 4, 28) for _ in range(2)])
    cache = LedgerCache(model, sinks=4, window=28, unpadded=True)
    for part in ids.split([20, *[1] * 30, *[5] * 8], dim=1):
        ours, theirs = (model(part, **given(c)).logits for c in (cache, brute))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert len(cache.layers[0].ledger) == 31 and cache.get_seq_length() == 90


@torch.no_grad()
@pytest.mark.parametrize(
    "family, patched",
    [("gemma3", False), ("yarn", False), ("deepseek_v3", True)]
    + [pytest.param(f, False, marks=pytest.mark.slow) for f in ("llama", "qwen2", "deepseek_v3", "smollm3")]
    + [pytest.param("llama", True, marks=pytest.mark.slow)],
)
def test_generation_beyond_the_trained_length(family, patched):
    """As long as the window has room the tokens of the whole cache, then on; distances stay inside the window."""
    model, ids = model_of(family, max_position_embeddings=32), tokens(1, 12)
    if patched:
        phasor.patch(model)
    how = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    cache = LedgerCache(model, sinks=4, window=28)
    long = model.generate(ids, **given(cache), max_new_tokens=67, **how)
    assert long.shape == (1, 79) and cache.get_seq_length() == 78
    assert torch.equal(long[:, :32], model.generate(ids, max_new_tokens=20, **how))
    layer = cache.layers[-1]
    held = layer.ledger.positions.flatten()
    assert len(layer.ledger) == 31 and held.tolist() == list(range(78 - 31, 78))


@torch.no_grad()
def test_tokens_are_evicted_a_block_at_a_time():
    """Two sinks and a window of 8 hold 9 tokens beside the one that asks; then three go at once."""
    model, held = model_of("llama"), []
    cache = LedgerCache(model, sinks=2, window=8, block=3)
    for token in tokens(1, 20).unbind(1):
        model(token[None], **given(cache))
        held.append(len(cache.layers[0].ledger))
    assert held == [*range(1, 10), *([7, 8, 9] * 4)[:11]]


@pytest.fixture(scope="module")
def folder(shared_data, tmp_path_factory):
    return converted(shared_data, tmp_path_factory.mktemp("stories") / "hf")


@torch.no_grad()
@pytest.mark.parametrize("patched", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_chunk_reused_at_another_offset(patched, folder):
    """The keys are those of the chunk computed there; a trained model goes on nearly as after a full prefill.

    KL of 100 next tokens from those after a full prefill: below 1e-3 for chunks that moved, above 0.05 for those that
    did not.
    """
    model, ids = stories(folder), told(folder, tokens=400)
    if patched:
        phasor.patch(model)
    before, chunk, after = ids.split([100, 200, 100], dim=1)
    caches = [LedgerCache(model, unpadded=True) for _ in range(2)]
    for part, cache in zip((before, chunk), caches, strict=True):
        model(part, **given(cache))
    joined = caches[0].fork()
    joined.reuse(caches[1])
    there = LedgerCache(model)
    model(chunk, **given(there), position_ids=torch.arange(100, 300)[None])
    for mine, own in zip(joined.layers, there.layers, strict=True):
        torch.testing.assert_close(mine.keys[:, :, 100:], own.keys, rtol=0, atol=2e-4)
        torch.testing.assert_close(mine.values[:, :, 100:], own.values, rtol=0, atol=2e-4)
    full = model(ids).logits[:, 300:].log_softmax(-1)
    stale = transformers.DynamicCache(
        [
            (torch.cat((a.keys, b.keys), -2), torch.cat((a.values, b.values), -2))
            for a, b in zip(caches[0].layers, caches[1].layers, strict=True)
        ]
    )
    kl = []
    for cache in (joined, stale):
        found = model(after, **given(cache)).logits.log_softmax(-1)
        kl.append(float(F.kl_div(found, full, log_target=True, reduction="none").sum(-1).mean()))
    assert kl[0] <= 1e-3 and kl[1] > 0.05


@torch.no_grad()
def test_a_system_prompt_and_documents_in_another_order():
    """Chunks of one cache, cut and put together otherwise: each key as if computed where it stands now."""
    model, ids = model_of("gemma3").double(), tokens(1, 30)
    whole = LedgerCache(model)
    model(ids, **given(whole))
    other = whole.cut(0, 10)
    other.reuse(whole.cut(20, 30))
    other.reuse(whole.cut(10, 20))
    assert other.get_seq_length() == 30 and whole.get_seq_length() == 30
    order = [*range(10), *range(20, 30), *range(10, 20)]
    layer = other.layers[0]
    spec = layer.spec
    raw = phasor.caches.unrotate(whole.layers[0].keys, torch.arange(30), spec)
    expected = phasor.apply_rotary(raw[:, :, order], phasor.Rotation.at(spec, torch.arange(30), dtype=torch.float64))
    torch.testing.assert_close(layer.keys, expected, rtol=0, atol=1e-6)
    assert torch.equal(layer.values, whole.layers[0].values[:, :, order])


@torch.no_grad()
def test_a_piece_of_a_cache_evicts_as_the_whole_does():
    """All tokens so far, cut out: from then on the two are one cache, beyond sinks and window too."""
    model, ids = model_of("llama"), tokens(1, 24)
    whole = LedgerCache(model, sinks=2, window=6)
    model(ids[:, :5], **given(whole))
    piece = whole.cut(0, 5)
    for n in range(5, 24):
        one, other = (model(ids[:, n : n + 1], **given(cache)).logits for cache in (whole, piece))
        assert torch.equal(one, other), n


@torch.no_grad()
def test_a_regime_that_must_change(folder):
    """Keys of the first layer do not depend on others: those of a longer regime, as if computed in it."""
    ids = told(folder, rows=1, tokens=60)
    keys = {}
    for n in (200, 400):
        model = stories(folder, "dynamic")
        phasor.patch(model, seq_len=n)
        cache = LedgerCache(model, seq_len=n)
        model(ids, **given(cache))
        keys[n] = cache
    off = (keys[200].layers[0].keys - keys[400].layers[0].keys).abs().max()
    keys[200].change_length(400)
    assert off > 0.1
    torch.testing.assert_close(keys[200].layers[0].keys, keys[400].layers[0].keys, rtol=0, atol=2e-5)


def test_what_is_refused_changes_nothing():
    model, ids = model_of("llama"), tokens(2, 20)
    cache = LedgerCache(model, most=24, unpadded=True)
    with torch.no_grad():
        model(ids, **given(cache))
        with pytest.raises(ValueError, match="k must leave at most most=24 tokens, got 5 for 20; evict some"):
            model(ids[:, :5], **given(cache))
        assert cache.get_seq_length() == 20 == len(cache.layers[0].ledger)
        other = LedgerCache(model)
        model(ids[:, :5], **given(other))
        with pytest.raises(ValueError, match="k must leave at most most=24 tokens"):
            cache.reuse(other)
        assert {len(layer.ledger) for layer in cache.layers} == {20}
        with pytest.raises(
            ValueError, match="start and stop must lie in the tokens that are held, 0 to 20, got 3 and 21"
        ):
            cache.cut(3, 21)
        with pytest.raises(ValueError, match="unpadded must be True for 2 rows with sinks"):
            model(ids, **given(LedgerCache(model, sinks=2, window=8)))
        with pytest.raises(ValueError, match=r"k must be of the .batch, heads, dtype, device. of the ledger"):
            model.bfloat16()(ids[:, :2], **given(cache))


@torch.no_grad()
def test_rows_whose_positions_are_not_known():
    """What depends on each position is refused for rows that may be padded, and right for those that are not."""
    model, ids = causal("llama", rope_parameters=DYNAMIC, max_position_embeddings=16), tokens(2, 12)
    cache, other = (LedgerCache(model, seq_len=12, unpadded=sure) for sure in (False, True))
    for one in (cache, other):
        model(ids, **given(one))
    before = cache.layers[0].keys.clone()
    for call, which in ((lambda: cache.reuse(other), "reuse a chunk"), (lambda: cache.change_length(32), "regime")):
        with pytest.raises(ValueError, match=f"unpadded must be True for 2 rows .*{which}"):
            call()
    assert torch.equal(cache.layers[0].keys, before) and cache.get_seq_length() == 12
    other.change_length(32)
    raw = phasor.caches.unrotate(before, torch.arange(12), cache.layers[0].spec)
    expected = phasor.apply_rotary(raw, phasor.Rotation.at(other.layers[0].spec, torch.arange(12)))
    torch.testing.assert_close(other.layers[0].keys, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_all_layers_or_none():
    """Local layers hold fewer tokens: what one of them refuses leaves the others alone."""
    model = model_of("gemma3", sliding_window=8)
    cache = LedgerCache(model)
    model(tokens(1, 20), **given(cache))
    held = [len(layer.ledger) for layer in cache.layers]
    with pytest.raises(ValueError, match="length must be an integer of at least 0, got -3"):
        cache.crop(-10)
    assert [len(layer.ledger) for layer in cache.layers] == held == [7, 20] or held == [20, 7]
    assert {layer.seen for layer in cache.layers} == {20}


def test_positions_of_several_axes_come_again_only_on_all_of_them():
    """The first axis of what is held says whether new tokens lie beyond: the others may be lower."""
    held = torch.tensor([[[4, 5, 6]], [[0, 1, 2]], [[0, 0, 0]]])
    check_distinct_after(held, held + torch.tensor([3, 0, 0])[:, None, None])
    check_distinct_after(held, held + torch.tensor([0, 3, 0])[:, None, None])
    with pytest.raises(ValueError, match=r"got \[4, 0, 0\] twice in row 0; evict or move"):
        check_distinct_after(held, held)
    with pytest.raises(ValueError, match=r"got \[9, 0, 0\] twice in row 0"):
        check_distinct_after(held, torch.tensor([[[9, 9]], [[0, 0]], [[0, 0]]]))


DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
MISTAKES = """
LedgerCache(None) => model must be a transformers model or its config, got NoneType
LedgerCache(model_of('llama'), sinks=2) => window must say how many tokens stay beside the sinks
LedgerCache(model_of('llama'), window=0) => window must be an integer of at least 1, got 0
LedgerCache(model_of('llama'), window=8, block=8) => block must be less than the window, 8, got 8
LedgerCache(model_of('llama'), seq_len=0) => seq_len must be an integer of at least 1, got 0
LedgerCache(causal('llama', rope_parameters=DYNAMIC)) => seq_len is missing: dynamic scaling … phasor.patch(model,
    seq_len=n)
LedgerCache(model_of('llama')).reuse(None) => chunk must be a LedgerCache of the same model
LedgerLayer(None).crop(3) => tokens_to_remove must be a number of tokens below 0, got 3
"""
test_refused = refused(MISTAKES, globals(), of=(phasor.caches,))
