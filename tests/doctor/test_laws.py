"""The laws alone: which faults a model shows of itself, without a reference; and what they say of a black box."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phasor import RotarySpec, Rotation, apply_rotary_qk, diagnose
from phasor.support.preserve_state import undisturbed
from phasor.tools.doctor.laws import LAWS, batched, cached, chunked, not_finite, packed, shift
from phasor.tools.doctor.measurement import Trial
from phasor.tools.doctor.observation import Observation
from phasor.tools.doctor.running import BlackBox

WORDS, WIDTH = 32, 16


def attention_of(turn: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Tensor, Tensor], Tensor]:
    """One causal layer of attention with made-up weights, whose q and k ``[B, 1, S, D]`` are turned by ``turn``."""
    made = torch.Generator().manual_seed(0)
    embed, wq, wk, wv = (torch.randn(n, WIDTH, generator=made) for n in (WORDS, WIDTH, WIDTH, WIDTH))

    def logits(tokens: Tensor, positions: Tensor) -> Tensor:
        x = embed[tokens]
        q, k = turn((x @ wq / 4)[:, None], (x @ wk / 4)[:, None], positions)
        v = (x @ wv / 4)[:, None]
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = seen[:, 0] @ embed.T
        return out

    return logits


def rotated(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return apply_rotary_qk(q, k, Rotation.at(RotarySpec(head_dim=WIDTH), positions))


def k_only(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return q, rotated(q, k, positions)[1]


def by_length(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """As dynamic NTK does: the longest position of a call decides for all of its tokens."""
    base = 10_000.0 * max(1.0, positions.max().item() / 16)
    return apply_rotary_qk(q, k, Rotation.at(RotarySpec(head_dim=WIDTH, base=base), positions))


def trial(turn: Any) -> Trial:
    tokens = torch.randint(WORDS, (2, 24), generator=torch.Generator().manual_seed(1))
    return Trial(BlackBox(attention_of(turn)), tokens)


def test_a_right_rotation_keeps_every_law_that_can_be_asked() -> None:
    rows = [law(trial(rotated)) for law in LAWS]
    assert {row.verdict for row in rows} == {"right", "not shown"}
    assert shift(trial(rotated)).verdict == batched(trial(rotated)).verdict == "right"
    assert cached(trial(rotated)).reason == "logits keeps no cache that could be given"


def test_only_k_turned_shows_when_a_text_is_moved() -> None:
    row = shift(trial(k_only))
    assert (row.verdict, row.cause, row.position) == ("wrong", "not shift of all positions", 1.0)
    assert row.size is not None and row.size > 0.1
    assert batched(trial(k_only)).verdict == "right"  # it is wrong alone and in a batch alike


def test_frequencies_by_length_show_beside_a_longer_text() -> None:
    row = batched(trial(by_length))
    assert (row.verdict, row.position) == ("wrong", 1.0)


def test_what_an_encoding_does_by_design_is_no_fault() -> None:
    tokens = trial(by_length).tokens
    meant = Trial(BlackBox(attention_of(by_length)), tokens, by_design="base follows the length", threshold=16)
    row = batched(meant)
    assert (row.by_design, row.reason) == (True, "base follows the length")
    reached = Trial(meant.subject, tokens, by_design="base follows the length", threshold=tokens.shape[1] - 1)
    beyond = Trial(meant.subject, tokens, by_design="base follows the length", threshold=tokens.shape[1])
    assert batched(reached).by_design and batched(beyond).verdict == "wrong"  # positions begin at 0
    inside = Trial(BlackBox(attention_of(k_only)), tokens, by_design="base follows the length", threshold=5000)
    assert shift(inside).verdict == "wrong"  # below its threshold the excuse does not hold


class BothWays(BlackBox):
    """An encoder: every token sees all others, but padding."""

    def logits(self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        made = torch.Generator().manual_seed(0)
        embed, wq, wk, wv = (torch.randn(n, WIDTH, generator=made) for n in (WORDS, WIDTH, WIDTH, WIDTH))
        x = embed[tokens]
        q, k = self.call((x @ wq / 4)[:, None], (x @ wk / 4)[:, None], positions)
        seen = None if mask is None else (mask > 0)[:, None, None]
        y = torch.nn.functional.scaled_dot_product_attention(q, k, (x @ wv / 4)[:, None], attn_mask=seen)
        return y[:, 0] @ embed.T


def test_padding_of_an_encoder_is_masked_beside_a_longer_text() -> None:
    """Without its mask a right encoder would be called wrong, because padding would be read as text."""
    tokens = trial(rotated).tokens
    assert not Trial(BothWays(rotated), tokens).causal
    assert batched(Trial(BothWays(rotated), tokens)).verdict == "right"
    assert batched(Trial(BothWays(by_length), tokens)).verdict == "wrong"


def test_positions_that_move_nothing_are_no_proof() -> None:
    row = shift(trial(lambda q, k, positions: (q, k)))
    assert row.verdict == "not shown" and row.reason.startswith("all positions halved move the logits by 0")


def test_a_black_box_by_the_public_name() -> None:
    assert diagnose(attention_of(rotated)).sound
    found = diagnose(attention_of(k_only), torch.arange(24).reshape(2, 12))
    assert found.causes == ("not shift of all positions",) and found.exit_code == 1


def test_a_trial_of_logits_in_half_precision_allows_for_its_rounding() -> None:
    half = Trial(BlackBox(lambda t, p: attention_of(rotated)(t, p).bfloat16()), trial(rotated).tokens)
    assert shift(half).verdict == "right"
    assert 16 * 2**-7 * half.scale <= half.allowed <= 32 * 2**-7 * half.scale
    assert shift(Trial(BlackBox(lambda t, p: attention_of(k_only)(t, p).bfloat16()), half.tokens)).verdict == "wrong"


# --- a transformers model: the faults of which four laws show six of nine -------------------------------------------

transformers = pytest.importorskip("transformers")


def llama(**rope: Any) -> Any:
    from .families import SIZES

    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10_000.0, **rope}
    config = transformers.LlamaConfig(**{**SIZES, "max_position_embeddings": 256}, rope_parameters=rope)
    return transformers.LlamaForCausalLM(config).eval()


LONG = {
    "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0 + i for i in range(8)],
    "original_max_position_embeddings": 64,
}  # fmt: skip


def put(kind: str) -> Callable[[Any, pytest.MonkeyPatch], None]:
    from .faults import FAULTS

    return FAULTS[kind].put


# name -> (model, the fault that is put into it, how the laws alone judge it)
TABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "healthy": ({}, "", "right"),
    "dynamic NTK": ({"rope_type": "dynamic", "factor": 4.0}, "", "by design"),
    "LongRoPE over its threshold": (LONG, "", "by design"),
    "rotary on k only": ({}, "k only", "wrong"),
    "sign of k flipped": ({}, "sign of k", "wrong"),
    "positions restart in each call": ({}, "positions restart with the cache", "wrong"),
    "cos, sin and product in bfloat16": ({}, "product in bfloat16", "wrong"),
    "inv_freq rounded to bfloat16": ({}, "frequencies in float16", "right"),
    "garbage inv_freq": ({}, "garbage frequencies", "wrong"),  # angles so large are rounded to whole turns
    "layout swapped": ({}, "layout swapped", "right"),
}


@pytest.mark.parametrize("name", TABLE)
def test_seven_of_nine_show_without_a_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rope, kind, alone = TABLE[name]
    model = llama(**rope)
    if kind:
        put(kind)(model, monkeypatch)
    observed = Observation(model)
    trial, rows = Trial.of(observed.subject, observed.inputs.tokens, observed.specs), []
    for law in (not_finite, *LAWS):  # each finds the model as it was
        with torch.no_grad(), undisturbed(model):
            rows += [row] if (row := law(trial)) is not None else []
    verdicts = {"by design" if row.by_design else row.verdict for row in rows}
    told = next(word for word in ("wrong", "by design", "right") if word in verdicts)
    assert told == alone, [str(row) for row in rows]


def test_the_cache_is_told_by_the_calls_that_use_it() -> None:
    from phasor.tools.doctor.running import Running

    model = llama()
    put("positions restart with the cache")(model, pytest.MonkeyPatch())
    tokens = torch.randint(3, 96, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        subject = Trial(Running(model), tokens)
        verdicts = {law.__name__: law(subject).verdict for law in (shift, cached, chunked, packed)}
        assert verdicts == {"shift": "right", "cached": "wrong", "chunked": "wrong", "packed": "right"}
        assert (cached(subject).position, chunked(subject).position) == (12.0, 8.0)


class Summing(nn.Module):
    """The logits of a token are the sum of all tokens up to it."""

    def forward(self, input_ids: Tensor, use_cache: bool = False, cache: Tensor | None = None) -> Any:
        sums = input_ids.cumsum(1) + (0 if cache is None else cache)
        return SimpleNamespace(logits=sums[..., None].float(), cache=sums[:, -1:])


class SummingBefore(Summing):
    """With the name of a cache before transformers 5.24."""

    def forward(self, input_ids: Tensor, use_cache: bool = False, past_key_values: Tensor | None = None) -> Any:
        found = super().forward(input_ids, cache=past_key_values)
        return SimpleNamespace(logits=found.logits, past_key_values=found.cache)


class HandingOn(nn.Module):
    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, input_ids: Tensor, **more: Any) -> Any:
        return self.inside(input_ids, **more)


@pytest.mark.parametrize("model", [Summing(), SummingBefore(), HandingOn(Summing()), HandingOn(SummingBefore())])
def test_a_cache_has_the_name_that_the_model_has_for_it(model: nn.Module) -> None:
    from phasor.tools.doctor.running import Running

    tokens = torch.arange(24).reshape(2, 12)
    pieces = Running(model).in_pieces(tokens, torch.arange(12).expand(2, -1), [5, 4, 3])
    assert torch.equal(pieces[..., 0], tokens.cumsum(1).float())
