"""The law of the eye: what it says of a model is the truth, or it says that it was not shown. Never something else.

What the eye gives is read in one place, `look`; the law knows `View` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eye.truth import PARTS, Case, Other, Site, Turn


@dataclass(frozen=True)
class Operator:
    """What was seen to happen to one operand: ``angles`` and ``scale`` are [heads, pairs, tokens]."""

    pairs: list[tuple[int, int]]
    passing: list[int]
    angles: Tensor
    scale: Tensor


@dataclass(frozen=True)
class SeenSite:
    where: str
    operators: dict[str, Operator | None]


@dataclass(frozen=True)
class View:
    sites: list[SeenSite]
    rotary: Any
    missing: list[str]


def look(case: Case) -> View:
    """The one place that knows the form of what `phasor.observe` gives."""
    import phasor

    def operator(side: Any) -> Operator | None:
        seen = side.operator
        if seen is None or not side.turns:
            return None
        angles, scale = (torch.as_tensor(x, dtype=torch.float64) for x in (seen.angles, seen.scale))
        return Operator([tuple(pair) for pair in seen.pairs], list(seen.passing), angles, scale)

    seen = phasor.observe(case.model(), case.inputs)
    sites = [SeenSite(s.where, {part: operator(getattr(s, part)) for part in PARTS}) for s in seen.sites]
    return View(sites, seen.rotary, list(seen.missing))


@dataclass(frozen=True)
class Planes:
    """An operator in a form in which two can be compared: what stands still at every token passes."""

    rows: dict[tuple[int, int], tuple[Tensor, Tensor]]  # pair: angles, scales, each [heads, tokens]
    passing: set[int]


def planes(pairs, passing, angles: Tensor, scale: Tensor) -> Planes:
    rows, still = {}, set(passing)
    for i, (a, b) in enumerate(pairs):
        if bool((torch.exp(1j * angles[:, i]) - 1).abs().max() < 1e-12):
            still |= {a, b}
        else:
            rows[min(a, b), max(a, b)] = (angles[:, i] if a < b else -angles[:, i], scale[:, i])
    return Planes(rows, still)


def of_truth(truth: Turn | Other | None) -> Planes | None:
    if not isinstance(truth, Turn):
        return None
    return planes(truth.pairs, truth.passing, truth.angles(), truth.scales())


def of_operator(seen: Operator | None) -> Planes | None:
    found = None if seen is None else planes(seen.pairs, seen.passing, seen.angles, seen.scale)
    return found if found and found.rows else None


def standing(truth: Planes) -> bool:
    """Whether it is the same at every token: nothing of positions is in it."""
    return all(bool((angles - angles[:, :1]).abs().max() < 1e-12) for angles, _ in truth.rows.values())


def difference(seen: Planes, truth: Planes, tolerance: float) -> str:
    """What is said otherwise, or nothing."""
    if set(seen.rows) != set(truth.rows):
        return f"the pairs {sorted(seen.rows)}, not {sorted(truth.rows)}"
    if seen.passing != truth.passing:
        return f"the passing channels {sorted(seen.passing)}, not {sorted(truth.passing)}"
    for pair, (angles, scales) in truth.rows.items():
        ours = as_many_heads(angles, seen.rows[pair][0]), as_many_heads(scales, seen.rows[pair][1])
        if ours[0] is None or not of_runs(*seen.rows[pair], *ours, tolerance):
            return f"pair {pair} as {seen.rows[pair]}, not {angles, scales}"
    return ""


def as_many_heads(truth: Tensor, seen: Tensor) -> Tensor | None:
    """The truth for as many heads as were seen: keys may be seen before or after they are repeated."""
    if len(truth) == 1:
        return truth.expand(len(seen), -1)
    return truth.repeat_interleave(len(seen) // len(truth), 0) if len(seen) % len(truth) == 0 else None


def of_runs(angles: Tensor, scales: Tensor, true_angles: Tensor, true_scales: Tensor, tolerance: float) -> bool:
    """Whether each head's angles and scales are those of all tokens, or of a run of them (queries in chunks)."""
    seen, true = torch.polar(scales, angles)[:, None], torch.polar(true_scales, true_angles)
    if seen.shape[-1] > true.shape[-1]:
        return False
    runs = true.unfold(-1, seen.shape[-1], 1)  # [heads, runs, tokens]
    return bool(((seen - runs).abs() < 4 * tolerance * (1 + runs.abs())).all(-1).any(-1).all())


def matched(case: Case, view: View) -> list[tuple[SeenSite, Site | None]]:
    """Each site that was seen with that of the truth: by its path."""
    by_path = {site.where: site for site in case.truth.sites}
    return [(seen, by_path.get(seen.where)) for seen in view.sites]


def contradictions(case: Case, view: View) -> list[str]:
    """Everything the eye says that is not so."""
    out = []
    for seen, site in matched(case, view):
        for part in PARTS:
            found, truth = of_operator(seen.operators[part]), of_truth(getattr(site, part, None))
            if found and truth is None:
                out.append(f"{seen.where}: {part} turns, which it does not")
            elif found and truth and (what := difference(found, truth, case.tolerance)):
                out.append(f"{seen.where}: {part} has {what}")
    if unread(case, view) and not view.missing:
        out.append("nothing is said of what was not shown")
    return out + rotary_contradictions(case, view)


def unread(case: Case, view: View) -> list[str]:
    """Operands that turn, or are no rotation and should be said to be none, and were not shown."""
    seen = {(s.where, part) for s in view.sites for part in PARTS if of_operator(s.operators[part])}
    out = []
    for site in case.truth.sites:
        for part in PARTS:
            truth = getattr(site, part)
            turns = isinstance(truth, Turn) and not standing(of_truth(truth))
            if (turns or isinstance(truth, Other)) and (site.where, part) not in seen:
                out.append(f"{site.where}.{part}")
    return out


def rotary_contradictions(case: Case, view: View) -> list[str]:
    """What is wrong with the `ModelRotary`, where one is given."""
    if view.rotary is None:
        return []
    if not case.truth.rotary:
        return ["a ModelRotary is given, and none can say what this model does"]
    specs = [spec for spec in view.rotary.layers if spec is not None]
    layers = {site.where.split("attn")[0]: site.q for site in case.truth.sites if isinstance(site.q, Turn)}
    turns = list(layers.values())
    if len(specs) != len(turns):
        return [f"{len(specs)} layers turn in the ModelRotary, not {len(turns)}"]
    return [f"layer {i}: {what}" for i, pair in enumerate(zip(specs, turns, strict=True)) if (what := spec_says(*pair))]


def spec_says(spec, turn: Turn) -> str:
    """What a spec says otherwise than the truth, or nothing: its pairs, and on one axis its angles at integers."""
    read = spec.layout.channels()[: 2 * spec.layout.pairs]
    pairs = list(zip(read[: len(read) // 2], read[len(read) // 2 :], strict=True))
    frequencies = dict(zip(turn.sources or turn.pairs, turn.inv_freq, strict=True))
    expected = {pair: f for pair, f in frequencies.items() if f}
    if not set(expected) <= set(pairs):
        return f"pairs {pairs}, not {list(expected)}"
    if turn.axis is not None:
        return ""
    step = float(torch.tensor(turn.positions, dtype=torch.float64).diff().abs().min())  # 1, or less where divided
    step = min(step, 1.0) if step else 1.0
    per_position = spec.inv_freq().double() * spec.position_scale * (-1 if spec.reverse else 1)
    for pair, f in expected.items():
        said = float(per_position[pairs.index(pair)])
        if abs(said - f * step) > 4e-6 * abs(f):
            return f"pair {pair} turns by {said} per position, not {f * step}"
    return ""
