"""What a model's rotary module returns, formed by phasor: cos and sin in the form that the model's code expects.

The classes with ``methods`` are recipes for the modules that form or store tables (see `swap`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...positions import centres
from ...rotary.layout import Layout
from ...rotary.spec import RotarySpec
from ...rotary.tables import Phases

Form = Literal["half", "doubled", "repeated", "blocks", "complex"]


@dataclass(frozen=True)
class Tables:
    """How one rotary module lays out what it returns for a spec.

    - ``form``: one value per pair (``"half"``), one per channel in the order of halves (``"doubled"``), of interleaved
      pairs (``"repeated"``) or of halves inside blocks, or ``cos + i sin`` per pair (``"complex"``).
    - ``rounded``: whether cos and sin have the dtype of the activations; float32 otherwise.
    - ``coordinates_last``: positions are ``[..., axes]``; otherwise ``[axes, ...]``.
    - ``led``: the result has one more dimension of size 1 in front.
    """

    spec: RotarySpec
    form: Form
    rounded: bool
    coordinates_last: bool = False
    led: bool = False

    def at(self, x: Tensor, positions: Tensor, log_scale: Tensor | None = None) -> Any:
        """``(cos, sin)`` or their complex form at ``positions``, on the device of ``x``."""
        spec = self.spec
        if positions.is_floating_point() and spec.coordinates == "integer":  # SAM 3 scales those of its global layers
            spec = spec.replace(coordinates="real")
        if positions.dtype in (torch.float16, torch.bfloat16):  # a buffer of the model, which took the model's dtype
            positions = positions.float()
        axes = spec.axes.count
        if axes > 1:
            positions = positions.movedim(-1, 0) if self.coordinates_last else _led_by(axes, positions)
        shape = positions.shape[axes > 1 :]
        if len(shape) > 2:
            positions = positions.flatten(-len(shape))
        wide = torch.float64 if x.dtype == torch.float64 and self.spec.angles == "exact" else torch.float32
        form = _complex if self.form == "complex" else _of_both
        if positions.device != x.device:  # in every forward pass: to ask is less than to convert into the same
            positions = positions.to(x.device)
        formed = _formed(form, spec, positions, log_scale, wide)
        if len(shape) > 2 or self.led:
            formed = [t.reshape(*([1] * self.led), *shape, -1) for t in formed]
        if self.form == "complex":
            return formed[0]
        cos, sin = self.laid_out(*formed[0::2]), self.laid_out(*formed[1::2])
        dtype = x.dtype if self.rounded else torch.float32
        return (cos, sin) if cos.dtype == dtype else (cos.to(dtype), sin.to(dtype))

    def laid_out(self, first: Tensor, second: Tensor) -> Tensor:
        if self.form == "half":
            return first
        if self.form == "doubled":  # at once, likewise
            return torch.cat((first, second), dim=-1)
        return layout_of_table(2 * first.shape[-1], self.form, self.spec.blocks).join(first, second)


def per_pair(table: Tensor, form: Form, blocks: int = 1) -> Tensor:
    """One value per pair of a table in the model's form, as a view where that is possible."""
    if form in ("half", "complex"):  # the parts of a complex table have one value per pair
        return table
    if form == "doubled":  # at once, in every forward pass: this is the form of most models
        return table[..., : table.shape[-1] // 2]
    return layout_of_table(table.shape[-1], form, blocks).split(table)[0]


def layout_of_table(width: int, form: Form, blocks: int) -> Layout:
    """How a table with one value per channel holds the pairs."""
    return Layout(head_dim=width, interleaved=form == "repeated", blocks=blocks if form == "blocks" else 1)


def _led_by(axes: int, positions: Tensor) -> Tensor:
    return positions if positions.ndim > 2 and positions.shape[0] == axes else positions.expand(axes, -1, -1)


def _formed(
    form: Callable[[Phases], list[Tensor]],
    spec: RotarySpec,
    positions: Tensor,
    log_scale: Tensor | None,
    dtype: torch.dtype,
) -> list[Tensor]:
    """What ``form`` makes of the phases at ``positions``."""
    if spec.scaling is None or not spec.scaling.two_regimes:
        inside = 1 if spec.length_dependent else None
        return form(Phases(spec, positions, inside, log_scale, dtype))
    # as transformers' modules do: the largest position of a call decides for all of its tokens
    trained = spec.scaling.trained_length
    assert trained is not None
    short, long = (form(Phases(spec, positions, n, dtype=dtype)) for n in (trained, trained + 1))
    beyond = positions.max() + 1 > trained
    return [torch.where(beyond, b, a) for a, b in zip(short, long, strict=True)]


def _complex(phases: Phases) -> list[Tensor]:
    """Of float32 angles by torch.polar, as models form them: with other last bits than torch.cos gives."""
    spec = phases.spec
    if spec.angles in ("exact", "float64"):
        cos, sin = phases.tables()
        return [torch.complex(cos.float(), sin.float())]
    angles = -phases.angles() if spec.reverse else phases.angles()
    return [torch.polar(torch.ones_like(angles), angles) * spec.attention_factor(phases.seq_len)]


def _of_both(phases: Phases) -> list[Tensor]:
    """cos and sin of the first members of all pairs, then of the second ones, mostly the same."""
    first = phases.tables()
    return [*first, *(phases.tables(second=True) if phases.second is not None else first)]


def log_scale_of(module: Any, spec: RotarySpec) -> Tensor | None:
    """The log-scale of its frequencies that a module has learned, for specs that have one."""
    return module.alpha.to(torch.float32) if spec.learned else None


Numbering = Literal["patches", "frames"]


TAKES: dict[tuple[str, ...], Numbering] = {("pixel_values",): "patches", ("hidden_states",): "frames"}


@dataclass(frozen=True)
class SelfNumberedModule:
    """Methods for a module that numbers its tokens itself.

    ``numbering``: the centres of the ``"patches"`` of an image, tables of ``[N, channels]`` (DINOv3); or the
    ``"frames"`` of a sequence, cos and sin stacked, ``[2, S, 1, 1, channels]`` (the conformers).
    """

    tables: Tables
    numbering: Numbering

    def at(self, x: Tensor, patch: tuple[int, int]) -> Any:
        """What the module returns for ``x``."""
        if self.numbering == "patches":
            (height, width), (rows, columns) = x.shape[-2:], patch
            at = centres(height // rows, width // columns).to(x.device)
            return tuple(table[0] for table in self.tables.at(x, at[:, None]))
        tables = self.tables.at(x, torch.arange(x.shape[1], device=x.device))
        return torch.stack(tables)[:, :, None, None]

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            (x,) = (*args, *kwargs.values())
            if self.numbering == "patches" and module.training:  # its class shifts and scales the centres at random
                return cls.forward(module, x)
            return self.at(x, patch_of(module))

        def extra_repr(module: nn.Module) -> str:
            return f"phasor: {self.tables.spec.describe()}"

        return {"forward": forward, "extra_repr": extra_repr}


def numbering_of(module: nn.Module) -> Numbering | None:
    """What a module numbers by itself, as far as its parameters say."""
    return TAKES.get(tuple(signature(module.forward).parameters))


def patch_of(module: Any) -> tuple[int, int]:
    size = getattr(getattr(module, "config", None), "patch_size", 1)
    return (size, size) if isinstance(size, int) else tuple(size)


@dataclass(frozen=True)
class StoredTable:
    """Methods for a module that stores all sines before all cosines, ``[length, 2 pairs]``, under ``name``.

    The table is formed once, by the spec. Device and dtype follow the module's own tensor; ``dtype`` overrides its
    dtype where it was damaged.
    """

    tables: Tables
    name: str
    length: int
    dtype: torch.dtype | None = None

    def table(self) -> Tensor:
        cos, sin = self.tables.at(torch.zeros(1), torch.arange(self.length))
        return torch.cat((sin, cos), dim=-1)

    def methods(self, cls: type[nn.Module]) -> dict[str, Any]:
        table = self.table()

        def stored(module: nn.Module) -> Tensor:
            own = stored_table(module, self.name)
            return table.to(own.device, self.dtype or own.dtype)

        return {self.name: property(stored)}


def stored_table(module: nn.Module, name: str) -> Tensor:
    """The module's own tensor of that name."""
    table = module._buffers.get(name)
    table = module._parameters[name] if table is None else table
    assert table is not None
    return table
