"""What a fit minimises, by its formula; its steps beside Adam of torch; and searches that lead uphill."""

import math
import random
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")

from integrations.models import causal
from phasor_lab.fitting.descent import AVERAGED, FLOOR, LARGEST, MOMENTS, STEP, descend
from phasor_lab.fitting.fit import _search
from phasor_lab.fitting.loss import DivisorLoss
from phasor_lab.fitting.objective import FAR, NEAR, Objective, some_windows
from phasor_lab.running.model import RunningModel
from phasor_lab.running.windows import windows_of

TOKENS = torch.randint(3, 96, (4000,), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def loss():
    model = causal("llama").double()
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    return DivisorLoss(RunningModel(model))


def test_the_objective_is_the_loss_at_both_lengths(loss):
    """loss(length) + loss(trained) / 2, each with the factor on cos and sin; its slope on windows of a step."""
    told: list[int] = []
    aim = Objective(loss, TOKENS, 64, 16, 1.3, 7, told.append)
    divisors = torch.linspace(1.0, 4.0, len(loss.plain), dtype=torch.float64)
    far, near = (loss.at(windows_of("test", TOKENS, n, 12), divisors, 1.3) for n in (64, 16))
    assert aim.score(divisors) == pytest.approx(far + 0.5 * near, rel=1e-9)
    dice = random.Random("7 5")
    drawn = [some_windows(TOKENS, n, count, dice) for n, count in ((64, FAR), (16, NEAR))]
    far, near = (loss.gradient(rows, divisors.log(), 1.3) for rows in drawn)
    torch.testing.assert_close(aim.gradient(5, divisors.log()), far + 0.5 * near, rtol=1e-9, atol=1e-12)
    assert told == [1, 2] and aim.tried == 2


def test_the_windows_of_a_step():
    """About as many tokens as asked for, two windows at least, any place of the text, its ends included."""
    rows = some_windows(TOKENS, 64, 2048, random.Random(0))
    assert rows.shape == (2048 // 64, 65) and len(some_windows(TOKENS, 1500, 2048, random.Random(0))) == 2
    text = torch.arange(12)
    starts = {int(row[0]) for seed in range(50) for row in some_windows(text, 10, 20, random.Random(seed))}
    assert starts == {0, 1}
    assert all(row.tolist() == list(range(int(row[0]), int(row[0]) + 11)) for row in some_windows(text, 10, 20, random))


def test_the_steps_are_those_of_adam():
    """torch's own, with a cosine schedule, over the logarithms; a pair that rotates n times goes n times shorter ways.

    That is Adam over z with logarithm = z / n. The result is the geometric mean of the last quarter of the steps.
    """
    target = torch.tensor([1.5, 2.5, 3.0], dtype=torch.float64)
    waves, trained, steps = torch.tensor([25.0, 100.0, 900.0], dtype=torch.float64), 100, 12
    reach = torch.tensor([0.25, 1.0, 1.0], dtype=torch.float64)  # 4, 1 and 1/9 rotations: never longer ways
    start = torch.full((3,), 2.0, dtype=torch.float64)

    def gradient(step, logarithms):
        away = logarithms - target.log()
        return torch.cat([(away**2).sum()[None], 2 * away])

    z = torch.nn.Parameter(start.log() / reach)
    adam = torch.optim.Adam([z], lr=1.0, betas=MOMENTS, eps=FLOOR)
    after = []
    for step in range(steps):
        adam.param_groups[0]["lr"] = STEP * (1 + math.cos(math.pi * step / steps)) / 2
        adam.zero_grad()
        ((z * reach - target.log()) ** 2).sum().backward()
        adam.step()
        after.append((z * reach).detach().clone())
    last = torch.stack(after[-int(AVERAGED * steps) :])
    assert len(last) == 3 and all((here >= 0).all() and (here.exp() <= LARGEST * 4.0).all() for here in after)
    found = descend(gradient, start, waves, trained, 4.0, steps=steps)
    torch.testing.assert_close(found, last.mean(0).exp(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("downhill", [True, False])
def test_a_search_never_ends_above_its_start(downhill):
    """From the formula with the lowest score; a way that leads uphill is thrown away."""
    target = torch.tensor([2.0, 3.0], dtype=torch.float64)

    def gradient(step, logarithms):
        slope = 2 * (logarithms - target.log())
        return torch.cat([torch.zeros(1, dtype=torch.float64), slope if downhill else -slope])

    plain = torch.tensor([1e-3, 1e-4], dtype=torch.float64)
    aim = SimpleNamespace(
        score=lambda divisors: float(((divisors.log() - target.log()) ** 2).sum()), gradient=gradient,
        loss=SimpleNamespace(plain=plain), trained=100, length=400,
    )  # fmt: skip
    formulas = [torch.tensor(values, dtype=torch.float64) for values in ([4.0, 4.0], [2.2, 2.5], [1.0, 1.0])]
    found = _search(aim, formulas, 40)
    if downhill:
        torch.testing.assert_close(found, target, rtol=0.02, atol=0)
    else:
        assert found is formulas[1]
