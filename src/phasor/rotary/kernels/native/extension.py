"""The C extension, if it was built, and what it must know of the torch that is here."""

import ctypes
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...rotation import Rotation

MODULE: Any = None
MISSING = ""
try:
    from . import _native as MODULE  # type: ignore[attr-defined,no-redef]
except ImportError as error:
    MISSING = (
        "it was not built when phasor was installed, for want of a C compiler that it builds with (gcc and clang do)"
    )
    if list(Path(__file__).parent.glob("_native.*")):
        MISSING = f"it was built, and cannot be loaded here ({error})"

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def bind(learn: Callable[..., Any]) -> str:
    """Shows the extension this torch, and what to call where a gradient is wanted. Why not, if something is lacking."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it relies on the global interpreter lock, which this Python does not have"
    try:
        guards = (
            torch.is_grad_enabled,
            torch.is_inference_mode_enabled,
            torch._C._are_functorch_transforms_active,
            torch._C._len_torch_dispatch_stack,
            torch._C._len_torch_function_stack,
            torch._C._get_tracing_state,
        )
        MODULE.bind(
            torch.Tensor.__dlpack_c_exchange_api__,  # type: ignore[attr-defined]
            (Tensor, torch.nn.Parameter, Rotation), guards, torch.empty_like,
            {"memory_format": torch.contiguous_format}, forward_ad, learn, torch._C._increment_version, *threading(),
            LARGE_PAGES.exists() and "[never]" not in LARGE_PAGES.read_text(),
        )  # fmt: skip
        assert forward_ad._current_level < 0
    except (AttributeError, ImportError) as error:
        return f"this torch, {torch.__version__}, lacks what it needs ({error})"
    return ""


def threading() -> tuple[int, int]:
    """The addresses of torch's own loop over threads, and of how many it has; 0 where it has none: one thread works."""
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        try:
            functions = ctypes.CDLL(str(library))
            loop, count = functions.torch_parallel_for, functions.torch_get_num_threads
        except (OSError, AttributeError):
            continue
        return ctypes.cast(loop, ctypes.c_void_p).value or 0, ctypes.cast(count, ctypes.c_void_p).value or 0
    return 0, 0
