"""A cache of fixed shapes: the graph of one token gives what the full pass gives, with sinks what a ledger gives."""

from itertools import chain

import pytest
import torch

transformers = pytest.importorskip("transformers")

from cache_argument import given  # noqa: E402
from caches.test_model_cache import model_of  # noqa: E402
from integrations.models import tokens  # noqa: E402
from phasor import RotarySpec  # noqa: E402
from phasor.caches import LedgerCache, StaticLedgerCache  # noqa: E402
from phasor.caches.static_cache import StaticLedgerLayer  # noqa: E402

HELD = torch.randn(2, 2, 3, 8)

FAMILIES = ["llama", "qwen2", "gemma3", "deepseek_v3", "smollm3", "yarn"]  # local layers, latent attention, NoPE, YaRN


def wide(family):
    """In float64 where experts can be."""
    model = model_of(family)
    return model if family == "deepseek_v3" else model.double()


def stepwise(call, ids, cache, prompt):
    """Logits of the prompt at once, then of each token."""
    parts = [call(ids[:, :prompt], **given(cache)).logits]
    parts += [call(one, **given(cache)).logits for one in ids[:, prompt:].split(1, dim=1)]
    return torch.cat(parts, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_one_token_at_a_time_is_the_full_pass(family):
    model, ids = wide(family), tokens(2, 40)
    found = stepwise(model, ids, StaticLedgerCache(model, most=48), 12)
    torch.testing.assert_close(found, model(ids).logits, rtol=0, atol=1e-5)  # tables of the model's own in float32


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_sinks_are_those_of_a_ledger(family):
    model, ids = wide(family), tokens(2, 50)
    how = {"sinks": 4, "window": 20, "unpadded": True}
    static, growing = (stepwise(model, ids, made(model, **how), 10) for made in (StaticLedgerCache, LedgerCache))
    torch.testing.assert_close(static, growing, rtol=0, atol=1e-5)


COMPILED = ["llama", "gemma3", "deepseek_v3", "smollm3", "yarn"]
HOW = {"most": {"most": 32}, "sinks": {"sinks": 2, "window": 12, "unpadded": True}}
# One way for each family, seconds each: sinks where keys are turned back by what a family has of its own.
FAST = [("llama", "most"), ("gemma3", "sinks"), ("deepseek_v3", "sinks"), ("smollm3", "most"), ("yarn", "sinks")]


@torch.no_grad()
@pytest.mark.parametrize(
    "family, how",
    [
        pytest.param(family, HOW[how], id=f"{family}-{how}", marks=[pytest.mark.slow] * ((family, how) not in FAST))
        for family in COMPILED
        for how in HOW
    ],
)
def test_one_graph_serves_every_token(family, how):
    """Compiled as a whole, without a break: filling, full, and after tokens were taken back."""
    model, ids, graphs = wide(family), tokens(2, 26), []

    def counted(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model.forward, fullgraph=True, backend=counted)
    ours, plain = StaticLedgerCache(model, **how), StaticLedgerCache(model, **how)
    for cache, call in ((ours, compiled), (plain, model)):
        cache.found = [model(ids[:, :10], **given(cache)).logits]
        for number, one in enumerate(ids[:, 10:].split(1, dim=1)):
            cache.found.append(call(one, **given(cache)).logits)
            if number == 8:
                cache.crop(-3)
    assert len(graphs) == 1
    torch.testing.assert_close(torch.cat(ours.found, 1), torch.cat(plain.found, 1), rtol=0, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gemma3", "smollm3"])
def test_beams_rows_and_tokens_taken_back(family):
    """As transformers' own growing cache."""
    model, ids = wide(family), tokens(2, 10)
    how = {"max_new_tokens": 8, "do_sample": False, "num_beams": 2, "pad_token_id": 0, "eos_token_id": None}
    static = StaticLedgerCache(model, most=32)
    assert torch.equal(model.generate(ids, **given(static), **how), model.generate(ids, **how))
    cache, own = StaticLedgerCache(model, most=32), transformers.DynamicCache(config=model.config)
    found = []
    for one in (cache, own):
        model(ids, **given(one))
        one.batch_repeat_interleave(2)
        one.batch_select_indices(torch.tensor([3, 0]))
        one.crop(-4)
        found.append(stepwise(model, ids, one, 3))
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)
    cache.reset()
    torch.testing.assert_close(stepwise(model, ids, cache, 5), model(ids).logits, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("how", [{"most": 64}, {"sinks": 4, "window": 60}], ids=["most", "sinks"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "deepseek_v3", "smollm3", "yarn"])
def test_chunks_are_reused_and_caches_forked(family, how):
    """As a growing cache does it, whose keys have their own tests; local windows are shorter than the chunks."""
    model = model_of(family, **{"sliding_window": 8} if family == "gemma3" else {})
    model = model if family == "deepseek_v3" else model.double()
    first, chunk, rest = tokens(1, 50).split([12, 20, 18], dim=1)
    parts = [LedgerCache(model), LedgerCache(model)]
    for ids, cache in zip((first, chunk), parts, strict=True):
        model(ids, **given(cache))
    growing, static = parts[0].fork(), StaticLedgerCache(model, **how)
    growing.reuse(parts[1])
    for part in parts:
        static.reuse(part)
    branch = static.fork()
    assert int(static.get_seq_length()) == 32 == growing.get_seq_length()
    logits = [stepwise(model, rest, cache, 4) for cache in (static, branch, growing)]
    assert torch.equal(logits[0], logits[1])
    torch.testing.assert_close(logits[0], logits[2], rtol=0, atol=1e-6)
    assert branch.memory == static.memory and branch.layers[0].keys is not static.layers[0].keys


@torch.no_grad()
def test_a_chunk_that_does_not_fit_changes_no_layer():
    """Nor does one of another model, or in front of sinks that are not there yet; nor tokens of another dtype."""
    model, ids = model_of("gemma3", sliding_window=8), tokens(2, 12)
    chunk, rows = LedgerCache(model), LedgerCache(model)
    model(ids[:1], **given(chunk))
    model(ids, **given(rows))
    held = [StaticLedgerCache(model, most=20), StaticLedgerCache(model, sinks=4, window=16)]
    model(ids[:1], **given(held[0]))
    model(ids[:1, :2], **given(held[1]))
    before = [[(x.keys.clone(), int(x.held), int(x.seen)) for x in cache.layers] for cache in held]
    for cache, other, message in (
        (held[0], chunk, "k must leave at most most=20 tokens in a static cache, got 12 for 12"),
        (held[1], chunk, "chunk must be the first tokens of the cache, or come after all 4 sinks"),
        (held[0], rows, "unpadded must be True for 2 rows that reuse a chunk"),
        (held[0], held[1], "chunk must be a LedgerCache of the same model, got StaticLedgerCache"),
        (StaticLedgerCache(model, most=20), LedgerCache(model), "chunk must hold tokens, got an empty layer"),
    ):
        with pytest.raises(ValueError, match=message):
            cache.reuse(other)
    with pytest.raises(ValueError, match=r"k must be of the .batch, heads, channels, dtype, device. of the cache"):
        model(ids, **given(held[0]))
    with pytest.raises(ValueError, match="tokens_to_remove must be a number from -8 to 0, got -10"):
        held[0].crop(-10)
    after = [[(x.keys, int(x.held), int(x.seen)) for x in cache.layers] for cache in held]
    for mine, theirs in zip(chain(*before), chain(*after), strict=True):
        assert torch.equal(mine[0], theirs[0]) and mine[1:] == theirs[1:]


@torch.no_grad()
def test_what_is_refused_changes_nothing():
    model, ids = model_of("llama"), tokens(1, 12)
    cache = StaticLedgerCache(model, most=12)
    model(ids, **given(cache))
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"k must leave at most most=12 tokens in a static cache, got {count} for"):
            model(ids[:, :count], **given(cache))
    assert {int(layer.held) for layer in cache.layers} == {12} == {int(layer.seen) for layer in cache.layers}
    with pytest.raises(ValueError, match="tokens_to_remove must be a number from -12 to 0, got -13"):
        cache.crop(-13)
    layer = cache.layers[0]
    one = layer.keys[:, :, :1].clone(), layer.values[:, :, :1].clone()
    with pytest.raises(RuntimeError, match="k must leave at most most=12 tokens in a static cache"):
        torch.compile(layer.update, backend="eager", fullgraph=True)(*one)
    sinks = StaticLedgerCache(model, sinks=4, window=6)
    model(ids, **given(sinks))
    with pytest.raises(ValueError, match="tokens_to_remove must leave the 4 sinks, got -7 of 10"):
        sinks.crop(-7)


@pytest.mark.parametrize("how", [{}, {"most": 8, "window": 8}, {"most": 8, "sinks": 2}, {"most": 0}])
def test_refused_in_one_line(how):
    with pytest.raises(ValueError, match="must") as caught:
        StaticLedgerCache(model_of("llama"), **how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "k", [HELD.double(), HELD[..., :4], HELD[:, :1], HELD[:1]], ids=["dtype", "channels", "heads", "batch"]
)
def test_tokens_of_another_model_or_batch(k):
    layer = StaticLedgerLayer(RotarySpec(head_dim=8), 16)
    layer.update(HELD, HELD)
    with pytest.raises(ValueError, match=r"of the \(batch, heads, channels, dtype, device\) of the cache"):
        layer.update(k, k)
    assert int(layer.held) == int(layer.seen) == 3
