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
