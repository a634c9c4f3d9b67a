"""The frequencies that a rotary module holds, beside those of its spec: rounded, zero, or never initialised."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ...integrations.agreement import Agreement
from ...spec import RotarySpec

LOAD = "load the model in that dtype, or phasor.repair(model); .to() rounds buffers that must stay in float32"
MEND = "phasor.repair(model) forms them again from the config"
WILD = 10.0  # times the fastest frequency: no rotation turns so fast
HALVES = (torch.bfloat16, torch.float16)


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


def damage(got: Tensor, specs: Sequence[RotarySpec]) -> tuple[str, str, str] | None:
    """Cause, sentence and way out for frequencies that something has happened to; None for any other."""
    if got.is_meta:
        return "frequencies on the meta device", "the buffer was never given memory; the weights were", MEND
    fitting = [f.to(got.device) for spec in specs for f in ladders(spec) if f.shape == got.shape]
    for half in HALVES:
        name = str(half).removeprefix("torch.")
        rounded = [f for f in fitting if torch.equal(f.to(half).float(), got.float()) and not torch.equal(f, got)]
        if got.dtype == half or rounded:
            says = f"inv_freq was rounded to {name}, and must stay in float32"
            return f"frequencies rounded to {name}", says, LOAD
    if not got.any():
        return "frequencies are zero", "nothing turns: inv_freq was filled with zeros", MEND
    fastest = max((f.max().item() for f in fitting), default=1.0)
    wild = ~got.isfinite() | (got < 0) | (got > WILD * fastest)
    if wild.any():
        says = f"{int(wild.sum())} of {len(got)} values of inv_freq are no frequencies (the first: {got[wild][0]:.3g})"
        return "garbage frequencies", f"{says}; memory that nothing has written after to_empty looks so", MEND
    return None


def fits(got: Tensor, specs: Sequence[RotarySpec]) -> bool:
    """Whether frequencies are those of one of the specs."""
    return any(
        f.shape == got.shape and Agreement.of(f, got.float().cpu()).close for spec in specs for f in ladders(spec)
    )
