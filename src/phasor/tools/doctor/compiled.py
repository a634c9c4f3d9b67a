"""A model that `torch.compile` runs: its compiled logits beside those of its own code, by which all else is judged."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .measurement import Trial
from .report import Check
from .running import Running


def is_compiled(model: Any) -> bool:
    """Whether a model, or a part of it, is compiled: wrapped, in place, or in its forward."""
    return hasattr(model, "_orig_mod") or any(_compiles(m) for m in model.modules())


def _compiles(module: nn.Module) -> bool:
    return module._compiled_call_impl is not None or hasattr(module.forward, "_torchdynamo_orig_callable")


def as_compiled(trial: Trial, wrapper: Any) -> Check:
    """The logits of a model as it is compiled, beside those of its plain code: what runs is what was looked at."""

    def compiled() -> Tensor:
        assert isinstance(trial.subject, Running)
        with torch.compiler.set_stance("default"):
            return trial.subject.through(wrapper, trial.tokens, trial.positions)

    says = "the compiled model gives other logits than its own code"
    way = "call torch.compiler.reset(), compile it anew, and look at what was changed after it was compiled"
    return replace(trial.judged("compiled = eager", compiled, trial.logits, says, way), needed=True)
