"""Another implementation as a function: what it makes of the golden inputs, and the gradient that comes back."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...support.errors import first_line
from .tensors import DTYPES, GRADIENT, GRADIENTS
from .vectors import Vectors

Function = Callable[[Tensor], Any]


def run(golden: Vectors, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors, with those that functions give instead of these; and of each function that shows no gradient, why.

    A function stands under the name of a rotated ``q_out`` or ``k_out``, and is called with its input in its dtype.
    """
    tensors: dict[str, Any] = {}
    why_not: dict[str, str] = {}
    for name, value in given.items():
        if not callable(value) or isinstance(value, Tensor):
            tensors[name] = value
            continue
        target = name.rpartition(".")[2].removesuffix("_out")
        if name not in golden.tensors or target not in GRADIENTS:
            raise ValueError(f"other: a function must be named as a rotated q or k, …q_out or …k_out, got {name!r}")
        kind, dtype = golden.kind_of(name).name, DTYPES[name.split(".")[-2]]
        x = golden.tensors[f"{kind}.{target}_in"].to(dtype)
        seed = golden.tensors.get(f"{kind}.{target}_grad_in")
        tensors[name], gradient = _called(value, x, seed)
        if isinstance(gradient, str):
            why_not[name] = gradient
        elif gradient is not None:
            tensors[name.removesuffix("_out") + GRADIENT] = gradient
    return tensors, why_not


def _called(function: Function, x: Tensor, seed: Tensor | None) -> tuple[Any, Tensor | str | None]:
    """Its result, and the gradient of ``x`` or why there is none."""
    if seed is None:
        return _tensor(function(x)), None
    leaf = x.clone().requires_grad_()
    try:
        with torch.enable_grad():
            out = function(leaf)
    except Exception as error:  # of whatever code it is: perhaps it takes no tensor that needs a gradient
        return _tensor(function(x)), f"with gradients it raises {type(error).__name__}: {first_line(error):.120}"
    if not isinstance(out, Tensor):
        return _tensor(out), f"it gives {type(out).__name__}, which keeps no gradient"
    if out.is_inference():
        return out.clone(), "it runs in inference mode"
    if not out.requires_grad:
        return out, torch.zeros_like(x)
    try:
        (found,) = torch.autograd.grad(out, leaf, seed.reshape(out.shape).to(out.dtype), allow_unused=True)
    except Exception as error:  # a backward that was never written
        return out.detach(), f"it cannot be differentiated: {type(error).__name__}: {first_line(error):.120}"
    return out.detach(), torch.zeros_like(x) if found is None else found


def _tensor(out: Any) -> Any:
    """An array of numpy as a tensor; whatever else it is, is told by those who read tensors."""
    return out.detach() if isinstance(out, Tensor) else torch.as_tensor(out) if hasattr(out, "__array__") else out
