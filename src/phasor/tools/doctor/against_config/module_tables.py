"""What a rotary module makes of positions, one cos and one sin per pair, whatever the form of its tables."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ....rotary.layout import Layout
from ....rotary.spec import RotarySpec
from ...patch.compare import shaped
from ...patch.tables import Form, Tables


@dataclass(frozen=True)
class ModuleTables:
    """``cos`` and ``sin`` ``[S, P]`` of a module, in float32; ``form`` is that of its tables (`Tables`)."""

    cos: Tensor
    sin: Tensor
    form: Form
    last: bool = False  # whether the coordinates of a position come last

    @property
    def pairs(self) -> int:
        return self.cos.shape[-1]


def tables_of_module(
    module: nn.Module, layer_type: str | None, spec: RotarySpec, positions: Tensor
) -> ModuleTables | None:
    """Of ``positions [A, S]``; None for a module that does not take them so, or returns something else."""
    more = {} if layer_type is None else {"layer_type": layer_type}
    device = next((b.device for b in module.buffers() if not b.is_meta), positions.device)
    candidates = []
    for at, last in shaped(spec, positions.unsqueeze(1).to(device)):
        try:
            result = module.forward(torch.zeros(1, positions.shape[-1], 1, device=device), at, **more)
        except Exception:  # not the shape it takes
            continue
        if (one := per_pair_of(result, spec, positions.shape[-1])) is not None:
            candidates.append(replace(one, last=last))
    if len(candidates) > 1 and candidates[0].pairs == spec.pairs:  # a module may take both, and mean one
        cos, sin = expected(spec, positions)
        candidates.sort(key=lambda one: (one.cos - cos).abs().max().item() + (one.sin - sin).abs().max().item())
    return candidates[0] if candidates else None


def expected(spec: RotarySpec, positions: Tensor, log_scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """cos and sin ``[S, P]`` of the spec in the model's own arithmetic, frequencies being those of all positions."""
    at = positions[0][None] if spec.axes.count == 1 else positions.unsqueeze(1)
    cos, sin = Tables(spec, "half", rounded=False).at(torch.zeros(1), at, log_scale)
    return cos[0], sin[0]


def per_pair_of(result: Any, spec: RotarySpec, length: int) -> ModuleTables | None:
    if isinstance(result, Tensor) and result.is_complex():
        result = (result.real, result.imag)
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(t, Tensor) for t in result):
        return None
    cos, sin = (t.detach().float().cpu().reshape(-1, t.shape[-1]) for t in result)
    if len(cos) != length or cos.shape != sin.shape:
        return None
    if cos.shape[-1] == spec.pairs:
        return ModuleTables(cos, sin, "half")
    for form, layout in _forms(cos.shape[-1], spec):
        (a, b), (c, d) = layout.split(cos), layout.split(sin)
        if torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(c.nan_to_num(), d.nan_to_num()):
            return ModuleTables(a.contiguous(), c.contiguous(), form)
    return None


def _forms(width: int, spec: RotarySpec) -> list[tuple[Form, Layout]]:
    if width % 2:
        return []
    forms: list[tuple[Form, Layout]] = [
        ("doubled", Layout(head_dim=width)),
        ("repeated", Layout(head_dim=width, interleaved=True)),
    ]
    if spec.blocks > 1 and (width // 2) % spec.blocks == 0:
        forms.append(("blocks", Layout(head_dim=width, blocks=spec.blocks)))
    return forms
