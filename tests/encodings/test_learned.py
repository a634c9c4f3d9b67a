import pytest
import torch

from phasor.encodings import Learned


def test_adds_the_row_of_each_position_and_trains_only_those():
    encoding = Learned(6, 3)
    x, t = torch.randn(2, 2, 3), torch.tensor([[0, 5], [2, 2]])
    out = encoding.embed(x, t)
    assert torch.equal(out[0, 1], x[0, 1] + encoding.table.weight[5])
    out.sum().backward()
    # the gradient of a row counts its uses: 0 once, 5 once, 2 twice
    assert encoding.table.weight.grad[:, 0].tolist() == [1, 0, 2, 0, 0, 1]


@pytest.mark.parametrize("bad", [6, 1000, -1])
def test_a_position_outside_the_table_raises_and_names_the_size(bad):
    with pytest.raises(
        ValueError, match=rf"learned table of 6 positions \(0 to 5\), got .*{bad}.*train a larger table"
    ):
        Learned(6, 3).embed(torch.zeros(1, 2, 3), torch.tensor([1, bad]))


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="num_positions must be an integer of at least 1, got 0"):
        Learned(0, 3)
