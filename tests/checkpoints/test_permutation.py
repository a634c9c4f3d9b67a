"""Orders of whole tensors: inverse pairs, against the reshapes of published conversion scripts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phasor.models.weights import Piece
from phasor.rotary.layout import Layout
from phasor.tools.checkpoints import inverse, order_of, reorder, with_pairs


@st.composite
def cases(draw):
    pairs, blocks = draw(st.integers(1, 12)), 1
    rest, trailing = draw(st.integers(0, 5)), draw(st.booleans())
    words = draw(st.permutations(["halves", "interleaved"]))
    if pairs % 2 == 0:
        blocks = draw(st.sampled_from([1, 2]))
    layout = Layout(head_dim=2 * pairs + rest, rotary_dim=2 * pairs, trailing=trailing, blocks=blocks)
    source, target = layout if words[0] == "halves" else with_pairs(layout, words[0]), with_pairs(layout, words[1])
    heads, gap = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    starts = tuple(gap + h * (2 * pairs + gap) for h in range(heads))
    return Piece("w", "q", "weight", starts, 2 * pairs), starts[-1] + 2 * pairs + gap, source, target


@given(cases())
def test_orders_are_inverse_pairs(case):
    piece, size, source, target = case
    there, back = order_of([piece], size, source, target), order_of([piece], size, target, source)
    assert (inverse(there) == back).all() and (there[back] == np.arange(size)).all()
    x = torch.randn(size, 3)
    assert torch.equal(reorder(reorder(x, there), back), x)
    inside = {i for start in piece.starts for i in range(start, start + piece.width)}
    assert all(there[i] == i for i in range(size) if i not in inside)


@pytest.mark.parametrize("heads, head_dim", [(4, 8), (3, 4), (1, 128)])
def test_the_reshapes_of_published_scripts(heads, head_dim):
    """transformers' convert_llama_weights_to_hf.py: interleaved to halves; llama.cpp's LlamaModel.permute: back."""
    w = torch.randn(heads * head_dim, 5)
    piece = Piece("w", "q", "weight", tuple(range(0, heads * head_dim, head_dim)), head_dim)
    halves, interleaved = Layout(head_dim=head_dim), Layout(head_dim=head_dim, interleaved=True)
    to_hf = w.view(heads, head_dim // 2, 2, 5).transpose(1, 2).reshape(heads * head_dim, 5)
    to_gguf = w.view(heads, 2, head_dim // 2, 5).swapaxes(1, 2).reshape(heads * head_dim, 5)
    assert torch.equal(reorder(w, order_of([piece], len(w), interleaved, halves)), to_hf)
    assert torch.equal(reorder(w, order_of([piece], len(w), halves, interleaved)), to_gguf)


def test_done_twice_is_a_third_layout():
    halves = Layout(head_dim=8)
    order = order_of([Piece("w", "q", "weight", (0,), 8)], 8, halves, with_pairs(halves, "interleaved"))
    assert order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7] and order[order].tolist() != list(range(8))


@pytest.mark.parametrize("starts, width", [((0, 6), 8), ((-1,), 8), ((0,), 6)])
def test_pieces_that_do_not_fit(starts, width):
    with pytest.raises(ValueError, match="w must have heads of 8 channels that rotate among 12"):
        order_of(
            [Piece("w", "q", "weight", starts, width)], 12, Layout(head_dim=8), Layout(head_dim=8, interleaved=True)
        )


def test_words():
    blocked = Layout(head_dim=8, blocks=2)
    assert with_pairs(blocked, "native") == blocked and with_pairs(blocked, "halves") == Layout(head_dim=8)
    with pytest.raises(ValueError, match="layout must be one of 'halves', 'interleaved', 'native', got 'neox'"):
        with_pairs(blocked, "neox")
