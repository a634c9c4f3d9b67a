"""Models and inputs of which little can be said: each is told what it is, and no fault is made up."""

import warnings
from typing import Any

import pytest
import torch

from phasor import diagnose, testing

pytest.importorskip("transformers")
import transformers

from .families import SIZES, model_of

TINY = {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}


def llama(**changes: Any) -> Any:
    seed = changes.pop("seed", 0)
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**TINY, **changes})).eval()


def test_a_model_that_magnifies_every_rounding_is_sound() -> None:
    """Twelve layers of large random weights, where one step in an embedding moves logits by thousands of steps."""
    heads = {"num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 128}
    model = llama(**heads, num_hidden_layers=12, initializer_range=0.5, seed=3)
    assert testing.quick_check(model).sound
    assert diagnose(model).wrong == ()


def test_a_quick_check_of_which_nothing_is_known_does_not_pass() -> None:
    with pytest.raises(AssertionError, match=r"nothing could be checked, so nothing is proven\n.* 2 not shown"):
        testing.quick_check(llama(num_hidden_layers=0))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_said_to_be_so(value: float) -> None:
    model = llama()
    model.model.layers[1].mlp.up_proj.weight.data[3, 5] = value
    found = diagnose(model)
    (fault,) = found.wrong
    assert (fault.cause, fault.position, found.exit_code) == ("logits are not finite", 0.0, 1), str(found)
    assert fault.reason.endswith("; model.layers.1.mlp.up_proj.weight holds values that are no numbers")
    seen = ("q and k", "gradient", "operator")  # of the attentions, whose values are finite
    laws = [r for r in found.findings if r.against == "itself" and r is not fault and not r.what.startswith(seen)]
    assert {(row.verdict, row.reason) for row in laws} == {("not shown", "the logits are not finite")}
    for check in (testing.quick_check, testing.assert_relative):
        with pytest.raises(AssertionError, match="logits are not finite"):
            check(model)


def test_the_first_token_that_is_no_number_is_named() -> None:
    def scores(tokens: Any, at: Any) -> Any:
        logits = torch.nn.functional.one_hot(tokens, 32).float().cumsum(1)
        logits[1, 5:] = torch.nan
        return logits

    (fault,) = diagnose(scores).wrong
    assert fault.position == 5.0 and "the first in row 1" in fault.reason


def test_words_that_are_never_chosen_are_no_fault() -> None:
    model = llama()
    model.lm_head.register_forward_hook(lambda m, args, logits: logits.index_fill(-1, torch.tensor([0, 7]), -torch.inf))
    assert diagnose(model).sound and testing.quick_check(model).sound


def test_a_model_without_layers_is_told_that_nothing_turns() -> None:
    found = diagnose(llama(num_hidden_layers=0))
    assert not found.wrong and not found.sound
    assert any(row.reason == "nothing rotates: the model has 0 layers" for row in found.findings), str(found)


META = torch.zeros(2, 12, dtype=torch.int64, device="meta")


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: diagnose(model_of("llama"), META), "inputs"),
        (lambda: diagnose(model_of("llama"), {"input_ids": META}), r"inputs\['input_ids'\]"),
        (lambda: diagnose(lambda tokens, at: tokens, META), "inputs"),
        (lambda: testing.assert_relative(model_of("llama"), META), "inputs"),
        (lambda: testing.assert_packing_invariant(lambda tokens, at: tokens, META), "inputs"),
    ],
)
def test_inputs_on_the_meta_device_are_refused(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must hold values, got a tensor on the meta device"):
        call()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float32])
@pytest.mark.parametrize("named", [False, True])
def test_ids_must_be_what_an_embedding_takes(dtype: torch.dtype, named: bool) -> None:
    ids = torch.ones(2, 12, dtype=dtype)
    with pytest.raises(ValueError, match=r"must be token ids in torch.int64 or torch.int32, got torch\.\w+; convert"):
        diagnose(model_of("llama"), {"input_ids": ids} if named else ids)


def test_what_a_function_raises_is_said_to_be_its_own() -> None:
    def scores(tokens: Any, at: Any) -> Any:
        return tokens / (1 // 0)

    for call in (diagnose, testing.assert_relative):
        with pytest.raises(ValueError, match="and scores raises ZeroDivisionError: integer") as error:
            call(scores)
        assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_function_that_ends_early_is_not_checked_there() -> None:
    def scores(tokens: Any, at: Any) -> Any:
        if int(at.max()) > 100:
            raise KeyError("no position beyond 100")
        return torch.nn.functional.one_hot(tokens, 32).float().cumsum(1)

    row = next(row for row in diagnose(scores).findings if row.what == "shift of all positions")
    assert row.verdict == "not shown" and "scores raises KeyError: 'no position beyond 100'" in row.reason


def test_the_default_device_of_the_caller_plays_no_part() -> None:
    def scores(tokens: Any, at: Any) -> Any:
        return torch.nn.functional.one_hot(tokens, 32).float().cumsum(1)

    model = model_of("gemma3")
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert testing.quick_check(model).sound
        testing.assert_cache_consistent(model)
        testing.assert_padding_invariant(model)
        assert diagnose(model).sound
        assert not diagnose(scores).wrong
