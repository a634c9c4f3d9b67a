"""Off the CPU, where each operation is a launch, a rotation takes those of its definition, whatever the size."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from phasor import apply_rotary_qk

from .conftest import FACTORS, SPECS, anywhere, at

FULL = SPECS["plain-one-full-halves"].replace(head_dim=128)
LAYOUTS = {name: SPECS[name] for name in SPECS if name.startswith("yarn-one-")} | {
    name: FACTORS[name] for name in ("blocks", "blocks-first-yarn", "permuted", "reverse-first-longrope", "float64")
}


class Launches(TorchDispatchMode):
    """The names of the operations that have work to do: views and questions about dtypes have none."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if not operation.is_view and "promote_types" not in str(operation):
            self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


def launches(spec, tokens, learns, dtype=torch.bfloat16):
    """For 32 heads of q and 8 of k, on the device that does nothing; of the gradients, too, if it ``learns``."""
    q, k, dq, dk = (torch.empty(1, h, tokens, spec.head_dim, dtype=dtype, device="meta") for h in (32, 8, 32, 8))
    q, k = q.requires_grad_(learns), k.requires_grad_(learns)
    rotation = at(spec, anywhere(spec, 0, 100, tokens).to("meta"), dtype)
    with Launches() as seen:
        turned = apply_rotary_qk(q, k, rotation)
        if learns:
            torch.autograd.grad(turned, (q, k), (dq, dk))
    return seen.names


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=LAYOUTS)
def test_the_size_changes_nothing(spec, learns):
    few, more, many = (launches(spec, tokens, learns) for tokens in (1, 512, 8192))  # of q up to 4 million elements
    assert few == more == many


def test_the_operations_are_those_of_the_definition():
    """Widen, four products, two sums, join, round; the gradient is another rotation, with one sign turned."""
    assert len(launches(FULL, 8192, learns=False)) == 2 * 9
    assert len(launches(FULL, 8192, learns=True)) == 2 * (9 + 10)
    assert len(launches(FULL, 8192, learns=False, dtype=torch.float32)) == 2 * 7  # nothing to widen or round
