"""One rotary module: what its config says of it, the frequencies it holds, and the tables it forms."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ....rotary.model_rotary import ModelRotary
from ....rotary.spec import RotarySpec
from ....support.findings import Difference
from ...patch.compare import difference_of, forms_of, results_of, shaped
from ...patch.damage import HALVES, Damage, damage, name_of
from ...patch.reading import ModelReading, forward_specs, layer_types, of_layer_type
from ...patch.rebuilt import probe_of
from ...patch.tables import Tables, per_pair
from ..report import Check

LOAD = "load it by from_pretrained(..., dtype=...), or phasor.repair(model); .to() rounds what must stay in float32"
MEND = "phasor.repair(model) forms them again from the config"


def held_frequencies(module: nn.Module, layer_type: str | None = None) -> Tensor | None:
    """The buffer of frequencies that a module uses for a layer type."""
    return module._buffers.get("inv_freq" if layer_type is None else f"{layer_type}_inv_freq")


def ladders(spec: RotarySpec) -> Iterator[Tensor]:
    """The forms in which code holds the frequencies of a spec: one per pair, or each rung once."""
    inside = spec.scaling.trained_length if spec.length_dependent and spec.scaling else None
    whole = spec.inv_freq(inside).float()
    yield whole
    rungs = dict(zip(spec.axes.rung_of_pair(spec.pairs), whole.tolist(), strict=True))
    if 1 < len(rungs) < len(whole):
        yield torch.tensor([rungs[rung] for rung in sorted(rungs)])


def damaged(got: Tensor, specs: Sequence[RotarySpec]) -> tuple[str, str, str] | None:
    """Cause, sentence and way out for frequencies that something has happened to; None for any other."""
    forms = [f for spec in specs for f in ladders(spec)]
    fitting = [f for f in forms if f.shape == got.shape] or forms
    damages = [damage(got, form) for form in fitting]
    if None in damages:
        return None
    first = next((one for one in damages if one is not None and one.understood), None)
    if got.dtype in HALVES and (first is None or first.kind == "dtype"):
        first = Damage("rounded", f"rounded to {name_of(got.dtype)}")
    return None if first is None else _in_words(first)


def _in_words(damage: Damage) -> tuple[str, str, str] | None:
    if damage.kind == "on meta":
        return "frequencies on the meta device", "the buffer was never given memory; the weights were", MEND
    if damage.kind == "rounded":
        return f"frequencies {damage.words}", f"inv_freq was {damage.words}, and must stay in float32", LOAD
    if damage.kind == "zeros":
        return "frequencies are zero", "nothing rotates: inv_freq was filled with zeros", MEND
    if damage.kind == "garbage":
        says = f"inv_freq holds {damage.words}; memory that nothing has written after to_empty looks so"
        return "garbage frequencies", says, MEND
    return None


def fits(got: Tensor, specs: Sequence[RotarySpec]) -> bool:
    """Whether frequencies are those of one of the specs."""
    return any(
        f.shape == got.shape and difference_of(f, got.float().cpu()).close for spec in specs for f in ladders(spec)
    )


@dataclass(frozen=True)
class Module:
    """A rotary module, for one layer type, with the specs that its tables may be and what the config gives besides."""

    path: str
    module: nn.Module
    probe: nn.Module
    layer_type: str | None
    specs: Sequence[RotarySpec]
    models: Sequence[ModelRotary]

    @property
    def check(self) -> Check:
        what = "tables" if self.layer_type is None else f"tables of {self.layer_type}"
        return Check(
            where=self.path, what=what, against="spec", verdict="right", difference=Difference(of="cos and sin")
        )

    def broken(self, check: Check, frequencies: Tensor | None) -> Check | None:
        """The fault of frequencies to which something has happened; None for all others."""
        damage = None if frequencies is None else damaged(frequencies, self.specs)
        if damage is None:
            return None
        cause, says, way = damage
        return replace(check, verdict="wrong", cause=cause, reason=says, way_out=way)


def by_layer_type(reading: ModelReading, path: str, module: nn.Module) -> list[Module] | str:
    """A rotary module once for each layer type that it has frequencies for; or why the config says nothing of it."""
    models, reason = reading.models_of(module)
    probe, problem = probe_of(module)
    if reason or probe is None:
        return reason or problem
    if probe._forward_hooks or probe._forward_pre_hooks:  # what they change is what the model gets
        probe.forward = partial(_called, copy(probe))  # type: ignore[method-assign]
    forward, kinds = forward_specs(models), layer_types(module)
    return [Module(path, module, probe, kind, of_layer_type(kind, models, forward), models) for kind in kinds]


def _called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """A call with its hooks; without them where they do not take it so."""
    try:
        return module(*args, **kwargs)
    except Exception:  # a hook raises what it likes
        return module.forward(*args, **kwargs)


@dataclass(frozen=True)
class ModuleTables:
    """``cos`` and ``sin`` ``[S, P]`` of a module, in float32, which lie as ``tables`` do."""

    cos: Tensor
    sin: Tensor
    tables: Tables

    @property
    def pairs(self) -> int:
        return self.cos.shape[-1]


def tables_of_module(
    module: nn.Module, layer_type: str | None, spec: RotarySpec, positions: Tensor
) -> ModuleTables | None:
    """Of ``positions [A, S]``; None for a module that does not take them so, or returns something else."""
    device = next((b.device for b in module.buffers() if not b.is_meta), positions.device)
    candidates = []
    for at, last in shaped(spec, positions.unsqueeze(1).to(device)):
        theirs = results_of(module, layer_type, [at], [torch.float32])
        found = (_per_pair(theirs[0][2], tables, positions.shape[-1]) for tables in forms_of(spec, theirs, last))
        candidates += [one for one in found if one is not None][:1]
    if len(candidates) > 1 and candidates[0].pairs == spec.pairs:  # a module may take both, and mean one
        cos, sin = expected(spec, positions)
        candidates.sort(key=lambda one: (one.cos - cos).abs().max().item() + (one.sin - sin).abs().max().item())
    return candidates[0] if candidates else None


def expected(spec: RotarySpec, positions: Tensor, log_scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """cos and sin ``[S, P]`` of the spec in the model's own arithmetic, frequencies being those of all positions."""
    at = positions[0][None] if spec.axes.count == 1 else positions.unsqueeze(1)
    cos, sin = Tables(spec, "half", rounded=False).at(torch.zeros(1), at, log_scale)
    return cos[0], sin[0]


def _per_pair(result: Any, tables: Tables, length: int) -> ModuleTables | None:
    """What a module returned, if it lies in this form: each value once for a pair, or twice."""
    both = (result.real, result.imag) if tables.form == "complex" else result
    cos, sin = (t.detach().float().cpu().reshape(-1, t.shape[-1]) for t in both)
    step = {"half": 1, "complex": 1, "blocks": 2 * tables.spec.blocks}.get(tables.form, 2)
    if len(cos) != length or cos.shape != sin.shape or cos.shape[-1] % step:
        return None
    a, b = (per_pair(t, tables.form, tables.spec.blocks) for t in (cos, sin))
    whole = ((tables.laid_out(x, x), t) for x, t in ((a, cos), (b, sin)) if step > 1)
    if all(torch.equal(x.nan_to_num(), t.nan_to_num()) for x, t in whole):
        return ModuleTables(a.contiguous(), b.contiguous(), tables)
    return None
