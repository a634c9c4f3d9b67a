"""What is said for a length is computed for it: turns of the training, distances inside windows, drawn curves."""

import math

import pytest
import torch

from phasor import ModelRotary, RotarySpec, read_config
from phasor.rotary.scaling import Llama3, YaRN
from phasor.tools.inspect.curves import decay
from phasor.tools.inspect.model_page import model_facts, page
from phasor.tools.inspect.numbers import log_distances, lowest_decay, spec_facts


def read(**keys):
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2}
    return read_config({**sizes, **keys})


@pytest.mark.parametrize(
    "scaling, base, dim, never",
    [
        (Llama3(8.0, 1.0, 4.0, 8192), 500_000.0, 128, 29),  # Llama 3.1
        (YaRN(32.0, 4096, truncate=False), 150_000.0, 64, 14),  # gpt-oss
        (YaRN(40.0, 4096), 10_000.0, 64, 9),  # DeepSeek-V3
    ],
)
def test_turns_are_those_of_the_training(scaling, base, dim, never):
    """A pair turns L base ** (-2i / d) / (2 pi) times in L trained positions, before anybody stretched it."""
    length = scaling.trained_length
    assert never == sum(length * base ** (-2 * i / dim) < 2 * math.pi for i in range(dim // 2))
    spec = RotarySpec(head_dim=dim, base=base, scaling=scaling)
    assert spec_facts(spec, 131_072).never_turn == never
    many = sum(length * base ** (-2 * i / dim) >= 32 * 2 * math.pi for i in range(dim // 2))
    toy = ModelRotary(model_type="toy", layers=(spec,), layer_types=("a",), num_heads=1)
    said = " ".join(page(toy, model_facts(toy, seq_len=131_072)).split())
    assert f"{many} pairs complete 32 turns or more, {dim // 2 - many - never} one or more, {never} none" in said


def test_distances_end_at_windows_and_chunks():
    """Gemma 3 270m looks back 512 tokens in its local layers; Llama 4 inside chunks of 8192."""
    gemma = read(model_type="gemma3_text", head_dim=256, sliding_window=512, max_position_embeddings=32768,
                 rope_theta=1e6, rope_local_base_freq=1e4,
                 layer_types=["sliding_attention", "full_attention"])  # fmt: skip
    local, full = model_facts(gemma)
    assert (local.window, local.farthest, full.window, full.farthest) == (512, 511, None, 32767)
    assert local.first_negative is None and spec_facts(local.spec, 32768).first_negative == 2653
    assert local.never_turn == sum(512 * 10_000 ** (-i / 128) < 2 * math.pi for i in range(128))
    text = page(gemma, [local, full])
    assert "512 tokens, the window:" in text and "up to 511, the window" in text and "never negative below 512" in text
    llama4 = read(model_type="llama4_text", head_dim=128, attention_chunk_size=8192, max_position_embeddings=10485760,
                  num_hidden_layers=4)  # fmt: skip
    assert llama4.windows == (8192, 8192, 8192, None)
    assert model_facts(llama4)[0].farthest == 8191


@pytest.mark.parametrize(
    "keys, windows",
    [
        ({"model_type": "mistral", "sliding_window": 4096}, (4096, 4096)),
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"model_type": "llama", "sliding_window": 32768}, ()),  # its code has no window
        ({"model_type": "modernbert", "local_attention": 128, "num_hidden_layers": 3}, (None, 65, 65)),  # to both sides
    ],
)
def test_windows_of_a_config(keys, windows):
    model = read(**keys)
    assert model.windows == windows and ModelRotary.from_dict(model.to_dict()).windows == windows


@pytest.mark.parametrize("base, distance", [(1e4, 1707), (1e6, 27115)])
def test_a_drawn_curve_contains_its_lowest_points(base, distance):
    """A curve through samples misses a dip that is narrower than they are apart; the lowest of a stretch has it."""
    facts = spec_facts(RotarySpec(head_dim=128, base=base), 40_960)
    for columns in (50, 400):
        low = lowest_decay(facts, columns)
        column = next(i for i, value in enumerate(low) if value < 0)
        starts = log_distances(facts, columns + 1).unique()
        assert starts[column] <= distance < starts[column + 1]
    at, low = torch.arange(1, 3000), torch.tensor(lowest_decay(facts, 300), dtype=torch.float64)
    where = torch.searchsorted(log_distances(facts, 301).unique()[:-1], at, right=True) - 1
    assert bool((decay(facts.spec, at) >= low[where]).all())
