"""The tensors of one kind of layer, each with what it means and how far another implementation may be off."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec, product_dtype
from ...rotary.temperature import LearnedLog
from .layer_kinds import Kind
from .vectors import Tolerance

HEADS = {"q": 2, "k": 1, "v": 1, "output": 1}
GRADIENTS = {"q": "q_grad", "k": "k_grad"}  # as targets: a backward takes ``q_grad_in`` and gives ``q_grad_out``
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
GRADIENT = "_grad_out"  # how the name of what a backward gives ends
TABLE = 1e-6  # cos and sin in float32, formed with care: an eighth of this is the rounding alone
PER_RADIAN = 2.0**-21  # float32 angles: four rounding steps, in the frequency and in the product
WIDEST = 4.0  # no output is farther off than its table times this: two inputs below 2, cos and sin both off
_WORDS = {  # of what turns back, before and after
    "output": ("the output of attention", "the output of attention rotated back"),
    **{grad: (f"the gradient that comes in, of rotated {t}", f"the gradient of {t}") for t, grad in GRADIENTS.items()},
}


@dataclass(frozen=True)
class Golden:
    """One tensor, its meaning in words, and what may be off. ``angles``: "exact", "model" or "" for neither."""

    tensor: Tensor
    meaning: str
    tolerance: Tolerance = Tolerance()  # noqa: RUF009 (frozen)
    angles: str = ""


def noise(seed: int, name: str, *shape: int) -> Tensor:
    """Odd multiples of 1/128 between -2 and 2, float32: exact in bfloat16 and float16 too, the same on every machine.

    Byte ``b`` of SHAKE-256 over ``phasor golden {seed} {name}`` gives ``(2 b - 255) / 128``.
    """
    data = hashlib.shake_256(f"phasor golden {seed} {name}".encode()).digest(math.prod(shape))
    return ((2 * torch.tensor(list(data)) - 255).to(torch.float32) / 128).reshape(shape)


def channels(spec: RotarySpec) -> dict[str, list[int]]:
    """Which channels of a head form pair ``i``, and where its two results are written."""
    index = torch.arange(spec.head_dim)
    read, written = spec.layout.split(index), spec.layout.written().split(index)
    names = ("first", "second", "first_written", "second_written")
    return {name: t.tolist() for name, t in zip(names, (*read, *written), strict=True)}


def tensors_of(
    kind: Kind, positions: Tensor, targets: tuple[str, ...], seed: int, heads: dict[str, Tensor] | None = None
) -> dict[str, Golden]:
    """Name (without the kind's) -> tensor. Names in `readme`. ``heads``: by target, instead of noise."""
    tensors = {"positions": Golden(positions, "the position of each token, [S], or one row per axis, [A, S]")}
    if kind.spec is not None:
        tensors |= _rotary(kind, positions, targets, seed, heads or {})
    if kind.temperature is not None:
        tensors |= _temperature(kind, positions, seed)
    return tensors


def log_scale_of(spec: RotarySpec, seed: int) -> Tensor | None:
    """A made-up trained log-scale, small, for specs with learned frequencies."""
    return noise(seed, "log_scale", spec.pairs) / 16 if spec.learned else None


def _rotary(
    kind: Kind, positions: Tensor, targets: tuple[str, ...], seed: int, heads: dict[str, Tensor]
) -> dict[str, Golden]:
    exact, model = kind.exact, kind.model
    assert exact is not None and model is not None
    factor = exact.attention_factor(kind.seq_len)
    scale = torch.tensor(factor, dtype=torch.float64)
    tensors = {"attention_factor": Golden(scale, "the factor inside cos and sin", Tolerance(relative=1e-6))}
    log_scale = log_scale_of(exact, seed)
    if log_scale is not None:
        tensors["log_scale"] = Golden(log_scale, "[P], the trained log-scale: frequency * exp(log_scale)")
    shapes = {t: (1, HEADS[t.removesuffix("_grad")], positions.shape[-1], exact.head_dim) for t in targets}
    inputs = {t: noise(seed, t, *shape) for t, shape in shapes.items()} | heads
    for t, x in inputs.items():
        what = _WORDS[t][0] if t in _WORDS else f"{t} before the rotation"
        tensors[f"{t}_in"] = Golden(x, f"{what}, [1, heads, S, D]; exact in bfloat16 too")
    arguments: dict[str, Any] = {"seq_len": kind.seq_len, "log_scale": log_scale}
    words = "radians per position of each pair, [P], after scaling, without a log-scale and a position scale"
    for label, spec in (("exact", exact), ("model", model))[: 1 if kind.moved else 2]:
        freq = spec.inv_freq(kind.seq_len)
        freq = freq if spec.angles == "exact" else freq.to(product_dtype(spec))
        tensors[f"{label}.inv_freq"] = Golden(freq, words, Tolerance(relative=1e-6), label)
    rotation = Rotation.at(exact, positions, dtype=torch.float64, **arguments)
    tensors |= _tables("exact", rotation, Tolerance(TABLE * factor))
    for name, dtype in DTYPES.items():
        relative = 2.0**-7 if name == "bfloat16" else 0.0
        tolerance = Tolerance(WIDEST * TABLE * factor, relative)
        tensors |= _outputs("exact", name, dtype, rotation, {t: x.double() for t, x in inputs.items()}, tolerance)
    for name, dtype in DTYPES.items() if not kind.moved else ():
        rotation = Rotation.at(model, positions, dtype=dtype, **arguments)
        coarse = 2.0**-8 if rotation.cos.dtype == torch.bfloat16 else 0.0
        tolerance = Tolerance((TABLE + coarse) * factor, 0.0, PER_RADIAN * factor)
        tensors |= _tables(f"model.{name}", rotation, tolerance)
        relative = 2.0**-7 if name == "bfloat16" else 0.0
        wide = Tolerance(WIDEST * tolerance.absolute, relative, WIDEST * tolerance.per_radian)
        tensors |= _outputs("model", name, dtype, rotation, {t: x.to(dtype) for t, x in inputs.items()}, wide)
    return tensors


def _tables(label: str, rotation: Rotation, tolerance: Tolerance) -> dict[str, Golden]:
    mode, words = label.split(".")[0], "of every pair at every position, [S, P], attention factor and direction inside"
    values = {"cos": rotation.cos, "sin": rotation.sin}
    if rotation.second is not None:
        values |= {"cos_second": rotation.second[0], "sin_second": rotation.second[1]}
    meanings = {name: f"{name.split('_')[0]} {words}" for name in values}
    meanings |= {name: f"{meanings[name]}, for the second results" for name in values if "second" in name}
    return {f"{label}.{name}": Golden(value, meanings[name], tolerance, mode) for name, value in values.items()}


def _outputs(
    mode: str, name: str, dtype: torch.dtype, rotation: Rotation, inputs: dict[str, Tensor], tolerance: Tolerance
) -> dict[str, Golden]:
    tensors = {}
    for t, x in inputs.items():
        rotated = apply_rotary(x, rotation.transpose() if t in _WORDS else rotation)
        if mode == "exact":
            rotated = rotated.to(dtype)
        what = _WORDS[t][1] if t in _WORDS else f"{t} after the rotation"
        how = "computed in float64 and rounded" if mode == "exact" else "bit for bit as the model's own code computes"
        tensors[f"{mode}.{name}.{t}_out"] = Golden(rotated, f"{what}, for {name} inputs, {how}", tolerance, mode)
    return tensors


def _temperature(kind: Kind, positions: Tensor, seed: int) -> dict[str, Golden]:
    assert kind.temperature is not None
    at = positions if positions.ndim == 1 else positions[0]
    trained: dict[str, Golden] = {}
    if isinstance(kind.temperature, LearnedLog):
        for name in ("scale", "bias"):
            value = noise(seed, f"temperature_{name}", HEADS["q"])
            trained[f"temperature_{name}"] = Golden(value, f"[heads], the trained {name} of the temperature")
    factors = kind.temperature.at(at, *(g.tensor for g in trained.values()))  # type: ignore[attr-defined]
    words = "the factor on the queries at each position, [S] or [heads, S], float32; not inside q_out"
    return trained | {"temperature": Golden(factors, words, Tolerance(absolute=1e-6, relative=1e-6))}
