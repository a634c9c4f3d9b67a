"""The frequencies that a rotary module holds, beside those of its spec: rounded, zero, or never initialised."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ....rotary.spec import RotarySpec
from ...patch.compare import difference_of
from ...patch.damage import HALVES, Damage, damage, name_of

LOAD = "load the model in that dtype, or phasor.repair(model); .to() rounds buffers that must stay in float32"
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
    if None in damages or any(not got.is_meta and torch.equal(f.flip(0), got.float().cpu()) for f in fitting):
        return None  # in reverse order they are all there: no memory that nothing has written
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
