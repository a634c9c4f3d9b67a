"""Kinds of layers: those that rotate alike share one set of vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.spec import Angles, RotarySpec
from ...rotary.temperature import TEMPERATURES, Temperature
from ...support.schemes import from_data, to_data

Positions = Sequence[int | float] | Sequence[Sequence[int | float]]
FAR = (131_071, 1_000_003, 2_000_000_000)
_REAL = (0.0, 0.125, 0.25, 0.5, 0.875, 1.0, -1.0, -0.375, 2.5, 7.25, 100.5, 1000.25)  # exact in float32


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Layers that rotate alike: their spec (None: they do not rotate), temperature, and the length it is taken at.

    ``own_angles``: how the model's own code forms its angles; ``seq_len`` only where the frequencies depend on it;
    ``moved``: its rotation takes rotated keys from one position to another (`moves`).
    """

    name: str
    layers: tuple[int, ...]
    layer_type: str
    spec: RotarySpec | None
    own_angles: Angles = "float32"
    temperature: Temperature | None = None
    seq_len: int | None = None
    moved: bool = False

    @property
    def exact(self) -> RotarySpec | None:
        return None if self.spec is None else self.spec.replace(angles="exact")

    @property
    def model(self) -> RotarySpec | None:
        """The spec in the arithmetic of the model's own code."""
        return None if self.spec is None else self.spec.replace(angles=self.own_angles)

    def to_dict(self) -> dict[str, Any]:
        data = {**vars(self), "layers": list(self.layers), "temperature": to_data(self.temperature)}
        return {**data, "spec": None if self.spec is None else self.spec.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Kind":
        spec = None if data["spec"] is None else RotarySpec.from_dict(data["spec"])
        temperature = from_data("temperature", data["temperature"], TEMPERATURES)
        known = {name: data[name] for name in ("name", "layer_type", "own_angles", "seq_len")}
        return cls(
            layers=tuple(data["layers"]), spec=spec, temperature=temperature, moved=data.get("moved", False), **known
        )


def kinds_of(model: ModelRotary) -> list[Kind]:
    """Every kind of layer that rotates or has a temperature, in order of first use.

    A spec that depends on the length of the sequence gives two kinds, ``_short`` and ``_long``.
    """
    groups: dict[tuple[RotarySpec | None, Temperature | None], list[int]] = {}
    temperatures = model.temperatures or (None,) * len(model.layers)
    for i, key in enumerate(zip(model.layers, temperatures, strict=True)):
        if key != (None, None):
            groups.setdefault(key, []).append(i)
    kinds: list[Kind] = []
    used: dict[str, int] = {}
    for (spec, temperature), layers in groups.items():
        word = model.layer_types[layers[0]]
        used[word] = used.get(word, 0) + 1
        name = word if used[word] == 1 else f"{word}_{used[word]}"
        for suffix, seq_len in _regimes(spec, model):
            kinds.append(
                Kind(
                    name=name + suffix,
                    layers=tuple(layers),
                    layer_type=word,
                    spec=spec,
                    own_angles=model.own_angles,
                    temperature=temperature,
                    seq_len=seq_len,
                )
            )
    if not kinds:
        raise ValueError(f"config must have a layer that rotates, got {model.model_type} with none")
    return kinds


def _regimes(spec: RotarySpec | None, model: ModelRotary) -> list[tuple[str, int | None]]:
    if spec is None or not spec.length_dependent:
        return [("", None)]
    trained = trained_length(spec, model)
    return [("_short", trained), ("_long", max(model.max_position or 0, 4 * trained))]


def trained_length(spec: RotarySpec | None, model: ModelRotary) -> int:
    """The length before any stretching: that of the scaling, else the one the config declares, else 4096."""
    scaling = spec and spec.scaling
    return (scaling and scaling.trained_length) or model.max_position or 4096


def positions_of(kind: Kind, model: ModelRotary, chosen: Positions | None) -> Tensor:
    """``[S]``, or ``[axes, S]``: near (0 to 7), around the trained and the declared length, and far; or those chosen.

    With several axes the coordinates of a token are 0, 5, 12, … above those numbers, unless a row is given for each.
    """
    real = kind.spec is not None and kind.spec.coordinates == "real"
    axes = 1 if kind.spec is None else kind.spec.axes.count
    dtype = torch.float32 if real else torch.int64
    rows = [list(row) for row in chosen or () if isinstance(row, list | tuple)]
    if rows:
        if [len(row) for row in rows] != [len(rows[0])] * axes:
            raise ValueError(
                f"positions must be one list, or one for each of {axes} axes, equally long, got rows of "
                f"{[len(row) for row in rows]}"
            )
        _check_numbers([number for row in rows for number in row], real)
        at = torch.tensor(rows, dtype=dtype)
        return at if axes > 1 else at[0]
    numbers: tuple[Any, ...] = tuple(chosen) if chosen is not None else _REAL if real else _usual(kind, model)
    _check_numbers(numbers, real)
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"positions must differ from each other, got {list(numbers)}")
    at = torch.tensor(numbers, dtype=dtype)
    # unequal steps: if each were 3, axes in another order would look like positions that are too high by 3
    return at if axes == 1 else torch.stack([at + axis * (axis + 4) for axis in range(axes)])


def _usual(kind: Kind, model: ModelRotary) -> tuple[int, ...]:
    trained = trained_length(kind.spec, model)
    declared = model.max_position or trained
    return tuple(sorted({*range(8), 100, trained - 1, trained, declared - 1, declared, *FAR}))


def _check_numbers(numbers: Sequence[Any], real: bool) -> None:
    if not numbers:
        raise ValueError("positions must name at least one position, got none")
    for number in numbers:
        whole = isinstance(number, int) and not isinstance(number, bool) and abs(number) <= 2**31
        if not whole and not (real and isinstance(number, float)):
            kind = "finite real numbers" if real else "integers from -2**31 to 2**31"
            raise ValueError(f"positions must be {kind}, got {number!r}")
