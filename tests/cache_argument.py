"""A cache as an argument of a model: ``cache=`` from transformers 5.24 on, ``past_key_values=`` before."""

import inspect
from typing import Any


def given(cache: Any) -> dict[str, Any]:
    """The argument by its name in the models of transformers."""
    return {_name(): cache}


def returned(output: Any) -> Any:
    """The cache in what a model returns."""
    return getattr(output, _name())


def taken(arguments: dict[str, Any]) -> Any:
    """The cache among the named arguments of an attention, None without one."""
    return arguments.get(_name())


def _name() -> str:
    from transformers import LlamaForCausalLM

    return "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
