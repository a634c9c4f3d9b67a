"""What is formed once for each distance: the same numbers as pair by pair, and no more of them."""

import pytest
import torch

from phasor.encodings import FIRE, TISA, ALiBi, KerpleLog, KerplePower, Sandwich, T5Bias
from phasor.encodings.attention import attention, kernels

T = torch.arange(200)
MAKE = {
    "alibi": lambda: ALiBi(2),
    "alibi symmetric": lambda: ALiBi(2, symmetric=True),
    "t5 decoder": lambda: T5Bias(2, bidirectional=False),
    "t5 encoder": lambda: T5Bias(2, bidirectional=True),
    "kerple log": lambda: KerpleLog(2),
    "kerple power": lambda: KerplePower(2),
    "tisa": lambda: TISA(2),
    "sandwich": lambda: Sandwich(2),
    "fire": lambda: FIRE(2, init_L=300.0),
    "fire beyond L": lambda: FIRE(2, init_L=100.0),
}
CALLS = {
    "causal": {"q_positions": T},
    "both sides": {"q_positions": T, "causal": False},
    "from a thousand on": {"q_positions": T + 1000},
    "the last queries": {"q_positions": T[150:], "k_positions": T},
    "queries in the middle": {"q_positions": T[50:120], "k_positions": T, "causal": False},
    "the same rows": {"q_positions": T.expand(2, -1)},
    "other rows": {"q_positions": torch.stack((T, T + 5))},
    "gaps": {"q_positions": 2 * T},
    "backwards": {"q_positions": T.flip(0), "causal": False},
    "no own key": {"q_positions": T + 100, "k_positions": T},
    "padding": {"q_positions": T, "key_padding_mask": (T < 3).expand(2, -1)},
    "documents": {"q_positions": T % 120, "document_ids": (T >= 120).long()},
}


def made(name):
    encoding = MAKE[name]().double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.uniform_(0.1, 1.0) if parameter.ndim else None
    return encoding


@pytest.fixture
def qkv():
    return [torch.randn(2, 2, 200, 8, dtype=torch.float64) for _ in range(3)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MAKE)
def test_attention_is_that_of_the_reference(name, call, qkv, monkeypatch):
    encoding, rules = made(name), {"scale": 0.4, **CALLS[call]}
    if encoding.causal_only and not rules.get("causal", True):
        return
    q, k, v = (x.requires_grad_() for x in qkv)
    q = q[:, :, : rules["q_positions"].shape[-1]]
    monkeypatch.setattr(kernels, "AT_ONCE", 1)
    learned = [*qkv, *encoding.parameters()]
    results = []
    for kernel in ("sdpa", "reference"):
        out = attention(q, k, v, encoding, kernel=kernel, **rules)
        gradients = torch.autograd.grad(out.square().sum(), learned, allow_unused=True)
        results.append((out, *(g for g in gradients if g is not None)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("call", ["causal", "both sides", "the last queries", "padding", "documents", "other rows"])
def test_the_formula_is_computed_once_for_each_distance(call, qkv, monkeypatch):
    encoding, computed = made("tisa"), []
    term = TISA.term

    def counted(self, *given):
        formula = term(self, *given)

        def run(h, r):
            computed.append(r.numel())
            return formula(h, r)

        return run

    monkeypatch.setattr(TISA, "term", counted)
    q, k, v = qkv
    q = q[:, :, : CALLS[call]["q_positions"].shape[-1]]
    attention(q, k, v, encoding, **CALLS[call])
    assert 0 < max(computed) <= 2 * 205


class ForgetsNothing(ALiBi):
    def bias(self, *given):
        return 0 * super().bias(*given)


def test_a_bias_that_a_subclass_changes_is_the_one_that_is_added(qkv):
    torch.testing.assert_close(attention(*qkv, ForgetsNothing(2), q_positions=T), attention(*qkv, q_positions=T))


class Windowed(ALiBi):
    window = 9


def test_a_window_hides_what_is_farther(qkv):
    near = (T[:, None] - T < 9) & (T[:, None] >= T)
    ours = attention(*qkv, Windowed(2), q_positions=T)
    torch.testing.assert_close(ours, attention(*qkv, ALiBi(2), q_positions=T, attn_mask=near, kernel="reference"))


def test_distances_that_outnumber_the_pairs_are_not_all_computed(qkv):
    at = torch.cat((T[:100], T[100:] + 10**12))
    bias = made("alibi").bias(*qkv[:2], at, at, 1.0)
    assert bias[0, -1, 0] == -(10**12 + 199) / 16  # slopes of two heads: 1/16, 1/256
