"""Random histories of a ledger beside an oracle: raw keys in float64, and a list of tokens with their positions.

The oracle knows no rotation but a fresh one: every key, from its raw float64 values, by the spec of now at the position
of now. It shares no code with the ledger.
"""

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.caches import KeyLedger
from phasor.rotary.axes import InterleavedSections, Sections
from phasor.rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, YaRN

HEADS, FEWEST = 16, 8  # keys and tokens, so that an error is the mean of some 2,000 roundings
LONG = LongRoPE((1.0,) * 8, tuple(1.0 + i for i in range(8)), 128, 4.0, attention=1.3, attention_short=1.1)

# Of each: the regimes that a history moves between.
FAMILIES: dict[str, tuple[RotarySpec, ...]] = {
    "plain": (RotarySpec(head_dim=16), RotarySpec(head_dim=16, base=500_000.0)),
    "interleaved": tuple(RotarySpec(head_dim=16, interleaved=True, scaling=s) for s in (None, NTK(4.0))),
    "partial": tuple(RotarySpec(head_dim=22, rotary_dim=16, scaling=s) for s in (None, Linear(4.0))),
    "latent": tuple(
        RotarySpec(head_dim=22, rotary_dim=16, trailing=True, interleaved=True, permuted=True, scaling=s)
        for s in (None, YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=0.7))
    ),
    "yarn": tuple(RotarySpec(head_dim=16, base=1e6, scaling=s) for s in (None, YaRN(4.0, 64), YaRN(16.0, 64))),
    "dynamic": tuple(RotarySpec(head_dim=16, scaling=DynamicNTK(2.0, 64)).at_length(n) for n in (60, 100, 1000)),
    "longrope": tuple(RotarySpec(head_dim=16, scaling=LONG).at_length(n) for n in (60, 1000)),
    "llama3": (RotarySpec(head_dim=16, scaling=Llama3(8.0, 1.0, 4.0, 64)),),
    "mrope": tuple(RotarySpec(head_dim=16, axes=Sections((4, 2, 2)), scaling=s) for s in (None, YaRN(4.0, 64))),
    "mrope interleaved": (RotarySpec(head_dim=16, axes=InterleavedSections((4, 2, 2))),),
    "blocks": tuple(RotarySpec(head_dim=16, blocks=2, reverse=True, base=b) for b in (1e4, 99.0)),
}  # fmt: skip


@dataclass
class Oracle:
    """Tokens ``(raw [B, H, D] float64, position [axes, B])``, in the order in which the ledger holds them."""

    tokens: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def raw(self) -> Tensor:
        return torch.stack([raw for raw, _ in self.tokens], dim=-2)

    def positions(self) -> Tensor:
        at = torch.stack([at for _, at in self.tokens], dim=-1)
        return at if len(at) > 1 else at[0]

    def keys(self, spec: RotarySpec, dtype: torch.dtype) -> Tensor:
        raw = self.raw().to(dtype)
        return apply_rotary(raw, Rotation.at(spec, self.positions(), dtype=dtype))


@dataclass
class History:
    """A ledger and its oracle; `step` does one random operation to both."""

    regimes: tuple[RotarySpec, ...]
    keep: str
    dice: random.Random
    batch: int = 2
    dtype: torch.dtype = torch.bfloat16
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = KeyLedger(self.regimes[0], keep=self.keep)
        self.oracle = Oracle()
        self.add(self.dice.randint(12, 24))

    def number(self) -> int:
        return self.dice.choice((1, -1)) * int(10 ** self.dice.uniform(0, 6))

    def free(self, count: int, after: int | None = None) -> Tensor:
        """``[axes, B, count]`` positions behind all others (of the oracle's own list)."""
        axes = self.ledger.spec.axes.count
        last = max((int(at.max()) for _, at in self.oracle.tokens), default=self.number()) if after is None else after
        gaps = torch.tensor([[self.dice.randint(1, 3) for _ in range(count)] for _ in range(self.batch)])
        along = last + gaps.cumsum(-1)
        return torch.stack([along + axis * self.dice.randint(0, 2) for axis in range(axes)])

    def raw(self, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.dice.getrandbits(40))
        width = self.regimes[0].head_dim
        return torch.randn(self.batch, HEADS, count, width, generator=generator).to(self.dtype)

    def slots(self) -> list[int]:
        count = len(self.oracle.tokens)
        return self.dice.sample(range(count), self.dice.randint(1, max(1, count // 2)))

    def given(self, at: Tensor) -> Tensor:
        return at if len(at) > 1 else at[0]

    # What a history is made of: each does to the oracle's list what its name says, and to the ledger.

    def add(self, count: int) -> None:
        k, at = self.raw(count), self.free(count)
        if self.keep == "residual" and self.dice.random() < 0.5:
            rotated = apply_rotary(k, Rotation.at(self.ledger.spec, self.given(at), dtype=self.dtype))
            self.ledger.append(rotated, self.given(at), rotated=True)
        else:
            self.ledger.append(k, self.given(at))
        self.oracle.tokens += [(k[:, :, i].double(), at[..., i]) for i in range(count)]

    def append(self) -> None:
        self.add(self.dice.randint(1, 4))

    def evict(self) -> None:
        gone = self.slots()
        if len(self.oracle.tokens) - len(gone) >= FEWEST:
            self.ledger.evict(gone)
            self.oracle.tokens = [t for i, t in enumerate(self.oracle.tokens) if i not in gone]

    def stream(self) -> None:
        tokens, sinks, window = self.oracle.tokens, self.dice.randint(0, 3), self.dice.randint(FEWEST, 16)
        self.ledger.stream(sinks, window)
        if len(tokens) > sinks + window:
            start = torch.stack([at for _, at in tokens[-window:]]).amin(0)
            moved = [(raw, start - (sinks - i)) for i, (raw, _) in enumerate(tokens[:sinks])]
            self.oracle.tokens = moved + tokens[-window:]

    def shift(self) -> None:
        by = tuple(self.number() for _ in range(self.ledger.spec.axes.count))
        self.ledger.shift(by if len(by) > 1 else by[0])
        self.oracle.tokens = [(raw, at + torch.tensor(by)[:, None]) for raw, at in self.oracle.tokens]

    def move(self) -> None:
        slots = self.slots()
        to = self.free(len(slots))
        self.ledger.move(self.given(to), torch.tensor(slots))
        for i, slot in enumerate(slots):
            self.oracle.tokens[slot] = (self.oracle.tokens[slot][0], to[..., i])

    def reuse(self) -> None:
        first = self.dice.randrange(len(self.oracle.tokens))
        chunk = self.oracle.tokens[first : first + 5]
        start = chunk[0][1]
        last = max(int(at.max()) for _, at in self.oracle.tokens)
        end = last + 1 - torch.stack([at - start for _, at in chunk]).amin((0, 2))
        self.ledger.reuse(self.ledger.cut(range(first, first + len(chunk))), tuple(end.tolist()))
        self.oracle.tokens += [(raw, at - start + end[:, None]) for raw, at in chunk]

    def roll_back(self) -> None:
        before, tokens = self.ledger.fork(), list(self.oracle.tokens)
        for name in self.dice.choices(("append", "shift", "evict", "change_spec"), k=2):
            getattr(self, name)()
        self.ledger, self.oracle.tokens = before, tokens

    def crop(self) -> None:
        length = self.dice.randint(FEWEST, len(self.oracle.tokens))
        self.ledger.crop(length)
        self.oracle.tokens = self.oracle.tokens[:length]

    def reorder(self) -> None:
        rows = torch.tensor([self.dice.randrange(self.batch) for _ in range(self.batch)])
        self.ledger.reorder(rows)
        self.oracle.tokens = [(raw[rows], at[:, rows]) for raw, at in self.oracle.tokens]

    def draft(self) -> None:
        count = self.dice.randint(1, 5)
        parents = [self.dice.randint(-1, i - 1) for i in range(count)]
        k = self.raw(count)
        last = self.oracle.positions().reshape(-1, self.batch, len(self.oracle.tokens)).amax(-1)
        self.ledger.draft(k, parents)
        depth = [0] * count
        for i, parent in enumerate(parents):
            depth[i] = 1 + (depth[parent] if parent >= 0 else 0)
        path = [self.dice.randrange(count)]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        self.ledger.accept(path)
        self.oracle.tokens += [(k[:, :, i].double(), last + depth[i]) for i in path]

    def change_spec(self) -> None:
        self.ledger.change_spec(self.dice.choice(self.regimes))

    STEPS = (
        "append",
        "evict",
        "stream",
        "shift",
        "move",
        "reuse",
        "roll_back",
        "crop",
        "reorder",
        "draft",
        "change_spec",
    )

    def step(self) -> None:
        name = self.dice.choice(self.STEPS)
        self.done.append(name)
        getattr(self, name)()

    def errors(self) -> tuple[float, float]:
        """Relative to the oracle in float64: of the ledger's keys, and of a fresh rotation of the raw ones."""
        truth = self.oracle.keys(self.ledger.spec, torch.float64)
        fresh = self.oracle.keys(self.ledger.spec, self.dtype)
        mine, theirs = (float((k.double() - truth).norm() / truth.norm()) for k in (self.ledger.keys, fresh))
        return mine, theirs


def history(seed: int, keep: str) -> tuple[str, History]:
    """The history of that seed, and its family."""
    dice = random.Random(seed)
    name = dice.choice(list(FAMILIES))
    return name, History(FAMILIES[name], keep, dice, batch=dice.randint(1, 3))
