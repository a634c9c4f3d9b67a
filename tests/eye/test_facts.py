"""What is said beside the rotation is so: heads, layers, scale, length; and what was not seen is said to be missing."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import phasor
from eye.halves import LlamaAttention, LlamaDecoder
from eye.layouts import turned
from eye.skeleton import DIM, HEADS, WIDTH, Attention, Decoder, ids
from eye.zoo import ZOO
from phasor.axes import Sections
from phasor.eye.agreement import of_more_axes
from phasor.eye.spec import Sighting


class Plain(Attention):
    def rotate(self, q, k):
        return tuple(turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))


class LlamaHeads(Plain):
    kv_heads = 2

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@pytest.mark.parametrize("rows", [1, 3])
def test_heads_are_those_of_one_sequence(rows):
    seen = phasor.observe(Decoder(LlamaHeads), torch.cat([ids()] * rows)).rotary
    assert (seen.num_heads, seen.num_kv_heads) == (HEADS, 2)


def test_rows_of_one_product_are_heads_again():
    case = ZOO["queries of one key as rows"]
    seen = phasor.observe(case.model(), case.inputs).rotary
    assert (seen.num_heads, seen.num_kv_heads) == (HEADS, 2)


class Absorbed(nn.Module):
    """DeepSeek's inference: scores are a sum of two products, and the heads are rows of that which turns."""

    def __init__(self, layer=0):
        super().__init__()
        self.q, self.kv, self.up = nn.Linear(WIDTH, HEADS * 12), nn.Linear(WIDTH, 20), nn.Linear(16, HEADS * DIM)
        self.o_proj = nn.Linear(HEADS * 16, WIDTH)

    def forward(self, x):
        q, pe = self.q(x).unflatten(-1, (HEADS, 12)).split([8, 4], -1)
        latent, k_pe = self.kv(x).split([16, 4], -1)
        pe, k_pe = (turned(t, torch.arange(x.shape[1]), -3) for t in (pe, k_pe[:, :, None]))
        q = torch.einsum("bshd,hdc->bshc", q, self.up.weight.view(HEADS, DIM, 16))
        scores = torch.einsum("bshc,btc->bsht", q, latent) + torch.einsum("bshr,btr->bsht", pe, k_pe[:, :, 0])
        weights = (scores * 12**-0.5).softmax(-1)
        return self.o_proj(torch.einsum("bsht,btc->bshc", weights, latent).flatten(2))


def test_scores_that_are_a_sum_of_products():
    seen = phasor.observe(Decoder(Absorbed), ids())
    assert (seen.rotary.num_heads, seen.rotary.num_kv_heads) == (HEADS, 1)
    assert [spec.rotary_dim for spec in seen.rotary.layers] == [4, 4]
    assert not [fact for fact in seen.facts if fact.name == "softmax scale"]


# --- softmax scale


class Trained(Plain):
    """A scale of each head that is learned."""

    def __init__(self, layer=0):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.2, 0.5, HEADS)[:, None, None])

    def attend(self, q, k, v):
        return ((q @ k.mT) * self.scale).softmax(-1) @ v


class Sigmoid(Plain):
    def attend(self, q, k, v):
        return torch.sigmoid(q @ k.mT / DIM**0.5 - 2).tril() @ v


class ByHand(Plain):
    def attend(self, q, k, v):
        weights = (q @ k.mT / DIM**0.5).exp()
        return weights / weights.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("attention", [Trained, ByHand, pytest.param(Sigmoid, marks=pytest.mark.slow)])
def test_no_softmax_scale_is_said_where_no_number_makes_it(attention):
    seen = phasor.observe(Decoder(attention), ids())
    assert seen.rotary is not None
    assert not [fact for fact in seen.facts if fact.name == "softmax scale"]


class Flex(Plain):
    def attend(self, q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j), scale=0.5)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_seen_with_its_scale():
    seen = phasor.observe(Decoder(Flex), ids())
    assert [site.turning for site in seen.sites] == [("q", "k")] * 2
    assert [str(fact) for fact in seen.facts] == ["softmax scale: layers.0-1.attn: 1.41421 / sqrt(head_dim)"]


def test_the_softmax_scale_may_be_in_the_keys():
    case = ZOO["softmax scale in the keys"]
    seen = phasor.observe(case.model(), case.inputs)
    assert seen.rotary is not None
    assert seen.facts == ()


# --- layers


class Shared(Decoder):
    """One layer at two places of the list."""

    def __init__(self):
        super().__init__(Plain)
        self.layers.append(self.layers[0])


class TwoOfThree(Decoder):
    def __init__(self):
        super().__init__(Plain, layers=3)

    def forward(self, input_ids):
        h = self.embed(input_ids)
        for layer in self.layers[:2]:
            h = layer(h)
        return self.head(h)


def test_a_layer_that_stands_twice_turns_twice():
    specs = phasor.observe(Shared(), ids()).rotary.layers
    assert len(specs) == 3
    assert specs[0] == specs[2] != None  # noqa: E711


def test_a_layer_that_did_not_run_is_named():
    assert "layers.2: it did not run" in phasor.observe(TwoOfThree(), ids()).missing


def test_layers_of_unequal_heads_are_named():
    seen = phasor.observe(Decoder(lambda i: [Plain, TwoHeads][i]()), ids()).rotary
    assert "its layers have 4, 2 query heads" in seen.notes


class TwoHeads(Plain):
    kv_heads = 2

    def __init__(self, layer=0):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(WIDTH, 2 * DIM), nn.Linear(2 * DIM, WIDTH)

    def forward(self, x):
        q, k, v = (self.heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q, k)
        return self.o_proj(self.attend(q, k, v).transpose(1, 2).flatten(2))


WORDS = phasor.RotarySpec(head_dim=8)
GRID = WORDS.replace(axes=Sections((2, 1, 1)))


@pytest.mark.parametrize(
    "one, other, both",
    [(WORDS, WORDS, WORDS), (WORDS, GRID, GRID), (GRID, WORDS, GRID), (GRID, GRID, GRID),
     *((WORDS.replace(**changed), GRID, None) for changed in ({"base": 5e3}, {"interleaved": True}, {"reverse": True})),
     (GRID, GRID.replace(axes=Sections((1, 2, 1))), None)],
)  # fmt: skip
def test_of_two_attentions_in_a_layer_that_of_more_axes_is_said_where_both_turn_alike(one, other, both):
    found = of_more_axes(*(Sighting(spec, None, bits=True) for spec in (one, other)))
    assert (found and found.spec) == both


# --- length


class Ends(LlamaDecoder):
    """A table of 1024 positions, whose last is taken for all behind it."""

    def positional(self, h, position_ids):
        position_ids = torch.arange(h.shape[1])[None] if position_ids is None else position_ids
        return super().positional(h, position_ids.clamp(max=1023))


class Ignores(LlamaDecoder):
    """It takes positions, and counts by itself."""

    def positional(self, h, position_ids):
        return super().positional(h, None)


@pytest.mark.parametrize(("model", "last"), [(Ends, 1023), (Ignores, 6)])
def test_positions_that_do_not_count_on_are_told(model, last):
    seen = phasor.observe(model(LlamaAttention), ids())
    assert f"4097 tokens: position 4096 turns as if it were {last}" in seen.missing
    assert not any("no sequence of more than" in note for note in seen.rotary.notes)


class Config:
    def __init__(self, **numbers):
        self.numbers = numbers

    def to_dict(self):
        return self.numbers


@pytest.mark.parametrize(
    "other", [{"vision_config": {"max_position_embeddings": 99_999}}, {"tokenizer": {"model_max_length": 1_000_000}}]
)
def test_the_length_is_that_of_the_model_itself(other):
    model = LlamaDecoder(LlamaAttention)
    model.config = Config(max_position_embeddings=2048, **other)
    assert phasor.observe(model, {"input_ids": ids()}).rotary.max_position == 2048


# --- what is not said


@pytest.mark.parametrize("name", ["positions that tokens choose", "reflections that tokens choose"])
def test_a_rotation_by_the_data_is_not_called_none(name):
    seen = phasor.observe(ZOO[name].model(), ZOO[name].inputs)
    assert not seen.nothing_turns
    assert seen.missing


def test_one_token_shows_nothing():
    seen = phasor.observe(Decoder(Plain), ids(1))
    assert not seen.nothing_turns
    assert any("one token does not show" in sentence for sentence in seen.missing)


def test_of_what_stops_early_nothing_is_said_of_the_rest():
    """A model of pictures and text, for example, of which only the tower runs on what is made up."""
    transformers = pytest.importorskip("transformers")

    class Stops(transformers.GPT2Model):
        def forward(self, input_ids=None, **kwargs):
            super().forward(input_ids, **kwargs)
            raise AttributeError("'NoneType' object has no attribute 'size'")

    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    seen = phasor.observe(Stops(config).eval())
    assert not seen.nothing_turns and not [fact for fact in seen.facts if fact.name == "instead of a rotation"]
    assert any("it raised AttributeError" in sentence for sentence in seen.missing)
    assert phasor.observe(transformers.GPT2Model(config).eval()).nothing_turns


@torch.library.custom_op("phasor_tests::turn", mutates_args=())
def opaque(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Opaque(Attention):
    """A kernel of somebody's own, without a gradient."""

    def rotate(self, q, k):
        angle = torch.arange(q.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
        return opaque(q, angle.cos(), angle.sin()), opaque(k, angle.cos(), angle.sin())


def test_an_operation_without_a_gradient_is_named():
    seen = phasor.observe(Decoder(Opaque), ids())
    assert not seen.nothing_turns
    assert any("Jacobian cannot be formed" in sentence for sentence in seen.missing)


class Remembers(Plain):
    """Python's own containers and dice."""

    def __init__(self, layer=0):
        super().__init__()
        self.keys, self.counts = [], {"calls": 0}

    def rotate(self, q, k):
        self.keys.append(k)
        self.counts["calls"] += random.randint(1, 9)
        return super().rotate(q, k)


def test_containers_and_dice_are_left_alone():
    model, dice = Decoder(Remembers), random.getstate()
    phasor.observe(model, ids())
    assert [(layer.attn.keys, layer.attn.counts) for layer in model.layers] == [([], {"calls": 0})] * 2
    assert random.getstate() == dice
