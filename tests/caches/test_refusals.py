"""Whatever a ledger has gone through, what it refuses is one line, and leaves every tensor as it was."""

import random
from functools import partial

import pytest
import torch

from phasor import RotarySpec
from phasor.caches import KeyLedger
from phasor.rotary.axes import Axial
from phasor.rotary.scaling import DynamicNTK
from refused import wrong

from .histories import History, history

FAR = 2**32
# A call of a ledger in the middle of its history, with two new tokens, and what it is refused with.
CALLS = {
    "held already": (lambda x, one, k, at: x.append(k, x.positions[..., -2:]), "must belong to one token each"),
    "one position for two": (lambda x, one, k, at: x.append(k, at[..., :1].expand_as(at)), "belong to one token each"),
    "a draft is open elsewhere": (lambda x, one, k, at: x.accept([0]), "must be one of drafts, and there are none"),
    "another dtype": (
        lambda x, one, k, at: x.append(k.double(), at), "k must be of the (batch, heads, dtype, device) of the ledger"
    ),
    "another row": (lambda x, one, k, at: x.append(k[:1].repeat(one.batch + 1, 1, 1, 1), at), "must be"),
    "fewer heads": (lambda x, one, k, at: x.append(k[:, 1:], at), "k must be of the (batch, heads, dtype, device)"),
    "fewer channels": (lambda x, one, k, at: x.append(k[..., 2:], at), "k must be [batch, heads, tokens, "),
    "integers": (lambda x, one, k, at: x.append(k.long(), at), "k must be float64, float32, float16 or bfloat16"),
    "values": (lambda x, one, k, at: x.append(k, at, k), "v must be given for all tokens of a ledger or for none"),
    "fewer positions": (lambda x, one, k, at: x.append(k, at[..., :1]), "positions must be ["),
    "real positions": (lambda x, one, k, at: x.append(k, at.float()), "positions must be integers"),
    "onto another": (lambda x, one, k, at: x.move(x.positions[..., 1:2], [0]), "positions must belong to one token"),
    "too far": (lambda x, one, k, at: x.move(x.positions + FAR), "positions before and after a move must be at most"),
    "one too far": (lambda x, one, k, at: x.move(x.positions[..., -1:] + FAR, [len(x) - 1]), "after a move must be at"),
    "shifted too far": (lambda x, one, k, at: x.shift(2**31 + 1), "by must be one integer"),
    "a token that is not held": (lambda x, one, k, at: x.evict([0, len(x)]), "slots must be from 0 to "),
    "a token before the first": (lambda x, one, k, at: x.evict([-1]), "which are held, got -1"),
    "a token twice": (lambda x, one, k, at: x.evict([0, 0]), "slots must name every token once"),
    "half a token": (lambda x, one, k, at: x.evict(torch.tensor([0.5])), "slots must be a range, a list or a tensor"),
    "none, which is every index": (lambda x, one, k, at: x.evict(None), "slots must be a range, a list or a tensor of"),
    "longer": (lambda x, one, k, at: x.crop(len(x) + 1), "length must be at most the "),
    "shorter than nothing": (lambda x, one, k, at: x.crop(-1), "length must be an integer of at least 0, got -1"),
    "no window": (lambda x, one, k, at: x.stream(1, 0), "window must be an integer of at least 1, got 0"),
    "a row that is not there": (lambda x, one, k, at: x.reorder(torch.tensor([0, one.batch])), "rows must be from 0"),
    "a list of rows": (lambda x, one, k, at: x.reorder([0]), "rows must be a tensor of integers [rows]"),
    "a chunk over tokens": (lambda x, one, k, at: x.reuse(x.cut([0]), last(x)), "positions must belong to one token"),
    "a chunk of another model": (
        lambda x, one, k, at: x.reuse(other(x, one, k), (FAR,) * x.spec.axes.count), "chunk must be of the same model"
    ),
    "a chunk without its raw keys": (lambda x, one, k, at: x.reuse(without_raw(x), (1.5,)), "must"),
    "no chunk": (lambda x, one, k, at: x.reuse(None, 50), "chunk must be a KeyLedger that holds tokens, got NoneType"),
    "an empty chunk": (lambda x, one, k, at: x.reuse(KeyLedger(x.spec), 50), "chunk must be a KeyLedger that holds"),
    "frequencies of no length": (
        lambda x, one, k, at: x.change_spec(x.spec.replace(scaling=DynamicNTK(2.0, 64))), "spec must be at one length"
    ),
    "other pairs": (
        lambda x, one, k, at: x.change_spec(RotarySpec(head_dim=4, interleaved=True)), "old and new must agree in ("
    ),
    "no inverse": (lambda x, one, k, at: x.change_spec(RotarySpec(head_dim=8, axes=Axial(2), second=Axial(2))), "must"),
    "no tree": (lambda x, one, k, at: x.draft(k, [-1, 1]), "parents[1] must be an earlier draft or -1, got 1"),
    "a tree of one": (lambda x, one, k, at: x.draft(k, [-1]), "must have one entry for each of 2 drafts, got 1"),
}  # fmt: skip


def other(x: KeyLedger, one: History, k: torch.Tensor) -> KeyLedger:
    chunk = KeyLedger(x.spec.replace(base=x.spec.base + 1), keep=x.keep)
    chunk.append(k, torch.arange(2).expand(x.spec.axes.count, one.batch, 2)[(0,) * (x.spec.axes.count == 1)])
    return chunk


def last(x: KeyLedger) -> tuple[int, ...]:
    """Where the last token of the first row stands."""
    at = x.positions if x.positions.ndim == 3 else x.positions[None]
    return tuple(at[:, 0, -1].tolist())


def without_raw(x: KeyLedger) -> KeyLedger:
    chunk = x.cut([0])
    chunk.keep = "residual"
    return chunk


def state(x: KeyLedger) -> tuple:
    held, origin = x._held, x._held.origin
    moved = () if origin is None else (origin.slots, origin.keys, origin.positions, origin.regime)
    return (x.spec, held.parents, None if origin is None else origin.regimes), (held.keys, held.positions, *moved)


@pytest.mark.parametrize("keep", ["raw", "residual"])
def test_bad_input_anywhere_in_a_history_changes_nothing(keep):
    for seed in range(24):
        name, one = history(seed, keep)
        for _ in range(random.Random(seed).randint(0, 9)):
            one.step()
        ledger, (k, at) = one.ledger, (one.raw(2), one.given(one.free(2)))
        said, tensors = state(ledger)
        copies = [t.clone() for t in tensors]
        for what, (call, says) in CALLS.items():
            assert not (found := wrong(partial(call, ledger, one, k, at), [says])), (name, what, found)
            now, after = state(ledger)
            assert now == said and all(map(torch.equal, copies, after)), (name, what, one.done)
        ledger.append(k, at)  # and what is right still is
        one.oracle.tokens += [(k[:, :, i].double(), at.view(-1, one.batch, 2)[..., i]) for i in range(2)]
        mine, fresh = one.errors()
        assert mine <= 1.6 * fresh
