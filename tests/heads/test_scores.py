"""Scores against the plain definition, masks, positions and what the rotation knows."""

import pytest
import torch

from phasor import RotarySpec
from phasor.encodings.heads import EfficientGlobalPointer, GlobalPointer
from phasor.rotary.axes import Axial
from phasor.rotary.scaling import DynamicNTK, YaRN

from . import plain

HEADS = [GlobalPointer, EfficientGlobalPointer]
both = pytest.mark.parametrize("kind", HEADS)

SPECS = {
    "none": None,
    "published": True,
    "halves": RotarySpec(head_dim=8, base=500.0),
    "partial": RotarySpec(head_dim=8, rotary_dim=4, interleaved=True),
    "trailing": RotarySpec(head_dim=8, rotary_dim=4, trailing=True),
    "frequencies": RotarySpec(head_dim=8, frequencies=(1.0, 0.3, 0.2, 0.0)),
    "yarn": RotarySpec(head_dim=8, scaling=YaRN(factor=4.0, original_max_position=64)),
    "dynamic": RotarySpec(head_dim=8, scaling=DynamicNTK(factor=2.0, original_max_position=4)),
    "axial": RotarySpec(head_dim=8, axes=Axial((2, 2))),
}


def made(kind, types=3, seed=0, **options):
    torch.manual_seed(seed)
    return kind(16, types, **{"head_dim": 8, **options})


def hidden(batch=2, length=7, seed=1):
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(seed))


def same(a, b, tolerance):
    torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@both
@pytest.mark.parametrize("tril", [True, False])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_scores_are_the_plain_definition(kind, tril, name, dtype):
    """Also of padding in front, and of sentences that are packed into a row."""
    options = {"rotary": SPECS[name], "seq_len": 16 if name == "dynamic" else None, "tril": tril}
    head, x = made(kind, **options), hidden()
    mask = torch.tensor([[0, 1, 1, 1, 2, 2, 2], [1, 1, 0, 1, 1, 0, 0]], dtype=dtype)
    expected = plain.scores(head, x, mask, None if name != "axial" else torch.arange(7).expand(2, 2, -1))
    same(head(x, mask), expected, 1e-6)
    same(head.double()(x.double(), mask), expected, 1e-13)
    assert head(x.double(), mask).dtype == torch.float64


@both
def test_given_positions_turn(kind):
    head, x = made(kind), hidden()
    at = torch.tensor([[3, 4, 9, 10, 11, 40, 41], [0, 1, 2, 3, 4, 5, 1_000_000]])
    same(head(x, positions=at), plain.scores(head, x, positions=at[None]), 1e-6)
    same(head(x, positions=at[1]), plain.scores(head, x, positions=at[1].expand(1, 2, -1)), 1e-6)
    two = made(kind, rotary=SPECS["axial"])
    grid = torch.stack((at, at // 3))
    same(two(x, positions=grid), plain.scores(two, x, positions=grid), 1e-6)


@both
def test_empty_batches_and_sentences(kind):
    head, spans = made(kind), torch.zeros(0, 4, dtype=torch.int64)
    for x in (hidden()[:0], hidden()[:, :0]):
        x.requires_grad_()
        assert head(x).shape == (x.shape[0], 3, x.shape[1], x.shape[1])
        loss = head.loss(x, spans)
        loss.backward()
        assert loss == 0 and loss.dtype == torch.float32 and x.grad.shape == x.shape


def test_nothing_but_the_layers_is_saved():
    assert sorted(made(GlobalPointer).state_dict()) == ["dense.bias", "dense.weight"]


def test_numbers_of_weights_are_those_of_the_papers():
    """kexue.fm/archives/8877 and the published code: 984,320 and 101,012 for BERT base and ten types."""
    sizes = [sum(p.numel() for p in kind(768, 10).parameters()) for kind in HEADS]
    assert sizes == [984_320, 101_012]
