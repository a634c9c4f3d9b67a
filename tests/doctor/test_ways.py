"""What is said of a way of calling rests on what was compared in it."""

from typing import Any
from unittest import mock

import pytest

pytest.importorskip("transformers")

import torch
import transformers
from torch import Tensor
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import rotate_half

from phasor import diagnose

from .random_types import TYPES
from .wild import SIZES, glm4, llama, smollm3


def row(model: Any, what: str) -> Any:
    return next(row for row in diagnose(model).findings if row.what == what)


def test_keys_that_a_window_keeps_are_seen_since_their_projection() -> None:
    """Of 48 tokens in five calls a window of 8 keeps the last ones: slices of keys that were joined twice."""
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=8)).eval()
    assert row(model, "q and k through a cache").verdict == "right"


def test_an_attention_that_a_batch_leaves_out_was_not_compared() -> None:
    model = llama()
    layer = model.model.layers[1]
    forward = layer.self_attn.forward

    def skipping(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(hidden_states) == 8:
            return hidden_states, None
        return forward(hidden_states, *args, **kwargs)

    left_out = torch.nn.Identity()
    left_out.forward = skipping  # type: ignore[method-assign]
    left_out.inside = layer.self_attn
    layer.self_attn = left_out
    found = row(model, "q and k padded on the left")
    assert found.verdict == "not shown" and found.where.startswith("model.layers.1"), str(found)


def test_a_layer_without_positions_that_is_rotated_in_a_batch() -> None:
    """The second layer of this SmolLM 3 has no positions, and one text alone is not rotated there."""
    model = smollm3()
    attention = model.model.layers[1].self_attn
    forward = attention.forward

    def batched(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        attention.use_rope = len(hidden_states) > 2
        return forward(hidden_states, *args, **kwargs)

    attention.forward = batched
    assert "rotated, only in large batches" in diagnose(model).causes


def test_the_scale_is_seen_through_a_wrapper_of_the_fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = torch.nn.functional.scaled_dot_product_attention

    def louder(q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return fused(q * 1.25, k, v, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", louder)
    found = row(llama(), "rotation of q and k")
    assert found.cause == "attention factor" and "q by 1.25" in found.reason, str(found)


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        pytest.param(lambda at: at, (), id="healthy"),
        pytest.param(lambda at: at.bfloat16().long(), ("positions, only in long calls",), id="in half precision"),
        pytest.param(lambda at: at.clamp(max=2047), ("positions, only in long calls",), id="cut off"),
        pytest.param(
            lambda at: at.clamp(max=2047) if at.shape[1] == 1 else at, ("positions, only in decoding",), id="in steps"
        ),
    ],
)
def test_a_few_tokens_stand_where_no_call_of_many_reaches(change: Any, causes: tuple[str, ...]) -> None:
    model = llama(max_position_embeddings=8192)

    def given(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        at = kwargs.get("position_ids")
        return args, kwargs if at is None else {**kwargs, "position_ids": change(at)}

    model.register_forward_pre_hook(given, with_kwargs=True)
    found = diagnose(model)
    assert found.causes == causes, str(found)
    assert any(check.what == "q and k at the end of 8192 positions, and on" for check in found.findings)


def test_a_backward_that_keeps_the_tables_of_one_row() -> None:
    """All rows of a batch at the same positions show nothing of it, nor does one row."""

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            ctx.save_for_backward(cos[:1], sin[:1])
            return x * cos + rotate_half(x) * sin

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
            cos, sin = ctx.saved_tensors
            return gradient * cos - rotate_half(gradient * sin), None, None

    def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        return tuple(Turned.apply(x, cos[:, None], sin[:, None]) for x in (q, k))

    with mock.patch.object(modeling_llama, "apply_rotary_pos_emb", rotated):
        found = diagnose(llama())
    assert found.causes == ("angles of the gradient, only in some rows of a batch",), str(found)


def test_gradients_of_a_batch_that_cannot_be_formed_are_not_called_right() -> None:
    model = llama()

    def one_row(module: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and len(kwargs["position_ids"].unique(dim=0)) > 1:
            raise RuntimeError("one row alone")

    model.model.rotary_emb.register_forward_pre_hook(one_row, with_kwargs=True)
    found = row(model, "gradient of q and k")
    assert found.verdict == "not shown" and "one row alone" in found.reason, str(found)


def test_tokens_are_decoded_under_autocast_too() -> None:
    model = llama()

    def turned(module: Any, args: Any, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        one = torch.is_autocast_enabled("cpu") and tables[0].shape[1] == 1
        return tables[0], -tables[1] if one else tables[1]

    model.model.rotary_emb.register_forward_hook(turned)
    assert diagnose(model).causes == ("sign, only in decoding",)


def test_what_cannot_be_called_is_told_once() -> None:
    """A model without a cache, of which one step cannot be called either."""
    told = [(row.what, row.where) for row in diagnose(TYPES["modernbert"].build(2)).findings]
    assert len(told) == len(set(told)) and ("q and k through a cache", "") in told


def test_autocast_excuses_no_table_that_the_model_forms_in_float32() -> None:
    """Its products round q and k; cos and sin stay what they are without it, and were taken for rounded by it."""
    model = llama()

    def coarse(module: Any, args: Any, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        return tuple(t.bfloat16().float() if torch.is_autocast_enabled("cpu") else t for t in tables)

    hook = model.model.rotary_emb.register_forward_hook(coarse)
    assert diagnose(model).causes == ("half precision, only under autocast",)
    hook.remove()
    assert row(model, "q and k under autocast").verdict == "right"


def test_channels_that_pass_are_as_long_as_those_that_turn() -> None:
    """GLM-4 turns the first half of its channels."""
    from transformers.models.glm4 import modeling_glm4

    model, own = glm4(), modeling_glm4.apply_rotary_pos_emb
    with pytest.MonkeyPatch.context() as changed:

        def louder(q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> Any:
            q, k = own(q, k, *args, **kwargs)
            return q, torch.cat((k[..., :8], 2 * k[..., 8:]), -1)

        changed.setattr(modeling_glm4, "apply_rotary_pos_emb", louder)
        first = diagnose(model).wrong[0]
    assert first.what == "rotation of q and k" and "pass are 2 times as long" in first.reason, str(first)


def test_a_model_that_no_text_can_be_put_through_is_not_called_right() -> None:
    model = llama()
    forward = model.forward

    def short(input_ids: Tensor, **kwargs: Any) -> Any:
        if input_ids.shape[1] > 4:
            raise ValueError("at most 4 tokens")
        return forward(input_ids, **kwargs)

    model.forward = short
    found = diagnose(model)
    assert found.verdict == "not shown" and any("at most 4 tokens" in one.reason for one in found.missing), str(found)
