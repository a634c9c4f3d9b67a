"""q and k as they reach attention, in whatever way a module attends: transformers' functions, PyTorch's, or by hand."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ....support.preserve_state import hooked

MATMUL = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}
SOFTMAX = {torch.softmax, Tensor.softmax, torch.nn.functional.softmax, torch.special.softmax}
MASKED = -1e4  # scores below it are those of tokens that are not seen


class Caught(BaseException):
    """Carries q, k and the softmax scale (None: the usual one; nan: not seen) out of a call that need not go on."""

    def __init__(self, q: Tensor, k: Tensor, scale: float | None) -> None:
        self.q, self.k, self.scale = q, k, scale


class _Attention(TorchFunctionMode):
    """Raises `Caught` at PyTorch's own attention, and at a softmax of scores that a product of q and k gave."""

    def __init__(self) -> None:
        super().__init__()
        self.product: tuple[Tensor, Tensor, Tensor] | None = None  # q, k and their scores

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            raise _of_torch(*args, **kwargs)
        if func in SOFTMAX and self.product is not None and args and _are_scores(args[0], self.product[2]):
            q, k, scores = self.product
            raise Caught(q, k, _scale_of(args[0], scores))
        result = func(*args, **kwargs)
        heads = _of_matmul(*args[:2]) if func in MATMUL else _of_einsum(*args) if func is torch.einsum else None
        if heads is not None:
            self.product = (*heads, result.reshape(*heads[0].shape[:3], -1))
        return result


def _of_torch(query: Tensor, key: Tensor, *args: Any, scale: float | None = None, **kwargs: Any) -> Caught:
    return Caught(query, key, scale)


def _of_matmul(a: Any = None, b: Any = None) -> tuple[Tensor, Tensor] | None:
    """q and k ``[B, H, S, D]`` of a product ``q k^T`` of heads; None for all others."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.ndim != b.ndim or a.ndim < 3 or a.shape[-1] < 2:
        return None
    return _as_heads(a), _as_heads(b.transpose(-1, -2))


def _as_heads(x: Tensor) -> Tensor:
    """``[B, H, S, D]`` of heads that are flat, or that stand in groups."""
    return x[None] if x.ndim == 3 else x.flatten(1, -3)


def _of_einsum(equation: Any, *operands: Any) -> tuple[Tensor, Tensor] | None:
    """The same of ``einsum("bqhd,bkhd->bhqk", q, k)``, whatever its letters and their order."""
    if len(operands) != 2 or not isinstance(equation, str) or "." in equation:
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    one, _, other = inputs.partition(",")
    summed = [letter for letter in one if letter in other and letter not in output]
    shared = [letter for letter in output if letter in one and letter in other]
    own = [[letter for letter in names if letter not in (*shared, *summed)] for names in (one, other)]
    if len(summed) != 1 or len(shared) != 2 or [len(names) for names in own] != [1, 1]:
        return None
    orders = (
        [names.index(letter) for letter in (*shared, *mine, *summed)]
        for names, mine in zip((one, other), own, strict=True)
    )
    q, k = (x.permute(order) for x, order in zip(operands, orders, strict=True))
    return q, k


def _are_scores(x: Any, scores: Tensor) -> bool:
    """Whether a softmax is that of these scores; a sink may stand beside them."""
    if not isinstance(x, Tensor) or x.ndim < 3 or x.shape[-1] < scores.shape[-1]:
        return False
    return x[..., : scores.shape[-1]].numel() == scores.numel()


def _scale_of(x: Tensor, scores: Tensor) -> float:
    """By what scores were multiplied before the softmax; nan where that is no one number."""
    after = x[..., : scores.shape[-1]].reshape(scores.shape).double()
    seen, before = after > MASKED, scores.double()
    after, before = after[seen], before[seen]
    scale = ((after * before).sum() / (before * before).sum().clamp(min=1e-30)).item()
    close = (after - scale * before).abs().max() <= 1e-2 * after.abs().max() if len(after) else False
    return scale if close else math.nan


@contextlib.contextmanager
def caught_at_attention() -> Iterator[None]:
    """Inside, attention raises `Caught`.

    What transformers takes for attention is stopped at its door; a function that somebody registered there may still
    change q and k, so it runs until it attends itself.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    interface = functions.get_interface

    def catch(module: Any, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise Caught(query, key, kwargs.get("scaling"))

    def door(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        chosen = interface(*args, **kwargs)
        if str(getattr(chosen, "__module__", "transformers")).startswith("transformers."):
            return catch

        def run(*args: Any, **kwargs: Any) -> Any:
            chosen(*args, **kwargs)
            catch(*args, **kwargs)  # where it attends in a way that is not seen

        return run

    vars(functions)["get_interface"] = door
    try:
        with _Attention():
            yield
    finally:
        del vars(functions)["get_interface"]


def heads_of(module: nn.Module, arguments: dict[str, Any]) -> Caught | str:
    """q and k ``[B, H, S, D]`` as they reach attention in a call of a module, or why they are not seen.

    ``arguments`` are those that its hooks have left.
    """
    try:
        with caught_at_attention(), torch.no_grad():
            module.forward(**arguments)
    except Caught as caught:
        return caught
    except Exception as error:
        return f"{type(module).__name__} cannot be called by itself: {type(error).__name__}: {error!s:.80}"
    return f"{type(module).__name__} calls no attention that could be watched"


@contextlib.contextmanager
def code_that_runs() -> Iterator[set[CodeType]]:
    """The code of every function that is called inside."""
    seen: set[CodeType] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code))
    try:
        yield seen
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # cProfile's, which is no function before Python 3.12
            before.enable()


@contextlib.contextmanager
def projected(module: nn.Module) -> Iterator[dict[str, float]]:
    """The mean square of what ``q_proj`` and ``k_proj`` give inside; nothing where norms change it further."""
    lengths: dict[str, float] = {}
    children = dict(module.named_children())
    names = [n for n in ("q_proj", "k_proj") if n in children and not any("norm" in child for child in children)]
    with hooked(children[name].register_forward_hook(_noted(name, lengths)) for name in names):
        yield lengths


def mean_square(x: Tensor) -> float:
    """Which repeating heads, as grouped queries ask for, leaves as it is."""
    return x.double().square().mean().item()


def _noted(name: str, lengths: dict[str, float]) -> Callable[[nn.Module, Any, Any], None]:
    def note(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            lengths[name] = mean_square(result)

    return note


def is_formed_here(module: nn.Module, arguments: dict[str, Any], k: Tensor) -> bool:
    """Whether a module makes its k of its own hidden states, and not another's keys."""
    states = _states_of(arguments)
    if states is None:
        return False
    moved = heads_of(module, {**arguments, states: arguments[states].flip(-1) + 1})
    return isinstance(moved, str) or not torch.equal(moved.k, k)


def rotates_by_nothing(module: nn.Module, arguments: dict[str, Any], seen: Caught) -> bool:
    """Whether equal hidden states give equal q and k at every token: then no position is in them."""
    heads = _of_equal_states(module, arguments, seen)
    return heads is not None and all(_equal(x) for x in heads)


def rotates_besides(module: nn.Module, still: dict[str, Any], seen: Caught) -> bool:
    """Whether q and k of equal hidden states still rotate with the position where tables rotate nothing.

    A rotation leaves their lengths as they are. A convolution does not, unless a norm follows it; but in the second
    half of the tokens it has equal states all around, and gives equal q and k there.
    """
    heads = _of_equal_states(module, still, seen)
    if heads is None:
        return False
    later = [x[:, :, x.shape[2] // 2 :] for x in heads]
    return all(not _equal(x) and _equal(x.norm(dim=-1, keepdim=True)) for x in later)


def _of_equal_states(module: nn.Module, arguments: dict[str, Any], seen: Caught) -> tuple[Tensor, Tensor] | None:
    """q and k of a call in which all tokens have the hidden states of the first; None where that is not seen."""
    name = _states_of(arguments)
    if name is None:
        return None
    heads = heads_of(module, {**arguments, name: arguments[name][:, :1].expand_as(arguments[name])})
    return None if isinstance(heads, str) or heads.q.shape != seen.q.shape else (heads.q.float(), heads.k.float())


def _equal(x: Tensor) -> bool:
    """Whether all tokens ``[B, H, S, D]`` are as the first one, but for rounding."""
    return bool((x - x[:, :, :1]).abs().max() <= 1e-2 * x.abs().max())


def _states_of(arguments: dict[str, Any]) -> str | None:
    """The name of the hidden states among the arguments."""
    return next(
        (n for n, x in arguments.items() if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 1), None
    )
