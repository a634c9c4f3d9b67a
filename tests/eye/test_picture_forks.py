"""Pictures and clips as people write them: what turns is read, a mistake is named, patching keeps bits."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import phasor
from phasor.axes import Axial

WIDTHS = (4, 6, 6)


def cells(*grid: int) -> Tensor:
    return torch.cartesian_prod(*(torch.arange(n, dtype=torch.float32) for n in grid))


def ladder(pairs: int, base: float = 1e4) -> Tensor:
    return 1 / base ** (torch.arange(pairs) / pairs)


def axial(at: Tensor, widths: tuple[int, ...] = WIDTHS) -> Tensor:
    return torch.cat([at[:, a, None] * ladder(n) for a, n in enumerate(widths)], -1)


def interleaved(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Hawthorn(nn.Module):
    """Two heads of 32 channels whose queries and keys turn by angles that are given."""

    def __init__(self, of_queries: Tensor, of_keys: Tensor) -> None:
        super().__init__()
        self.qkv, self.of_queries, self.of_keys = nn.Linear(64, 192), of_queries, of_keys

    def forward(self, hidden_states: Tensor) -> Tensor:
        q, k, v = (x.unflatten(-1, (2, 32)).transpose(1, 2) for x in self.qkv(hidden_states).chunk(3, -1))
        q = interleaved(q[:, :, -self.of_queries.shape[-2] :], self.of_queries)
        return nn.functional.scaled_dot_product_attention(q, interleaved(k, self.of_keys), v)


class Grove(nn.Module):
    """Some of them, one after the other."""

    def __init__(self, layers: list[Hawthorn]) -> None:
        super().__init__()
        self.layers, self.out = nn.ModuleList(layers), nn.Linear(32, 64)

    def forward(self, hidden_states: Tensor) -> Tensor:
        for layer in self.layers:
            hidden_states = hidden_states + self.out(layer(hidden_states).mean(1))
        return hidden_states


def made(of_queries: Tensor, of_keys: Tensor | None = None) -> tuple[Hawthorn, dict[str, Tensor]]:
    keys = of_queries if of_keys is None else of_keys
    return Hawthorn(of_queries, keys), {"hidden_states": torch.randn(1, keys.shape[-2], 64)}


def centred() -> Tensor:
    """Rows and columns counted from the middle, behind four words on the diagonal."""
    picture = cells(2, 3, 5) - torch.tensor([0.0, 2.0, 3.0])
    return torch.cat(((2 + torch.arange(4.0))[:, None].expand(-1, 3), picture))


def in_blocks() -> Tensor:
    """Rows and columns, the tokens of each 2 x 2 after the other."""
    return cells(2, 3, 2, 2) @ torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    "angles, axes",
    [
        (axial(cells(2, 3, 5)), Axial(WIDTHS)),
        (axial(centred()), Axial(WIDTHS)),
        (axial(centred().flip(0).roll(30, 0)), Axial(WIDTHS)),  # words last
        (axial(in_blocks(), (8, 8)), Axial((8, 8))),
        (axial(cells(2, 3, 5) * torch.tensor([1.0, 10.0, 9.0])), Axial(WIDTHS)),  # over a crop of 30 x 45
    ],
)
def test_a_fork_is_read_with_its_axes_and_keeps_its_bits(angles: Tensor, axes: phasor.axes.Axes) -> None:
    model, inputs = made(angles)
    rotary = phasor.observe(model, inputs).rotary
    assert rotary is not None
    (spec,) = rotary.distinct
    assert (spec.base, spec.axes, spec.interleaved) == (1e4, axes, True)
    assert phasor.diagnose(model, inputs).sound
    before = model(**inputs)
    phasor.patch(model, inputs=inputs)
    assert torch.equal(model(**inputs), before)


def test_queries_of_a_picture_alone_turn_as_its_keys_beside_words_do() -> None:
    keys = torch.cat((torch.arange(4.0)[:, None].expand(-1, 3), cells(1, 4, 6) + torch.tensor([4.0, -2.0, -3.0])))
    rotary = phasor.observe(*made(axial(keys[4:]), axial(keys))).rotary
    assert rotary is not None
    (spec,) = rotary.distinct
    assert sorted(spec.axes.axis_of_pair(16)) == 4 * [0] + 6 * [1] + 6 * [2]


@pytest.mark.parametrize(
    "change",
    [
        lambda at: at + 1,
        lambda at: at[:, [0, 2, 1]],  # rows and columns swapped
        lambda at: -at,
    ],
)
def test_keys_that_stand_elsewhere_are_named(change: Callable[[Tensor], Tensor]) -> None:
    at = cells(2, 3, 5)
    model, inputs = made(axial(at), axial(change(at)))
    assert phasor.observe(model, inputs).rotary is None
    assert list(phasor.diagnose(model, inputs).causes) == ["positions"]


ONE_PAIR = (torch.arange(16) == 5)[None]
LAST = (torch.arange(30) == 29)[:, None]


@pytest.mark.parametrize(
    "change, cause, says",
    [
        (
            lambda angles: torch.where(ONE_PAIR, -angles, angles),
            "sign",
            "1 of 16 pairs of the keys, the first of which is 5,",
        ),
        (lambda angles: torch.where(ONE_PAIR, 0.0, angles), "frequencies", "1 of 16 pairs"),
        (lambda angles: torch.where(LAST, 0.0, angles), "positions", "token 29 of the keys"),
        (lambda angles: torch.where(LAST & ONE_PAIR, 0.0, angles), "positions", "token 29 of the keys"),
    ],
)
def test_one_pair_or_token_of_the_keys_that_turns_otherwise_is_named(
    change: Callable[[Tensor], Tensor], cause: str, says: str
) -> None:
    angles = axial(cells(2, 3, 5) + 2)
    report = phasor.diagnose(*made(angles, change(angles)))
    assert list(report.causes) == [cause]
    assert says in report.findings[0].reason


def test_a_layer_whose_tokens_stand_elsewhere_than_in_another_is_not_called_right() -> None:
    angles = axial(cells(2, 3, 5))
    layers = [Hawthorn(one, one) for one in (angles, angles, angles.roll(1, 0))]
    report = phasor.diagnose(Grove(layers), {"hidden_states": torch.randn(1, 30, 64)})
    (one,) = (row for row in report.findings if row.what == "layers of one kind")
    assert (one.where, one.verdict, report.verdict) == ("layers.2", "not shown", "not shown")
    assert "elsewhere than in layers.0" in one.reason


@pytest.mark.parametrize(
    "angles, said",
    [
        (torch.cat((torch.arange(4.0)[:, None] * ladder(16, 500.0), axial(cells(2, 3, 5)))), "no multiples of any"),
        (torch.einsum("na,ahp->hnp", cells(4, 5), torch.randn(2, 2, 16)), "no multiples of any"),  # heads of their own
    ],
)
def test_what_no_spec_says_is_not_shown(angles: Tensor, said: str) -> None:
    seen = phasor.observe(*made(angles))
    assert seen.rotary is None
    assert any(said in sentence for sentence in seen.missing)
