"""Whatever a ledger has gone through, what it refuses is one line, and leaves every tensor as it was."""

import random

import pytest
import torch

from phasor import RotarySpec
from phasor.caches import KeyLedger
from phasor.rotary.axes import Axial
from phasor.rotary.scaling import DynamicNTK

from .histories import History, history

FAR = 2**32
CALLS = {
    "held already": lambda x, one, k, at: x.append(k, x.positions[..., -2:]),
    "one position for two": lambda x, one, k, at: x.append(k, at[..., :1].expand_as(at)),
    "a draft is open elsewhere": lambda x, one, k, at: x.accept([0]),
    "another dtype": lambda x, one, k, at: x.append(k.double(), at),
    "another row": lambda x, one, k, at: x.append(k[:1].repeat(one.batch + 1, 1, 1, 1), at),
    "fewer heads": lambda x, one, k, at: x.append(k[:, 1:], at),
    "fewer channels": lambda x, one, k, at: x.append(k[..., 2:], at),
    "integers": lambda x, one, k, at: x.append(k.long(), at),
    "values": lambda x, one, k, at: x.append(k, at, k),
    "fewer positions": lambda x, one, k, at: x.append(k, at[..., :1]),
    "real positions": lambda x, one, k, at: x.append(k, at.float()),
    "onto another": lambda x, one, k, at: x.move(x.positions[..., 1:2], [0]),
    "too far": lambda x, one, k, at: x.move(x.positions + FAR),
    "one too far": lambda x, one, k, at: x.move(x.positions[..., -1:] + FAR, [len(x) - 1]),
    "shifted too far": lambda x, one, k, at: x.shift(2**31 + 1),
    "a token that is not held": lambda x, one, k, at: x.evict([0, len(x)]),
    "a token before the first": lambda x, one, k, at: x.evict([-1]),
    "a token twice": lambda x, one, k, at: x.evict([0, 0]),
    "longer": lambda x, one, k, at: x.crop(len(x) + 1),
    "no window": lambda x, one, k, at: x.stream(1, 0),
    "a row that is not there": lambda x, one, k, at: x.reorder(torch.tensor([0, one.batch])),
    "a chunk over tokens": lambda x, one, k, at: x.reuse(x.cut([0]), last(x)),
    "a chunk of another model": lambda x, one, k, at: x.reuse(other(x, one, k), (FAR,) * x.spec.axes.count),
    "a chunk without its raw keys": lambda x, one, k, at: x.reuse(without_raw(x), (1.5,)),
    "frequencies of no length": lambda x, one, k, at: x.change_spec(x.spec.replace(scaling=DynamicNTK(2.0, 64))),
    "other pairs": lambda x, one, k, at: x.change_spec(RotarySpec(head_dim=4, interleaved=True)),
    "no inverse": lambda x, one, k, at: x.change_spec(RotarySpec(head_dim=8, axes=Axial(2), second=Axial(2))),
    "no tree": lambda x, one, k, at: x.draft(k, [-1, 1]),
    "a tree of one": lambda x, one, k, at: x.draft(k, [-1]),
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
        for what, call in CALLS.items():
            with pytest.raises(ValueError, match=r"must|needs|first") as refusal:
                call(ledger, one, k, at)
            assert "\n" not in str(refusal.value), (name, what)
            now, after = state(ledger)
            assert now == said and all(map(torch.equal, copies, after)), (name, what, one.done)
        ledger.append(k, at)  # and what is right still is
        one.oracle.tokens += [(k[:, :, i].double(), at.view(-1, one.batch, 2)[..., i]) for i in range(2)]
        mine, fresh = one.errors()
        assert mine <= 1.6 * fresh
