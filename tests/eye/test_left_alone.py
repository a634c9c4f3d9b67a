"""A model that is observed is left as it was, to the bit, also where it cannot be run; bad input is named."""

import pytest
import torch
from torch import nn

import phasor
from eye.zoo import ZOO


def state(model: nn.Module) -> list:
    """All that a model is: tensors with their memory, attributes, modes, hooks."""
    tensors = [(n, t, t.detach().clone(), t.data_ptr()) for n, t in (*model.named_parameters(), *model.named_buffers())]
    others = [
        (type(m), m.training, dict(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()
    ]
    return [tensors, others]


def assert_unchanged(before: list, after: list) -> None:
    for (name, tensor, value, place), (other, now, new_value, new_place) in zip(before[0], after[0], strict=True):
        assert name == other
        assert tensor is now
        assert place == new_place
        assert torch.equal(value, new_value)
    for one, two in zip(before[1], after[1], strict=True):
        assert one[:2] == two[:2]
        assert one[2].keys() == two[2].keys()
        assert all(one[2][k] is two[2][k] for k in one[2])
        assert one[3:] == two[3:]


@pytest.mark.parametrize("name", ["complex halves", "alibi", "tables that grow"])
def test_a_model_is_left_as_it_was(name):
    case = ZOO[name]
    model = case.model().train()
    hook = model.register_forward_hook(lambda module, args, out: None)
    random, before = torch.get_rng_state(), state(model)
    phasor.observe(model, case.inputs)
    assert_unchanged(before, state(model))
    assert torch.equal(random, torch.get_rng_state())
    assert not torch._C._len_torch_dispatch_stack()
    hook.remove()


class Counts(nn.Module):
    """Keeps a number, a buffer that it writes into, and a plain tensor: and raises at its third call."""

    def __init__(self, raises: bool) -> None:
        super().__init__()
        self.words, self.qkv, self.raises, self.calls = nn.Embedding(9, 8), nn.Linear(8, 24), raises, 0
        self.register_buffer("written", torch.zeros(3))
        self.plain = torch.zeros(2)

    def forward(self, ids):
        self.calls += 1
        self.written += 1
        self.plain[0] = 7.0
        self.last = ids
        q, k, v = self.qkv(self.words(ids)).chunk(3, -1)
        if self.raises:
            raise RuntimeError("no such thing")
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("raises", [False, True])
def test_what_a_forward_writes_is_taken_back(raises):
    model = Counts(raises)
    before = state(model)
    if raises:
        with pytest.raises(ValueError, match=r"could not be run: RuntimeError: no such thing; give inputs=.*\(ids\)"):
            phasor.observe(model)
    else:
        assert phasor.observe(model).nothing_turns
    assert_unchanged(before, state(model))
    assert model.written.eq(0).all()
    assert model.plain.eq(0).all()
    assert not hasattr(model, "last")
    assert not torch._C._len_torch_dispatch_stack()


def test_what_is_no_module_is_named():
    with pytest.raises(ValueError, match="model must be a torch module, got str"):
        phasor.observe("llama")


def test_a_model_without_values_is_named():
    with torch.device("meta"):
        model = ZOO["llama"].model()
    with pytest.raises(ValueError, match="meta device; read its config"):
        phasor.observe(model)


def test_inputs_of_another_kind_are_named_with_what_the_forward_takes():
    with pytest.raises(ValueError, match=r"could not be run: .*give inputs=, what its forward takes \(input_ids"):
        phasor.observe(ZOO["llama"].model(), torch.randn(3))


def test_a_compiled_model_is_observed_as_it_was_before():
    case = ZOO["llama"]
    model = case.model()
    compiled = torch.compile(model, backend="eager")
    seen = [phasor.observe(m, case.inputs).rotary for m in (model, compiled)]
    assert seen[0] is not None
    assert seen[0] == seen[1]


class EightBits(nn.Module):
    """A projection whose weights are whole numbers of eight bits and a scale: buffers, not parameters."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scale = linear.weight.abs().amax() / 127
        self.register_buffer("scale", scale.detach())
        self.register_buffer("whole", (linear.weight / scale).round().to(torch.int8).detach())

    def forward(self, x):
        return nn.functional.linear(x, self.whole.to(x.dtype) * self.scale)


@pytest.mark.parametrize("name", ["gptj", *(pytest.param(n, marks=pytest.mark.slow) for n in ("llama", "qwen3"))])
def test_weights_that_are_stored_in_eight_bits_are_observed(name):
    case = ZOO[name]
    model = case.model()
    plain = phasor.observe(model, case.inputs).rotary
    for module in list(model.modules()):
        for child, linear in list(module.named_children()):
            if type(linear) is nn.Linear:
                setattr(module, child, EightBits(linear))
    seen = phasor.observe(model, case.inputs).rotary
    assert seen is not None
    assert seen == plain
