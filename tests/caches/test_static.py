"""What stands in for a static cache: transformers' own for keys that stay, `most` for a ledger that may not grow on."""

import pytest
import torch

import phasor
from cache_argument import given
from integrations.models import causal
from phasor.caches import LedgerCache

pytest.importorskip("transformers")

HOW = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}


@pytest.fixture
def model() -> torch.nn.Module:
    made: torch.nn.Module = causal("llama", max_position_embeddings=64)
    return made


def test_a_patched_model_with_a_static_cache_continues_as_the_unpatched_one(model: torch.nn.Module) -> None:
    ids = torch.arange(5)[None]
    expected = model.generate(ids, **HOW)  # type: ignore[operator]
    assert phasor.patch(model).replaced
    assert torch.equal(model.generate(ids, cache_implementation="static", **HOW), expected)  # type: ignore[operator]


def test_more_tokens_than_a_cache_may_hold_are_one_line(model: torch.nn.Module) -> None:
    """The prompt has 5; the ninth token finds 8."""
    cache = LedgerCache(model, most=8)
    with pytest.raises(ValueError, match="k must leave at most most=8 tokens, got 1 for 8") as error:
        model.generate(torch.arange(5)[None], **given(cache), **HOW)  # type: ignore[operator]
    assert "\n" not in str(error.value) and cache.get_seq_length() == 8 and not cache.is_compileable
