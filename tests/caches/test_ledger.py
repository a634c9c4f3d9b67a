"""What a ledger says, costs and refuses; what it refuses changes nothing."""

import pytest
import torch

from core.conftest import assert_refused
from phasor import RotarySpec, Rotation, apply_rotary
from phasor.caches import KeyLedger, admitted_length
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import DynamicNTK, YaRN

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


def drafted() -> KeyLedger:
    ledger = filled()
    ledger.draft(K, [-1, 0], V)
    return ledger


REFUSED = {
    "doubled": (lambda x: x.append(K, AT - 1, V), ["positions must belong to one token each, got 9 twice in row 0"]),
    "twice": (lambda x: x.append(K, AT * 0 + 20, V), ["positions must belong to one token each, got 20 twice"]),
    "move onto another": (lambda x: x.move(torch.tensor([3]), [0]), ["positions must belong", "got 3 twice"]),
    "overlap of a chunk": (lambda x: x.reuse(x.cut(range(3)), 8), ["positions must belong", "got 8 twice"]),
    "dtype": (lambda x: x.append(K.double(), AT, V), ["k must be of the (batch, heads, dtype, device) of the ledger"]),
    "rows": (lambda x: x.append(K[:1], AT, V[:1]), ["k must be of the (batch, heads, dtype, device)"]),
    "heads": (lambda x: x.append(K[:, :1], AT, V[:, :1]), ["k must be of the (batch, heads, dtype, device)"]),
    "width": (lambda x: x.append(K[..., :6], AT, V), ["k must be [batch, heads, tokens, 8], got shape (2, 3, 2, 6)"]),
    "integers": (lambda x: x.append(K.long(), AT, V), ["k must be float64, float32, float16 or bfloat16"]),
    "positions": (lambda x: x.append(K, AT[:1], V), ["positions must be [2] or [2, 2]", "got shape (1,)"]),
    "real positions": (lambda x: x.append(K, AT.float(), V), ["positions must be integers"]),
    "no values": (lambda x: x.append(K, AT), ["v must be given for all tokens of a ledger or for none"]),
    "values": (lambda x: x.append(K, AT, V[:, :, :1]), ["v must be [batch, heads, tokens, channels]"]),
    "evict": (lambda x: x.evict([3, 10]), ["slots must be from 0 to 9, which are held, got 10"]),
    "evict below": (lambda x: x.evict([-1]), ["slots must be from 0 to 9, which are held, got -1"]),
    "evict twice": (lambda x: x.evict([3, 3]), ["slots must name every token once"]),
    "evict a word": (lambda x: x.evict(torch.tensor([0.5])), ["slots must be a range, a list or a tensor"]),
    "far": (lambda x: x.move(torch.arange(10) + 2**31 + 1), ["positions before and after a move must be at most"]),
    "far shift": (lambda x: x.shift(2**31 + 1), ["by must be one integer of at most 2**31"]),
    "far in two moves": (
        lambda x: (x.shift(2**31), x.shift(1)), ["positions before and after a move must be at most 2**31 apart"]
    ),
    "crop": (lambda x: x.crop(11), ["length must be at most the 10 tokens that are held, got 11"]),
    "crop below": (lambda x: x.crop(-1), ["length must be an integer of at least 0, got -1"]),
    "beams": (lambda x: x.reorder(torch.tensor([0, 2])), ["rows must be from 0 to 1, got [0, 2]"]),
    "beams as a list": (lambda x: x.reorder([0, 1]), ["rows must be a tensor of integers [rows]"]),
    "length": (
        lambda x: x.change_spec(RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 64))), ["spec must be at one length"]
    ),
    "layout": (lambda x: x.change_spec(SPEC.replace(interleaved=True)), ["old and new must agree in (layout"]),
    "chunk of another model": (lambda x: x.reuse(filled(OTHER), 50), ["chunk must be of the same model", "['base']"]),
    "no chunk": (lambda x: x.reuse(None, 50), ["chunk must be a KeyLedger that holds tokens, got NoneType"]),
    "empty chunk": (lambda x: x.reuse(KeyLedger(SPEC), 50), ["chunk must be a KeyLedger that holds tokens"]),
    "chunk at": (lambda x: x.reuse(x.cut(range(3)), 1.5), ["at must be one integer for each of 1 axes, got 1.5"]),
    "no tree": (lambda x: x.draft(K, [-1, 1], V), ["parents[1] must be an earlier draft or -1, got 1"]),
    "parents": (lambda x: x.draft(K, [-1], V), ["parents must have one entry for each of 2 drafts, got 1"]),
    "no drafts": (lambda x: x.accept([0]), ["path must be one of drafts, and there are none"]),
    "window": (lambda x: x.stream(1, 0), ["window must be an integer of at least 1, got 0"]),
}  # fmt: skip


@pytest.mark.parametrize("call, fragments", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("moved", [False, True])
def test_bad_input_changes_nothing(call, fragments, moved):
    ledger = filled()
    if moved:
        ledger.move(torch.arange(4) - 100, range(6, 10))
        ledger.move(torch.arange(6, 10), range(6, 10))
        ledger.shift(0)
    before = state(ledger)
    if "far in two moves" in str(fragments) or call is REFUSED["far in two moves"][0]:
        ledger.shift(2**31)
        assert_refused(lambda: ledger.shift(1), fragments)
        ledger.shift(-(2**31))
    else:
        assert_refused(lambda: call(ledger), fragments)
    assert same(state(ledger), before)


def test_open_drafts_change_with_accept_only():
    ledger = drafted()
    before = state(ledger)
    for call in (lambda: ledger.crop(3), lambda: ledger.evict([0]), lambda: ledger.append(K, AT + 5, V)):
        assert_refused(call, ["drafts must be accepted first: 2 are open; call accept with a path of them, or []"])
    assert_refused(lambda: ledger.accept([1]), ["path must go from a child of -1 from parent to child"])
    assert same(state(ledger), before)
    ledger.accept([])
    assert len(ledger) == 10 and torch.equal(ledger.keys, before[2][:, :, :10])


MADE = {
    "spec": (lambda: KeyLedger(None), ["spec must be a RotarySpec"]),
    "length": (lambda: KeyLedger(RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 64))), ["spec.at_length(n)"]),
    "raw length": (
        lambda: KeyLedger(RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 64)), keep="raw"), ["spec.at_length(n)"]
    ),
    "keep": (lambda: KeyLedger(SPEC, keep="both"), ["keep must be 'raw' or 'residual', got 'both'"]),
    "most": (lambda: KeyLedger(SPEC, most=0), ["most must be an integer of at least 1"]),
    "too many": (lambda: filled(most=9), ["k must leave at most most=9 tokens, got 10 for 0; evict some"]),
    "empty": (lambda: KeyLedger(SPEC).keys, ["this ledger holds no tokens yet"]),
    "rotated": (
        lambda: KeyLedger(SPEC, keep="raw").append(K, AT, rotated=True), ["k must be raw for keep='raw'"]
    ),
    "raw chunk": (
        lambda: filled(keep="raw").reuse(filled(), 50), ["chunk must have keep='raw'", "its raw keys are gone"]
    ),
    "axes": (
        lambda: KeyLedger(RotarySpec(head_dim=8, axes=Sections((2, 1, 1)))).append(K, AT), ["be [3, seq]"]
    ),
    "admitted": (lambda: admitted_length(100, 30, (64, 128)), ["lengths must have one of at least 130", "128 at most"]),
    "prompt": (lambda: admitted_length(-1, 30), ["prompt must be an integer of at least 0, got -1"]),
}  # fmt: skip


@pytest.mark.parametrize("call, fragments", MADE.values(), ids=MADE)
def test_refused_in_one_line(call, fragments):
    assert_refused(call, fragments)


def test_the_smallest_sufficient_length():
    assert [admitted_length(p, 28, (256, 64, 128)) for p in (1, 36, 37, 100, 228)] == [64, 64, 128, 128, 256]
    assert admitted_length(0, 0) == 1


def test_a_fork_and_its_trunk_go_their_own_ways():
    ledger = filled()
    before, branch = state(ledger), ledger.fork()
    branch.shift(5)
    branch.append(K, torch.tensor([50, 51]), V)
    assert same(state(ledger), before) and len(branch) == 12
    assert branch.keys.untyped_storage().data_ptr() != ledger.keys.untyped_storage().data_ptr()
    assert ledger.fork().keys is ledger.keys


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


def test_evicting_none_evicts_nothing():
    """As an index ``None`` means every token."""
    ledger = filled()
    with pytest.raises(ValueError, match="slots must be a range, a list or a tensor of integers"):
        ledger.evict(None)
    assert len(ledger) == 10
