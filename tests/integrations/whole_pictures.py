"""Whole small models of pictures before and after `patch`: results on sizes one after the other, and gradients."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import phasor
from phasor.eye.arithmetic import halved, in_half
from phasor.tools.patch import PatchReport

Calls = Sequence[Mapping[str, Any]]


def given_back(model: Any, inputs: Mapping[str, Any]) -> list[Tensor]:
    out = model(**copy.deepcopy(dict(inputs)))
    values = out if isinstance(out, Tensor) or not hasattr(out, "values") else list(out.values())
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def results(model: Any, calls: Calls, half: bool = False) -> list[Tensor]:
    """Of all calls in a row, without gradients; ``half``: with weights in bfloat16, none where a CPU cannot."""
    with torch.no_grad():
        if not half:
            return [x for call in calls for x in given_back(model, call)]
        with in_half(model):
            try:
                return [x for call in calls for x in given_back(model, halved(call))]
            except RuntimeError:
                return []


def gradients(model: Any, calls: Calls) -> dict[str, Tensor]:
    """Of all weights, by a sum of all results in which each counts otherwise; none where flex attention has none."""
    found: dict[str, Tensor] = {}
    made = torch.Generator().manual_seed(0)
    for i, call in enumerate(calls):
        model.zero_grad()
        with torch.enable_grad():
            try:
                out = [x for x in given_back(model, call) if x.requires_grad]
                sum((x * torch.randn(x.shape, generator=made)).sum() for x in out).backward()
            except NotImplementedError:
                return {}
        found |= {f"{name} {i}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def patched(model: Any, calls: Calls) -> tuple[PatchReport, str]:
    """What `patch` reports, and in words what of the whole model then has other bits; it is taken back at the end."""
    before, narrow, slopes = results(model, calls), results(model, calls, half=True), gradients(model, calls[:2])
    report = phasor.patch(model, inputs=calls[0])
    after, halves, others = results(model, calls), results(model, calls, half=True), gradients(model, calls[:2])
    if report.replaced:
        phasor.unpatch(model)
    kept = same(before, after) and (same(narrow, halves) or not narrow + halves)
    said = [] if kept else ["its results differ"]
    away = {name.partition(" ")[0] for name, slope in slopes.items() if not torch.equal(slope, others[name])}
    said += [f"gradients of {len(away)} weights differ in the last bits"] if away else []
    said = said or ["equal"]
    said += [] if slopes else ["no gradients on a CPU"]
    return report, "; ".join(said if narrow else [*said, "no bfloat16 on a CPU"])


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return len(first) == len(second) > 0 and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
