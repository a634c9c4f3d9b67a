"""Rotary code as a port writes it, one stage a field, and every mistake as a change of one stage; without phasor.

A cell of the matrix is a setting (layout and scaling), one or two mistakes, the arithmetic of the port, and the kind of
vectors under whose names the outputs are given.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from phasor import ModelRotary, RotarySpec
from phasor.axes import Sections
from phasor.scaling import Linear, Llama3, YaRN
from phasor.tools.golden import GoldenReport, check, write

from .conftest import load

WIDTH = 64  # of a head
NONE, YARN, LLAMA3 = {}, {"factor": 4.0, "trained": 4096, "fast": 32.0, "slow": 1.0}, \
    {"factor": 8.0, "low": 1.0, "high": 4.0, "trained": 8192}  # fmt: skip
LINEAR = {"factor": 4.0}


def own(x: Tensor) -> Tensor:
    return x


def yarn(f: Tensor, base: float, width: int, s: dict[str, float]) -> Tensor:
    """The authors' code, github.com/jquesnelle/yarn."""

    def pair(turns: float) -> float:
        return width * math.log(s["trained"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    if s.get("paper"):
        turns = s["trained"] * f / (2 * math.pi)
        ramp = 1 - ((turns - s["slow"]) / (s["fast"] - s["slow"])).clamp(0, 1)
    else:
        low, high = pair(s["fast"]), pair(s["slow"])
        low, high = (low, high) if s.get("exact") else (math.floor(low), math.ceil(high))
        low, high = max(low, 0), min(high, width - 1)
        ramp = ((torch.arange(len(f), dtype=torch.float64) - low) / (high - low or 0.001)).clamp(0, 1)
    ramp = 1 - ramp if s.get("reversed") else ramp
    return f * (1 - ramp) + f / s["factor"] * ramp


def llama3(f: Tensor, base: float, width: int, s: dict[str, float]) -> Tensor:
    """Meta's code, llama_models' ``apply_scaling``."""
    out = []
    for one in f.tolist():
        wave = 2 * math.pi / one
        smooth = (s["trained"] / wave - s["low"]) / (s["high"] - s["low"])
        smooth = 1 - smooth if s.get("reversed") else smooth
        if wave < s["trained"] / s["high"]:
            out.append(one)
        elif wave > s["trained"] / s["low"]:
            out.append(one / s["factor"])
        else:
            out.append((1 - smooth) * one / s["factor"] + smooth * one)
    return torch.tensor(out, dtype=torch.float64)


def linear(f: Tensor, base: float, width: int, s: dict[str, float]) -> Tensor:
    return f / s["factor"]


def rotated(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, b * cos + a * sin


def tf32(x: Tensor) -> Tensor:
    """To the 10 bits of mantissa that a tensor core takes, ties away from zero (PTX ISA, ``cvt.rna.tf32``)."""
    bits = x.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def bf16(x: Tensor) -> Tensor:
    return x.bfloat16().double()


@dataclasses.dataclass
class Port:
    """What a port does, stage by stage. ``owner``: the axis of each pair."""

    base: float = 500_000.0
    width: int = WIDTH
    interleaved: bool = False
    scale: Callable[..., Tensor] | None = None
    scaling: dict[str, float] = dataclasses.field(default_factory=dict)
    owner: list[int] | None = None
    exponent_dim: int = 0
    first: int = 0
    factor: float = 1.0
    places: Callable[[Tensor], Tensor] = own
    ladder: Callable[[Tensor], Tensor] = own
    unit: float = 1.0
    tables: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda c, s: (c, s)
    crossed: bool = False
    turn: Callable[..., tuple[Tensor, Tensor]] = rotated
    keys: Callable[["Port"], "Port"] | None = None
    results: Callable[[Tensor], Tensor] = own
    operand: Callable[[Tensor], Tensor] = own
    angle: Callable[[Tensor], Tensor] = own
    table: Callable[[Tensor], Tensor] = own
    work: torch.dtype = torch.float64
    half: bool = False
    once: torch.dtype | None = None  # to which results are rounded, once

    def frequencies(self, width: int) -> Tensor:
        f = self.base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / (self.exponent_dim or width))
        return self.ladder(
            f if self.scale is None else self.scale(f, self.base, self.exponent_dim or width, self.scaling)
        )

    def cos_sin(self, p: Tensor) -> tuple[Tensor, Tensor]:
        f, at = self.operand(self.frequencies(self.width)).to(self.work), self.places(p).to(self.work)
        at = self.operand(at).to(self.work)
        rows = at[[0] * len(f) if self.owner is None else self.owner[: len(f)]].T
        angles = self.angle(rows * f).to(self.work) * self.unit
        cos, sin = (angles.cos() * self.factor).to(self.work), (angles.sin() * self.factor).to(self.work)
        cos, sin = self.tables(cos, sin)
        return self.table(cos), self.table(sin)

    def __call__(self, p: Tensor, x: Tensor) -> Tensor:
        cos, sin = self.cos_sin(p)
        work = torch.bfloat16 if self.half else torch.promote_types(cos.dtype, torch.float32)
        x, cos, sin = x.to(work), cos.to(work), sin.to(work)
        here = slice(self.first, self.first + self.width)
        part, y = x[..., here], x.clone()
        n = self.width // 2
        a, b = (part[..., 0::2], part[..., 1::2]) if self.interleaved else (part[..., :n], part[..., n:])
        if self.crossed:
            wide = [t.repeat_interleave(2, -1) if not self.interleaved else torch.cat((t, t), -1) for t in (cos, sin)]
            cut = [(t[..., 0::2], t[..., 1::2]) if self.interleaved else (t[..., :n], t[..., n:]) for t in wide]
            (c, d), (s, t) = cut
            u, v = a * c - b * s, b * d + a * t
        else:
            u, v = self.turn(a, b, cos, sin)
        y[..., here] = torch.stack((u, v), -1).flatten(-2) if self.interleaved else torch.cat((u, v), -1)
        return self.results(y)


# --- settings: a spec, and the port that is right for it ---

OWNER = [0] * 8 + [1] * 12 + [2] * 12
LAYOUTS = {
    "halves": ({}, {}),
    "interleaved": ({"interleaved": True}, {"interleaved": True}),
    "partial": ({"rotary_dim": 32}, {"width": 32}),
    "axes": ({"axes": Sections((8, 12, 12))}, {"owner": OWNER}),
}
MSCALE = 0.1 * math.log(4.0) + 1
SCALINGS = {
    "plain": (None, {}),
    "yarn": (YaRN(4.0, 4096), {"scale": yarn, "scaling": YARN, "factor": MSCALE}),
    "llama3": (Llama3(8.0, 1.0, 4.0, 8192), {"scale": llama3, "scaling": LLAMA3}),
    "linear": (Linear(4.0), {"scale": linear, "scaling": LINEAR}),
}  # fmt: skip
SETTINGS = [*itertools.product(LAYOUTS, SCALINGS)]
MODES = ("exact", "model")
FINE = ("named", "not shown")


def model(layout: str, scaling: str) -> ModelRotary:
    base = 10_000.0 if scaling == "yarn" else 500_000.0
    spec = RotarySpec(head_dim=WIDTH, base=base, scaling=SCALINGS[scaling][0], **LAYOUTS[layout][0])
    length = 8192 if scaling == "plain" else 32_768
    fields = {"layers": (spec,), "layer_types": ("attention",), "num_heads": 2, "max_position": length}
    return ModelRotary(model_type="port", **fields)


def right(layout: str, scaling: str) -> Port:
    """The port without a mistake."""
    base = 10_000.0 if scaling == "yarn" else 500_000.0
    return Port(base=base, **LAYOUTS[layout][1], **SCALINGS[scaling][1])


# --- the arithmetic of a port ---

ARITHMETIC = {
    "float64": {},
    "float32": {"work": torch.float32},
    "bfloat16": {"work": torch.float32, "half": True},
}
COARSE = {  # angles that are themselves a mistake
    "bfloat16 angles": {"operand": bf16, "angle": bf16},
    "TF32 angles": {"operand": tf32, "work": torch.float32},
}


# --- mistakes: cause, and the change; None where the setting has nothing to be mistaken in ---

Change = Callable[[Port], Port | None]


def set_(**changes: object) -> Change:
    return lambda port: dataclasses.replace(port, **changes)  # type: ignore[arg-type]


def positions(change: Callable[[Tensor], Tensor]) -> Change:
    return lambda port: dataclasses.replace(port, places=lambda p, before=port.places: change(before(p)))


def scaled(scheme: Callable[..., Tensor], **changes: object) -> Change:
    """Another parameter of one scheme."""
    return lambda port: dataclasses.replace(port, scaling={**port.scaling, **changes}) if port.scale is scheme else None


def some(port: Port, condition: bool, **changes: object) -> Port | None:
    return dataclasses.replace(port, **changes) if condition else None  # type: ignore[arg-type]


def in_place(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    u = a * cos - b * sin
    return u, b * cos + u * sin


def in_place_second(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    v = b * cos + a * sin
    return a * cos - v * sin, v


def no_minus(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos + b * sin, b * cos + a * sin


def two_minuses(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, b * cos - a * sin


def on_keys(change: Change) -> Change:
    return lambda port: None if change(port) is None else dataclasses.replace(port, keys=change)  # type: ignore[arg-type]


def other_row(p: Tensor) -> Tensor:
    """Those of a row with three tokens of padding on its left."""
    return (p - 3).clamp(min=0)


def many_tables(rows: int) -> Change:
    return positions(lambda p: p.clamp(max=rows - 1))


MISTAKES: dict[str, tuple[str, Change]] = {
    "layout": ("layout", lambda p: dataclasses.replace(p, interleaved=not p.interleaved)),
    "tables of the other layout": ("layout", lambda p: some(p, p.owner is None, crossed=True)),
    "backwards": ("direction", lambda p: dataclasses.replace(p, turn=lambda a, b, c, s: rotated(a, b, c, -s))),
    "overwritten in place": ("in_place", set_(turn=in_place)),
    "second overwritten in place": ("in_place", set_(turn=in_place_second)),
    "minus lost": ("lost_minus", set_(turn=no_minus)),
    "minus on the wrong half": ("lost_minus", set_(turn=two_minuses)),
    "cos and sin exchanged": ("cos_sin", set_(tables=lambda c, s: (s, c))),
    "degrees for radians": ("degrees", set_(unit=math.pi / 180)),
    "radians for degrees": ("degrees", set_(unit=180 / math.pi)),
    "not rotated": ("not_rotated", set_(turn=lambda a, b, c, s: (a, b))),
    "keys not rotated": ("not_rotated", on_keys(set_(turn=lambda a, b, c, s: (a, b)))),
    "rotated twice": ("positions", positions(lambda p: 2 * p)),
    "base": ("base", set_(base=100_000.0)),
    "ladder reversed": ("ladder_reversed", set_(ladder=lambda f: f.flip(0))),
    "pairs from 1": ("pair_index", lambda p: some(p, p.scale is None, ladder=lambda f: f * (f[1] / f[0]))),
    "positions + 1": ("positions", positions(lambda p: p + 1)),
    "positions + 3": ("positions", positions(lambda p: p + 3)),
    "positions counted": ("positions", positions(lambda p: torch.arange(p.shape[1]).expand(p.shape))),
    "positions int16": ("positions", positions(lambda p: p.to(torch.int16).long())),
    "positions uint8": ("positions", positions(lambda p: p.to(torch.uint8).long())),
    "positions of another row": ("positions", positions(other_row)),
    "positions in another order": ("positions", positions(lambda p: p.flip(1))),
    "tables cut at 4096, clamped": ("positions", many_tables(4096)),
    "tables cut at 128, clamped": ("positions", many_tables(128)),
    "tables cut at 4096, wrapped": ("positions", positions(lambda p: p % 4096)),
    "tables cut at 512, wrapped": ("positions", positions(lambda p: p % 512)),
    "positions in bfloat16": ("low_precision", positions(lambda p: p.bfloat16().double())),
    "tables in bfloat16": ("low_precision", set_(table=bf16)),
    "frequencies in bfloat16": ("low_precision", set_(ladder=bf16)),
    "softmax scale inside": ("factor", set_(results=lambda y: y / 8)),
    "heads rolled": ("heads", set_(results=lambda y: y.roll(1, 1))),
    "tokens rolled": ("positions", positions(lambda p: p.roll(1, 1))),
    "all channels": ("rotary_dim", lambda p: some(p, p.width < WIDTH, width=WIDTH)),
    "half the channels": ("rotary_dim", lambda p: some(p, p.width == WIDTH and p.owner is None, width=WIDTH // 2)),
    "exponents over the head": ("rotary_dim", lambda p: some(p, p.width < WIDTH, exponent_dim=WIDTH)),
    "trailing": ("trailing", lambda p: some(p, p.width < WIDTH, first=WIDTH - p.width)),
    "scaling ignored": ("scaling", lambda p: some(p, p.scale is not None, scale=None, factor=1.0)),
    "scaling of frequencies ignored": ("scaling", lambda p: some(p, p.factor != 1, scale=None)),
    "linear instead": ("scaling", lambda p: some(p, p.scale not in (None, linear), scale=linear, factor=1.0)),
    "factor 2": ("scaling", lambda p: some(p, p.scale is not None, scaling={**p.scaling, "factor": 2.0},
                                           factor=1.0 if p.factor == 1 else 0.1 * math.log(2) + 1)),
    "frequencies multiplied by the factor": ("scaling", scaled(linear, factor=0.25)),
    "llama3 bounds swapped": ("scaling", scaled(llama3, low=4.0, high=1.0)),
    "llama3 smoothing reversed": ("scaling", scaled(llama3, reversed=True)),
    "llama3 low 2": ("scaling", scaled(llama3, low=2.0)),
    "llama3 high 8": ("scaling", scaled(llama3, high=8.0)),
    "llama3 trained length 131072": ("scaling", scaled(llama3, trained=131_072)),
    "llama3 trained length 4096": ("scaling", scaled(llama3, trained=4096)),
    "yarn bounds swapped": ("scaling", scaled(yarn, fast=1.0, slow=32.0)),
    "yarn ramp reversed": ("scaling", scaled(yarn, reversed=True)),
    "yarn fast 16": ("scaling", scaled(yarn, fast=16.0)),
    "yarn slow 2": ("scaling", scaled(yarn, slow=2.0)),
    "yarn trained length 16384": ("scaling", scaled(yarn, trained=16_384)),
    "yarn trained length 2048": ("scaling", scaled(yarn, trained=2048)),
    "yarn bounds not rounded": ("yarn_truncate", scaled(yarn, exact=True)),
    "yarn of the paper": ("scaling", scaled(yarn, paper=True)),
    "attention factor dropped": ("attention_factor", lambda p: some(p, p.factor != 1, factor=1.0)),
    "attention factor twice": ("attention_factor", lambda p: some(p, p.factor != 1, factor=p.factor**2)),
    "attention factor on k only": ("attention_factor", lambda p: some(
        p, p.factor != 1, factor=1.0, keys=lambda k, own=p.factor: dataclasses.replace(k, factor=own))),
    "attention factor on cos only": ("attention_factor", lambda p: some(
        p, p.factor != 1, factor=1.0, tables=lambda c, s, own=p.factor: (c * own, s))),
    "axes in reverse": ("axes", lambda p: some(p, p.owner is not None, owner=[2 - a for a in OWNER])),
    "axes, height and width swapped": ("axes", lambda p: some(
        p, p.owner is not None, owner=[(0, 2, 1)[a] for a in OWNER])),
    "all pairs by the first axis": ("axes", lambda p: some(p, p.owner is not None, owner=[0] * 32)),
    "axes by turns": ("axes", lambda p: some(p, p.owner is not None, owner=[i % 3 for i in range(32)])),
    "sections of other sizes": ("axes", lambda p: some(p, p.owner is not None, owner=[0] * 12 + [1] * 8 + [2] * 12)),
}  # fmt: skip


def outputs(port: Port, v: dict[str, Tensor], mode: str) -> dict[str, Tensor]:
    """What this port gives for the golden inputs, by the names under which it would be compared."""
    p = v["positions"].reshape(-1, v["positions"].shape[-1])
    on_k = port if port.keys is None else port.keys(port)
    half = port.half or port.once is not None
    name = f"attention.{mode}.{'bfloat16' if half else 'float32'}"
    given = {f"{name}.q_out": port(p, v["q_in"]), f"{name}.k_out": on_k(p, v["k_in"])}
    return {n: t if port.half else t.to(port.once or torch.float32) for n, t in given.items()}


# --- sound variants: ports that are right, each rounding in its own way ---


def in_complex_numbers(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.complex(a.float(), b.float()) * torch.complex(cos.float(), sin.float())
    return y.real, y.imag


def fused(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """One product rounded, the other exact inside the sum."""
    ac, bc = a * cos, b * cos
    u, v = ac.double() - b.double() * sin.double(), bc.double() + a.double() * sin.double()
    return u.to(ac.dtype), v.to(ac.dtype)


def by_differences(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """With three products."""
    w = sin * (a + b)
    return a * (cos + sin) - w, b * (cos - sin) + w


def neighbours(f: Tensor) -> Tensor:
    """Float32 frequencies, every other one a step lower: another library's powers."""
    f = f.float()
    return torch.where(torch.arange(len(f)) % 2 == 0, f, torch.nextafter(f, f * 0)).double()


FLOAT32 = {"work": torch.float32}
SOUND = {
    **ARITHMETIC,
    "float32 angles, the rest in float64": {
        "angle": lambda a: a.float().double(), "ladder": lambda f: f.float().double()},
    "float32 tables of exact angles": {"table": lambda t: t.float()},
    "neighbouring frequencies": {**FLOAT32, "ladder": neighbours},
    "complex numbers": {**FLOAT32, "turn": in_complex_numbers},
    "fused": {**FLOAT32, "turn": fused},
    "three products": {**FLOAT32, "turn": by_differences},
    "rounded once to bfloat16": {**FLOAT32, "once": torch.bfloat16},
    "float64, rounded once to bfloat16": {"once": torch.bfloat16},
    "rounded once to float16": {**FLOAT32, "once": torch.float16},
    "float64, rounded once to float16": {"once": torch.float16},
    "bfloat16, fused": {**ARITHMETIC["bfloat16"], "turn": fused},
    "bfloat16 of exact angles": {"half": True},
}  # fmt: skip


# --- cells and what may be said of them ---


def broken(layout: str, scaling: str, *mistakes: str, **arithmetic: object) -> Port | None:
    """The port with these mistakes; None where one of them is none there, or overwrites another."""
    port: Port | None = dataclasses.replace(right(layout, scaling), **arithmetic)  # type: ignore[arg-type]
    touched: set[str] = set()
    for mistake in mistakes:
        changed = None if port is None else MISTAKES[mistake][1](port)
        if port is None or changed is None:
            return None
        fields = {name for name, value in vars(changed).items() if value is not getattr(port, name)}
        if touched & fields - {"places", "ladder"}:  # these two stand one behind the other
            return None
        port, touched = changed, touched | fields
    return port


def cells(arithmetic: Iterable[str]) -> list[tuple[str, str, str, str, str]]:
    """Layout, scaling, mistake, arithmetic, kind of vectors; only where the mistake is one."""
    return [
        (*setting, mistake, kind, mode)
        for setting, mistake in itertools.product(SETTINGS, MISTAKES)
        if broken(*setting, mistake) is not None
        for kind, mode in itertools.product(arithmetic, MODES)
        if not (kind == "bfloat16" and mistake == "tables in bfloat16")  # which is right there
    ]


def pairs() -> list[tuple[str, str, str, str, str, str]]:
    """Layout, scaling, two mistakes of different causes, arithmetic, kind of vectors."""
    return [
        (*setting, a, b, kind, mode)
        for setting, (a, b) in itertools.product(SETTINGS, itertools.combinations(MISTAKES, 2))
        if MISTAKES[a][0] != MISTAKES[b][0] and broken(*setting, a, b) is not None
        for kind, mode in itertools.product(ARITHMETIC, MODES)
    ]


def judged(report: GoldenReport, *causes: str) -> str:
    """How well a report names these causes: "named", "not shown", "several" (of which the larger is named), "one" (of
    two), "unknown", "wrong" (another cause), or "missed"."""
    found = [f.cause for f in report.findings if f.verdict == "wrong"]
    if not found:
        return "missed"
    words = [set(word.split("|")) for word in found[0].split("+")]
    if words in ([{"unknown"}], [{"value"}]):
        return "unknown"
    if not all(word & {*causes, "unknown"} for word in words):
        return "wrong"
    if {"unknown"} in words:
        return "several"
    if not all(any(cause in word for word in words) for cause in causes):
        return "one"
    return "not shown" if any(len(word) > 1 for word in words) else "named"


class Matrix:
    """Golden vectors of every setting, and what `check` says of a cell."""

    def __init__(self, folder: Path) -> None:
        self.folders = {s: write(model(*s), folder / "-".join(s)) for s in SETTINGS}
        self.vectors = {s: load(self.folders[s]) for s in SETTINGS}

    def report(self, layout: str, scaling: str, mode: str, *mistakes: str, **arithmetic: object) -> GoldenReport:
        port = broken(layout, scaling, *mistakes, **arithmetic)
        assert port is not None
        return check(self.folders[layout, scaling], outputs(port, self.vectors[layout, scaling], mode))

    def cell(self, layout: str, scaling: str, *rest: str) -> str:
        """What is said of one or two mistakes, an arithmetic and a kind of vectors; coarse angles are a mistake too."""
        *mistakes, kind, mode = rest
        report = self.report(layout, scaling, mode, *mistakes, **{**ARITHMETIC, **COARSE}[kind])
        return judged(report, *(MISTAKES[m][0] for m in mistakes), *(["low_precision"] if kind in COARSE else []))
