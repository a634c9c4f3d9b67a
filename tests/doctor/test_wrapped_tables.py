"""What is put around a rotary module is part of what it gives: hooks, and functions that hand on their arguments."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("transformers")

from torch import Tensor

from phasor import diagnose

from .families import model_of, rotary_of

Change = Callable[[Tensor], Tensor]


def by_hook(rotary: Any, change: Change) -> None:
    def given(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs:
            return args, {**kwargs, "position_ids": change(kwargs["position_ids"])}
        return (args[0], change(args[1])), kwargs

    rotary.register_forward_pre_hook(given, with_kwargs=True)


def by_function(rotary: Any, change: Change) -> None:
    forward = rotary.forward

    def handed_on(*args: Any, **kwargs: Any) -> Any:
        return forward(args[0], change(args[1] if len(args) > 1 else kwargs["position_ids"]))

    rotary.forward = handed_on


@pytest.mark.parametrize("put", [by_hook, by_function])
@pytest.mark.parametrize(
    ("change", "causes"),
    [
        pytest.param(lambda at: at[[0, 2, 1]], ("sections",), id="height and width exchanged"),
        pytest.param(lambda at: at[:1].expand_as(at), ("sections",), id="time alone"),
        pytest.param(lambda at: at.clone(), (), id="healthy"),
    ],
)
def test_axes_that_no_text_tells_apart(put: Callable[[Any, Change], None], change: Change, causes: tuple) -> None:
    model = model_of("qwen2_vl")
    put(rotary_of(model), change)
    found = diagnose(model)
    assert found.causes == causes, str(found)


def test_a_hook_that_takes_no_such_call_is_left_out() -> None:
    model = model_of("llama")

    def asking(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        assert kwargs["position_ids"].ndim == 2

    rotary_of(model).register_forward_pre_hook(asking, with_kwargs=True)
    found = diagnose(model)
    assert found.sound, str(found)
