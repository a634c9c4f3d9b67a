"""The zoo is true: what every model does to its operands, seen by hooks, is what its closed form says.

Nothing of the eye is used: the operands before are the attention's own projections, those after are caught at the
product.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from eye.truth import Case, Other, Turn
from eye.watch import in_order, operands, watching
from eye.zoo import CASES, ZOO


@dataclass(frozen=True)
class Operand:
    """One operand of one attention as it went in and as it came to the product, and what the truth says of it."""

    truth: Any
    before: Tensor
    after: Tensor
    module: nn.Module
    args: tuple

    @torch.no_grad()
    def error(self, truth) -> float:
        """The greatest difference from what ``truth`` expects."""
        before = self.before.double().repeat_interleave(self.after.shape[1] // self.before.shape[1], dim=1)
        expected = before
        if isinstance(truth, Turn):
            expected = truth.expected(before)
        elif isinstance(truth, Other):
            expected = truth.expected(self.module, before, *self.args)
        assert expected.shape == self.after.shape
        return float((expected - self.after.double()).abs().max())


@cache
def operands_of(name: str) -> dict[str, Operand]:
    """where.operand: what hooks saw of it; in float64 where the model can be run so."""
    case = ZOO[name]
    model, inputs = case.model(), case.inputs
    if case.double:
        model, inputs = model.double(), tuple(x.double() if x.is_floating_point() else x for x in inputs)
    with watching(case, model) as seen:
        model(*inputs)
        return {key: operand for site in case.truth.sites for key, operand in at(case, site, model, seen[site.where])}


def at(case: Case, site, model, here):
    module = model.get_submodule(site.where)
    after = (case.operands or operands)(here.calls)
    after |= {
        name: in_order(after[name], form, len(case.inputs[0])) for name, form in zip("qk", case.forms, strict=True)
    }
    for part, before in case.before(module, *here.args).items():
        yield f"{site.where}.{part}", Operand(getattr(site, part), before, after[part], module, here.args)
    if site.output is not None:
        joined = here.joined.unflatten(-1, after["output"].shape[1::2]).transpose(1, 2)
        yield f"{site.where}.output", Operand(site.output, after["output"], joined, module, here.args)


@pytest.mark.parametrize("name", [case.name for case in CASES if case.truth.sites])
def test_the_truth_of_the_zoo(name):
    errors = {key: operand.error(operand.truth) for key, operand in operands_of(name).items()}
    assert errors and all(error < 4 * ZOO[name].tolerance for error in errors.values()), errors


def wrong(truth: Turn) -> dict[str, Turn]:
    """What a truth would be that erred in one thing."""
    frequencies = torch.tensor(truth.inv_freq, dtype=torch.float64)
    nudged = frequencies * torch.tensor([0.5, *[1.0] * (len(truth.pairs) - 1)])
    out = {
        "no turn": replace(truth, inv_freq=(0 * frequencies).tolist(), phase=0.0),
        "one frequency": replace(truth, inv_freq=nudged.tolist()),
        "direction": replace(truth, inv_freq=(-frequencies).tolist(), phase=[-p for p in phases(truth)]),
        "members of a pair": replace(truth, pairs=[(b, a) for a, b in truth.pairs]),
        "later positions": replace(truth, phase=(torch.tensor(phases(truth)) + 0.5).tolist()),
        "scale": replace(truth, scale=(2 * torch.as_tensor(truth.scale)).tolist()),
    }
    if truth.angles().diff(dim=-1).abs().max() == 0:  # a standing rotation has no frequencies
        del out["one frequency"]
    if bool((truth.then(torch.ones(1, 1, 1, 8)) != 1).any()) or truth.then(torch.full((1, 1, 1, 8), 2.0)).mean() != 2:
        del out["scale"]  # the norm takes it away
    return out


def phases(truth: Turn) -> list[float]:
    return (torch.as_tensor(truth.phase, dtype=torch.float64) * torch.ones(len(truth.pairs))).tolist()


@pytest.mark.parametrize("name", [case.name for case in CASES if case.truth.turns])
def test_a_wrong_truth_would_be_noticed(name):
    for operand in operands_of(name).values():
        for what, truth in (wrong(operand.truth) if isinstance(operand.truth, Turn) else {}).items():
            assert operand.error(truth) > 8 * ZOO[name].tolerance, what


def test_every_name_is_of_one_model():
    assert len(ZOO) == len(CASES)
