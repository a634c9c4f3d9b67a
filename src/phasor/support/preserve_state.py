"""A model that is looked at is left as it was: modes, buffers, attributes, hooks and random numbers."""

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

FIELDS = ("_buffers", "_parameters", "_forward_hooks", "_forward_pre_hooks", "_modules")


@contextlib.contextmanager
def undisturbed(model: object) -> Iterator[None]:
    """In evaluation mode and without gradients inside; outside nothing has changed but what is written into tensors."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    before = [(dict(vars(m)), {n: vars(m)[n].copy() for n in FIELDS}) for m in modules]
    devices = {p.device.index for m in modules for p in m._parameters.values() if p is not None and p.is_cuda}
    with contextlib.ExitStack() as inside:
        inside.enter_context(torch.no_grad())
        inside.enter_context(torch.random.fork_rng(sorted(devices)))
        inside.callback(_restored, modules, before)
        if isinstance(model, nn.Module):
            model.eval()
        yield


def _restored(modules: list[nn.Module], before: list[tuple[dict, dict]]) -> None:
    for module, (own, fields) in zip(modules, before, strict=True):
        vars(module).clear()
        vars(module).update(own)
        for name, value in fields.items():
            vars(module)[name].clear()
            vars(module)[name].update(value)


@contextlib.contextmanager
def hooked(hooks: Iterable[RemovableHandle]) -> Iterator[None]:
    """Hooks that are registered, removed at the end."""
    with contextlib.ExitStack() as undo:
        for hook in hooks:
            undo.callback(hook.remove)
        yield
