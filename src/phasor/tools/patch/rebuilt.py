"""A transformers model built once more from its config: every buffer that weights do not bring, and no weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ...support.errors import first_line
from ...support.on_cpu import on_cpu
from .sites import has_config


def is_model(module: nn.Module) -> bool:
    """Whether a module is a transformers model that initialises itself, so that it can be built again."""
    return has_config(module) and hasattr(module, "_init_weights")


class RebuiltModels:
    """The transformers models in a module, built again from their configs, each when it is first asked for."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.models: dict[str, nn.Module] = {}

    @cached_property
    def roots(self) -> dict[str, nn.Module]:
        """By path: the module itself, or the models that a wrapper (PEFT, a compiler) holds."""
        models: dict[str, nn.Module] = {}
        for path, module in self.model.named_modules():
            inside = any(not root or path.startswith(root + ".") for root in models)
            if not inside and is_model(module):
                models[path] = module
        return models

    def module(self, path: str) -> nn.Module | None:
        """The module of that path, built again; None for an adapter's. Raises as `rebuilt_model`."""
        root = next((r for r in self.roots if not r or path == r or path.startswith(r + ".")), None)
        if root is None:
            return None
        if root not in self.models:
            self.models[root] = rebuilt_model(self.roots[root])
        try:
            return self.models[root].get_submodule(path[len(root) :].lstrip("."))
        except AttributeError:
            return None


def rebuilt_model(model: nn.Module) -> nn.Module:
    """The model's class, built again from a copy of its config, in the dtype that most of its weights have.

    Parameters are on the meta device, in the dtypes that `from_pretrained` gives them. Buffers that are not stored are
    on the CPU, formed as `from_pretrained` forms them; one that its own code does not form stays on the meta device.
    No random number is drawn, and nothing of ``model`` changes.

    Raises ``ValueError`` if the class cannot be built from the config alone.
    """
    try:
        rebuilt = _built(model, "meta", dtype_of(model))
        # values are formed in float32, whatever dtype the module was built in: so does from_pretrained
        with torch.random.fork_rng(devices=[]), on_cpu(), _default_dtype(torch.float32), torch.no_grad():
            for owner, module in _owned(rebuilt, rebuilt):
                _form(owner, module)
    except Exception as error:  # the class's own code runs, and raises what it likes
        raise ValueError(f"model cannot be built again from its config: {first_line(error)}") from error
    _widen(rebuilt, dtype_of(model))
    return rebuilt.eval()


def rebuilt_module(module: nn.Module) -> nn.Module:
    """One module, built again from a copy of its own config, with values in float32 on the CPU.

    Raises ``ValueError`` if its class is not built from a config alone.
    """
    try:
        return _built(module, "cpu", torch.float32)
    except Exception as error:
        name = own_class(module).__name__
        raise ValueError(f"{name} cannot be built from its config alone: {first_line(error)}") from error


def probe_of(module: nn.Module) -> tuple[nn.Module | None, str]:
    """A copy of a module that can be called; one on the meta device is built again from its config."""
    if not any(t.is_meta for t in (*module.buffers(), *module.parameters())):
        return deepcopy(module), ""
    try:
        return rebuilt_module(module), ""
    except ValueError as error:
        return None, f"it is on the meta device, and {error}"


def _built(module: Any, device: str, dtype: torch.dtype) -> nn.Module:
    make: Any = own_class(module)
    config = deepcopy(module.config)
    with torch.random.fork_rng(devices=[]), torch.device(device), _default_dtype(dtype):
        try:
            built: nn.Module = make(config)
        except KeyError:  # some choose their class of attention by its name, and somebody's own has none
            config._attn_implementation = "eager"
            built = make(config)
    return built


def own_class(module: nn.Module) -> type[nn.Module]:
    """The class that its library gave it: below what torch's sharding and `patch` put on top."""
    mro = type(module).__mro__
    cls = next(c for c in mro if not any(b.__module__.startswith("torch.distributed") for b in c.__mro__))
    own: type[nn.Module] = getattr(cls, "_phasor_original", cls)
    return own


def dtype_of(model: nn.Module) -> torch.dtype:
    """The floating-point dtype that most of its weights have."""
    counts: dict[torch.dtype, int] = {}
    for p in model.parameters():
        if p.is_floating_point():
            counts[p.dtype] = counts.get(p.dtype, 0) + p.numel()
    usual = {d: n for d, n in counts.items() if d.itemsize > 1}  # an 8-bit float is a quantized weight
    return max(usual, key=lambda d: usual[d]) if usual else torch.float32


def config_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of this very module that its config gives: those that its state_dict leaves out, and frequencies."""
    left_out = module._non_persistent_buffers_set
    own = {name: b for name, b in module._buffers.items() if b is not None}
    return {name: b for name, b in own.items() if name in left_out or name.endswith("inv_freq")}


def _owned(module: nn.Module, owner: nn.Module) -> Iterator[tuple[Any, nn.Module]]:
    """Each module with the innermost model around it, whose rules initialise it."""
    owner = module if is_model(module) else owner
    yield owner, module
    for child in module.children():
        yield from _owned(child, owner)


def _form(owner: Any, module: nn.Module) -> None:
    """Initialise buffers over zeros and over ones; what differs is not initialised by the module's code."""
    empty = {name: buffer for name, buffer in config_buffers(module).items() if buffer.is_meta}
    if not empty:
        return
    filled: list[dict[str, Any]] = []
    for fill in (0, 1):
        for name in empty:
            module._buffers[name] = torch.full_like(empty[name], fill, device="cpu")
        owner._init_weights(module)
        filled.append({name: module._buffers[name] for name in empty})
    for name in empty:
        first, second = (buffers[name] for buffers in filled)
        module._buffers[name] = second if torch.equal(first, second) else empty[name]


def _widen(model: Any, dtype: torch.dtype) -> None:
    """Weights that from_pretrained keeps in float32 when all others are in half precision."""
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ()) if dtype.itemsize < 4 else set()
    if dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta and tensor.is_floating_point() and any(part in name for part in kept):
            tensor.data = tensor.data.float()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
