"""The operands of each attention before and after, seen by hooks and by the calls of products: no eye, no tape."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eye.truth import Case

PRODUCTS = {"scaled_dot_product_attention", "matmul", "__matmul__", "bmm", "baddbmm", "einsum"}


class Products(TorchFunctionMode):
    """[(name, tensors that went in, what came out)] of every product."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Tensor], Tensor]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name not in PRODUCTS:
            return func(*args, **(kwargs or {}))
        tensors = [a.clone() for a in args if isinstance(a, Tensor)]
        self.calls.append((name, tensors, func(*args, **(kwargs or {}))))
        return self.calls[-1][2]


@dataclass
class Seen:
    """One call of an attention: its arguments, the products in it, and what went into its last projection."""

    args: tuple
    calls: list = field(default_factory=list)
    joined: Tensor | None = None


@contextmanager
def watching(case: Case, model: nn.Module) -> Iterator[dict[str, Seen]]:
    """path of an attention: what was `Seen` in it, after the model has run."""
    seen: dict[str, Seen] = {}
    with Products() as products, torch.no_grad():
        handles = []
        for where in {site.where for site in case.truth.sites}:
            module = model.get_submodule(where)

            def enter(module, args, where=where):
                products.calls.clear()
                seen[where] = Seen(tuple(a.clone() if isinstance(a, Tensor) else a for a in args))

            def leave(module, args, out, where=where):
                seen[where].calls = list(products.calls)

            def join(module, args, where=where):
                seen[where].joined = args[0].clone()

            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
            if hasattr(module, "o_proj"):
                handles.append(module.o_proj.register_forward_pre_hook(join))
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


def operands(calls: list) -> dict[str, Tensor]:
    """q, k and v: of a fused attention, else of the last two products, which are the scores and the sum of values."""
    fused = [call for call in calls if call[0] == "scaled_dot_product_attention"]
    if fused:
        return dict(zip("qkv", fused[-1][1], strict=False)) | {"output": fused[-1][2]}
    (_, scores, _), (_, values, out) = calls[-2:]
    return {"q": scores[-2], "k": scores[-1], "v": values[-1], "output": out}


def in_order(x: Tensor, form: str, batch: int) -> Tensor:
    """[batch, heads, tokens, channels] of a tensor whose axes are ``form``."""
    if "n" in form:
        x, form = x.unflatten(form.index("n"), (batch, -1)), form.replace("n", "bh")
    return x.permute([form.index(axis) for axis in "bhsd"])
