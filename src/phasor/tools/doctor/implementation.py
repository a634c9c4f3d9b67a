"""A transformers model that attends by another implementation, for as long as a block takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ..patch.sites import configs_of


@contextmanager
def attending_by(model: nn.Module, name: str) -> Iterator[None]:
    """Every config in the model says the implementation of attention of that name; then its own again."""
    tops = [config for module in model.modules() if hasattr(config := getattr(module, "config", None), "to_dict")]
    inside: dict[int, Any] = {id(config): config for top in tops for _, config in configs_of(top)}
    known = [config for config in inside.values() if hasattr(config, "_attn_implementation_internal")]
    before = [config._attn_implementation_internal for config in known]
    try:
        for config in known:
            config._attn_implementation_internal = name
        yield
    finally:
        for config, value in zip(known, before, strict=True):
            config._attn_implementation_internal = value
