"""What a ledger says, costs and refuses; what it refuses changes nothing."""

import pytest
import torch

from core.conftest import assert_refused
from phasor import RotarySpec, Rotation, apply_rotary
from phasor.caches import KeyLedger, admitted_length
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import DynamicNTK, YaRN
from refused import refused

SPEC = RotarySpec(head_dim=8)
YARN = RotarySpec(head_dim=8, scaling=YaRN(4.0, 64))


def filled(spec: RotarySpec = SPEC, tokens: int = 10, batch: int = 2, **how) -> KeyLedger:
    ledger = KeyLedger(spec, **how)
    ledger.append(torch.randn(batch, 3, tokens, 8), torch.arange(tokens), torch.randn(batch, 3, tokens, 5))
    return ledger


def state(ledger: KeyLedger) -> tuple:
    held, origin = ledger._held, ledger._held.origin
    moved = () if origin is None else (origin.keys, origin.slots, origin.positions, origin.regime)
    return ledger.spec, held.parents, *(t.clone() for t in (held.keys, held.values, held.positions, *moved))


def same(a: tuple, b: tuple) -> bool:
    return a[:2] == b[:2] and len(a) == len(b) and all(map(torch.equal, a[2:], b[2:]))


K, V = torch.zeros(2, 3, 2, 8), torch.zeros(2, 3, 2, 5)
AT = torch.tensor([10, 11])
OTHER = RotarySpec(head_dim=8, base=7.0)


def test_two_moves_are_no_farther_than_one():
    ledger = filled()
    ledger.shift(2**31)
    before = state(ledger)
    assert_refused(lambda: ledger.shift(1), ["positions before and after a move must be at most 2**31 apart"])
    assert same(state(ledger), before)


def test_open_drafts_change_with_accept_only():
    ledger = filled()
    ledger.draft(K, [-1, 0], V)
    before = state(ledger)
    for call in (lambda: ledger.crop(3), lambda: ledger.evict([0]), lambda: ledger.append(K, AT + 5, V)):
        assert_refused(call, ["drafts must be accepted first: 2 are open; call accept with a path of them, or []"])
    assert_refused(lambda: ledger.accept([1]), ["path must go from a child of -1 from parent to child"])
    assert same(state(ledger), before)
    ledger.accept([])
    assert len(ledger) == 10 and torch.equal(ledger.keys, before[2][:, :, :10])


DYNAMIC = RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 64))
MISTAKES = """
KeyLedger(None) => spec must be a RotarySpec
KeyLedger(DYNAMIC) => spec.at_length(n)
KeyLedger(DYNAMIC, keep='raw') => spec.at_length(n)
KeyLedger(SPEC, keep='both') => keep must be 'raw' or 'residual', got 'both'
KeyLedger(SPEC, most=0) => most must be an integer of at least 1
filled(most=9) => k must leave at most most=9 tokens, got 10 for 0; evict some
KeyLedger(SPEC).keys => this ledger holds no tokens yet
KeyLedger(SPEC, keep='raw').append(K, AT, rotated=True) => k must be raw for keep='raw'
filled().append(K, AT) => v must be given for all tokens of a ledger or for none
filled().append(K, AT - 1, V) => positions must belong to one token each, got 9 twice in row 0
filled().draft(K, [-1, 0], V[:, :, :1]) => v must be [batch, heads, tokens, channels]
filled(keep='raw').reuse(filled(), 50) => chunk must have keep='raw' … its raw keys are gone
filled().reuse(filled(OTHER), 50) => chunk must be of the same model … ['base']
KeyLedger(RotarySpec(head_dim=8, axes=Sections((2, 1, 1)))).append(K, AT) => be [3, seq]
admitted_length(100, 30, (64, 128)) => lengths must have one of at least 130 … 128 at most
admitted_length(-1, 30) => prompt must be an integer of at least 0, got -1
"""
test_refused = refused(MISTAKES, globals())


def test_the_smallest_sufficient_length():
    assert [admitted_length(p, 28, (256, 64, 128)) for p in (1, 36, 37, 100, 228)] == [64, 64, 128, 128, 256]
    assert admitted_length(0, 0) == 1


def test_values_follow_their_tokens():
    ledger = filled()
    values = ledger.values.clone()
    ledger.move(torch.arange(10).flip(0) + 100)
    assert torch.equal(ledger.values, values)
    ledger.evict([0, 4])
    ledger.reuse(ledger.cut([1, 0]), 500)
    order = [1, 2, 3, 5, 6, 7, 8, 9, 2, 1]
    assert torch.equal(ledger.values, values[:, :, order])
    ledger.stream(1, 2)
    assert torch.equal(ledger.values, values[:, :, [1, 2, 1]])


def test_a_tree_of_drafts_and_its_mask():
    """Siblings share a position; each sees its own ancestors. The tree of SpecInfer's figure 2 in small."""
    ledger = filled(tokens=2)
    mask = ledger.draft(torch.zeros(2, 3, 5, 8), [-1, -1, 0, 0, 1], torch.zeros(2, 3, 5, 5))
    assert ledger.positions[0].tolist() == [0, 1, 2, 2, 3, 3, 3]
    assert mask.int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0], [1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 1, 0],
        [1, 1, 0, 1, 0, 0, 1],
    ]  # fmt: skip
    ledger.accept([0, 3])
    assert ledger.positions[0].tolist() == [0, 1, 2, 3]


def test_a_key_that_comes_back_is_what_it_was():
    """A hundred moves and back: to the bit, and nothing is kept of them."""
    ledger = KeyLedger(YARN)
    ledger.append(torch.randn(1, 2, 9, 8).bfloat16(), torch.arange(9))
    before = ledger.keys.clone()
    for _ in range(100):
        ledger.shift(1000)
        ledger.change_spec(SPEC)
        ledger.change_spec(YARN)
    assert not torch.equal(ledger.keys, before) and ledger.memory["origin"] == before.nbytes
    ledger.shift(-100_000)
    assert torch.equal(ledger.keys, before) and ledger.memory["origin"] == 0


def test_angles_of_the_model_s_own_code_come_back_too():
    """float32 angles, whose rotation by no distance rounds."""
    spec = SPEC.replace(angles="float32", base=500_000.0)
    ledger = KeyLedger(spec)
    at = torch.arange(9) + 100_000
    raw = torch.randn(1, 2, 9, 8)
    ledger.append(apply_rotary(raw, Rotation.at(spec, at)), at, rotated=True)
    before = ledger.keys.clone()
    ledger.shift(7)
    torch.testing.assert_close(ledger.keys, apply_rotary(raw, Rotation.at(spec, at + 7)), rtol=0, atol=2e-6)
    ledger.shift(-7)
    assert torch.equal(ledger.keys, before)


@pytest.mark.parametrize(
    "keep, moved, copies",
    [("residual", 0, 1), ("residual", 6, 1.25), ("residual", 24, 2), ("raw", 0, 2), ("raw", 24, 2)],
)
def test_memory_is_what_is_stated(keep, moved, copies):
    """Keys once, once more for what has moved (all raw keys); 8 bytes a token and row, 18 more if it has moved.

    Held by tensors of 24 tokens: 2 rows, 3 heads of 64 channels, 2 bytes each.
    """
    ledger = KeyLedger(RotarySpec(head_dim=64), keep=keep)
    ledger.append(torch.randn(2, 3, 24, 64).bfloat16(), torch.arange(24))
    ledger.move(torch.arange(moved) + 100, range(moved))
    kept = 24 if keep == "raw" else moved
    expected = 24 * 2 * 3 * 64 * 2 * copies + 24 * 2 * 8 + kept * (2 * 8 + 8 + 2)
    assert abs(sum(ledger.memory.values()) - expected) <= 0.05 * expected
    assert ledger.memory["keys"] == 24 * 2 * 3 * 64 * 2


def test_values_are_counted_too():
    ledger, k, v = KeyLedger(RotarySpec(head_dim=64)), torch.randn(2, 3, 24, 64), torch.randn(2, 3, 24, 32)
    ledger.append(k, torch.arange(24), v)
    assert (ledger.memory["keys"], ledger.memory["values"]) == (k.nbytes, v.nbytes)


@pytest.mark.parametrize("at", [(100, 100.0, 100), (100, True, 100), (100, 100), 100])
def test_a_chunk_needs_a_whole_number_for_each_axis(at):
    spec = RotarySpec(head_dim=16, axes=Sections((4, 2, 2)))
    ledger, chunk = KeyLedger(spec), KeyLedger(spec)
    for one in (ledger, chunk):
        one.append(torch.randn(1, 2, 3, 16), torch.arange(3).expand(3, 3))
    with pytest.raises(ValueError, match="at must be one integer for each of 3 axes"):
        ledger.reuse(chunk, at)
    ledger.reuse(chunk, (100, 100, 100))
    assert len(ledger) == 6
