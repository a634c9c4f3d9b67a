import pytest
import torch

from phasor.encodings.attention import KVCache, attention


def test_remembers_padding_and_documents(encoding, make_qkv):
    q, k, v = make_qkv()
    rules = {
        "q_positions": torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 4]]),
        "key_padding_mask": torch.tensor([[False] * 7, [True, True] + [False] * 5]),
        "document_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]]),
    }
    whole = attention(q, k, v, encoding, scale=0.4, **rules)
    cache, parts = KVCache(), []
    for i, j in ((0, 4), (4, 5), (5, 7)):
        step = {name: x[:, i:j] for name, x in rules.items()}
        if i == 4:
            del step["key_padding_mask"]  # no padding among the new tokens; that of the prompt is kept
        tokens = (x[:, :, i:j] for x in (q, k, v))
        parts.append(attention(*tokens, encoding, scale=0.4, cache=cache, **step))
    torch.testing.assert_close(torch.cat(parts, -2), whole)


def test_keys_are_stored_rotated(make_encoding, make_qkv):
    q, k, v = make_qkv()
    encoding, t, cache = make_encoding("rotary"), torch.arange(7) + 100, KVCache()
    attention(q, k, v, encoding, q_positions=t, cache=cache)
    assert torch.equal(cache.k, encoding.rotate(q, k, t, t)[1]) and not torch.equal(cache.k, k)


def test_errors(make_qkv):
    q, k, v = make_qkv(1)
    t, cache = torch.tensor([0]), KVCache()
    attention(q, k, v, q_positions=t, cache=cache)
    with pytest.raises(ValueError, match="document_ids must be given for all tokens of a KVCache or for none"):
        attention(q, k, v, q_positions=t + 1, document_ids=t, cache=cache)
    with pytest.raises(ValueError, match=r"batch and heads of the cache, \[2, 4\], got \[1, 4\]; start a new KVCache"):
        attention(q[:1], k[:1], v[:1], q_positions=t + 1, cache=cache)
    assert len(cache) == 1  # a refused call leaves the cache as it was
