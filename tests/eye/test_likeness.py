"""An operator by another one is the operator of the whole matrix."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch
import transformers

from phasor.eye.attention import attentions
from phasor.eye.call import Call
from phasor.eye.likeness import as_in
from phasor.eye.linear import Linearity, walk
from phasor.eye.matrices import axes_of
from phasor.eye.operator import operator
from phasor.eye.tape import Tape

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def taped(rows: int, tokens: int, implementation: str) -> Tape:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM._from_config(
        transformers.LlamaConfig(**SIZES), attn_implementation=implementation
    )
    return Call(model.eval(), (), {"input_ids": torch.randint(64, (rows, tokens)), "use_cache": False}).tape()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_three_gradients_give_the_whole_matrix(implementation: str) -> None:
    """Keys too, which several queries share, in other rows and tokens than those of the operator at hand."""
    found = []
    for rows, tokens in ((1, 6), (3, 5)):
        tape = taped(rows, tokens, implementation)
        attention = attentions(tape)[0]
        for number, transposed in ((attention.q, False), (attention.k, attention.keys_transposed)):
            axes = axes_of(tape.values[number], tokens, transposed)
            cut = walk(tape, Linearity(tape), number).cuts[-1]
            found.append((tape, cut, number, axes, operator(tape, cut, number, axes)))
    other = found[0][-1]
    for tape, cut, number, axes, whole in found:
        mine = as_in([other], tape, cut, number, axes)
        assert mine is not None and mine.pairs == whole.pairs and mine.inputs == whole.inputs
        assert torch.allclose(mine.cos, whole.cos, atol=1e-12) and torch.allclose(mine.sin, whole.sin, atol=1e-12)
        assert mine.own_heads == whole.own_heads


def test_other_channels_are_not_taken_for_the_same() -> None:
    tape = taped(1, 6, "sdpa")
    number = tape.attentions[0].q
    axes = axes_of(tape.values[number], 6, False)
    cut = walk(tape, Linearity(tape), number).cuts[-1]
    whole = operator(tape, cut, number, axes)
    beside = replace(whole, inputs=tuple((b, a) for a, b in whole.inputs[:1]) + whole.inputs[1:])
    crossed = replace(whole, inputs=(whole.inputs[1], whole.inputs[0], *whole.inputs[2:]))
    assert as_in([beside], tape, cut, number, axes) is None
    assert as_in([crossed], tape, cut, number, axes) is None
    assert as_in([crossed, whole], tape, cut, number, axes) is not None
