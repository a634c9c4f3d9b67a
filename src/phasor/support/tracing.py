"""What a compiler must not look into, and how to tell that something traces or transforms."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

F = TypeVar("F", bound=Callable)


def constant(function: F) -> F:
    """Its result is a constant to torch.compile and torch.export, whatever computes it; arguments must be plain data.

    The same mark as ``torch.compiler.assume_constant_result`` sets; calling that would import the compiler, which takes
    a second, whenever phasor is imported.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010
    return function


def transformed() -> bool:
    """Whether a compiler traces, or a function transform or forward-mode differentiation is at work."""
    return bool(torch.compiler.is_compiling() or mapped() or torch.jit.is_tracing())


@constant
def mapped() -> bool:
    """Whether vmap and its kind, or forward-mode differentiation, are at work; also where a compiler traces."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@constant
def exporting() -> bool:
    """Whether `torch.export` traces. Asked while code is made; in the code, torch 2.11 says yes to all it compiles."""
    return torch.compiler.is_exporting()


def known(condition: bool) -> bool:
    """Whether it holds; to a compiler, not where it takes a size that only the data will tell."""
    if not torch.compiler.is_compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # which takes a second to import

    return guard_or_false(condition)


def watched() -> bool:
    """Whether anything stands between an operation and its result: a transform, or a mode that sees all operations."""
    if transformed() or torch._C._len_torch_dispatch_stack():
        return True
    # a default device stands on the same stack, and sees factories only
    return any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack())


def readable(x: Tensor) -> bool:
    """Whether the values of ``x`` may be looked at: not under a transform, on the meta device or in a CUDA graph."""
    if transformed() or type(x) not in (Tensor, torch.nn.Parameter) or x.is_meta:
        return False
    return not capturing(x.device)


def capturing(device: torch.device) -> bool:
    """Whether work on ``device`` is recorded into a CUDA graph: done later, and again and again."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
