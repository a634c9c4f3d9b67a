"""RotarySpec: everything that decides a rotary encoding, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..support.checks import flag, listed, number, one_of, whole
from ..support.names import no_field
from ..support.schemes import brief, from_data, lists, to_data
from .axes import AXES, Axes, OneAxis
from .fixed_point import exact, steps
from .frequencies import inverse_frequencies, own_ladder
from .layout import Layout
from .scaling import SCALINGS, AtLength, Proportional, Scaling

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Angles = Literal["exact", "float32", "float64", "float32_exp", "float64_rounded"]
Coordinates = Literal["integer", "real"]
Tables = Literal["activation", "float32", "rounded", "promoted", "float64"]


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """One rotary encoding as plain, hashable data: no tensors, so no dtype, device or framework can damage it.

    A pair of channels ``(a, b)`` rotates by ``position * position_scale * frequency`` radians, summed over the axes.

    Channels
      - ``head_dim``, ``rotary_dim``, ``trailing`` (multi-head latent attention), ``interleaved``, ``blocks`` (1 in
        almost all models) and ``permuted`` (DeepSeek-V3; scores stay the same): see `Layout`, which `layout` gives.

    Direction
      - ``reverse``: rotate by minus the angle (nanochat).

    Frequencies
      - ``base``: pair ``i`` rotates by ``base ** (-2 i / rotary_dim)`` radians per position (``rope_theta``);
        ``exponent_dim`` is another divisor of that exponent, which may be odd (GLM-4-MoE).
      - ``frequencies``: one explicit value per pair, instead of the ladder.
      - ``learned``: a trained log-scale per pair multiplies them, ``frequency * exp(log_scale)`` (Mistral Large 4);
        it is a tensor, so `Rotation.at` takes it.

    Scaling
      - ``scaling``: how the ladder is stretched for long contexts (`phasor.scaling`).

    Axes
      - ``axes``: which coordinate of a position rotates which pair (`phasor.axes`).
      - ``coordinates``: ``"integer"``, or ``"real"`` for patch centres and seconds; ``position_scale`` multiplies them.
      - ``second``: the axes of the second member of each pair, where a model rotates the two members by different
        angles (V-JEPA 2, HunyuanVL): ``(a cos_1 - b sin_1, a sin_2 + b cos_2)``. That is no rotation: not orthogonal,
        without an inverse, and scores depend on more than distances.

    Arithmetic
      - ``angles``: ``"exact"`` forms phases as integers, right to 2.5e-7 up to position 2**31 (real coordinates and
        learned frequencies: in float64). ``"float32"`` repeats the arithmetic of transformers' modules bit for bit,
        including its error, which grows with the position (9e-3 at 131k for base 500000); the modules of DeepSeek-V2
        and Llama 4, which form complex numbers, but for the last bit. ``"float64"`` forms the product in float64
        (RoFormer).
      - ``tables``, unless angles are exact: where the model's code rounds cos and sin. ``"activation"``: to the dtype
        of the activations, which are then multiplied in that dtype (most models); ``"float32"``: not at all;
        ``"rounded"``: to that dtype, but multiplied in float32; ``"promoted"``: not at all, and the result stays
        float32 (CodeGen); ``"float64"``: multiplied in float64 (MusicFlamingo).

    Raises ``ValueError`` for an odd or oversized ``rotary_dim``, for non-finite numbers, and for choices that exclude
    each other. Source: RoFormer, arXiv:2104.09864, section 3.2.

    >>> RotarySpec(head_dim=4, base=100.0).inv_freq().tolist()
    [1.0, 0.1]
    """

    head_dim: int
    rotary_dim: int = None  # type: ignore[assignment]  # replaced by head_dim
    trailing: bool = False
    interleaved: bool = False
    blocks: int = 1
    permuted: bool = False
    reverse: bool = False
    base: float = 10_000.0
    exponent_dim: int | None = None
    frequencies: tuple[float, ...] | None = None
    learned: bool = False
    scaling: Scaling | None = None
    axes: Axes = OneAxis()  # noqa: RUF009 (frozen)
    coordinates: Coordinates = "integer"
    position_scale: float = 1.0
    second: Axes | None = None
    angles: Angles = "exact"
    tables: Tables = "activation"

    if not TYPE_CHECKING:  # whose readers know the fields

        def __new__(cls, *args, **fields):
            """Refuse a name that is no field, and say what it is called here."""
            for name in fields:
                if name not in cls.__dataclass_fields__:
                    raise ValueError(no_field(name, cls.__dataclass_fields__))
            return super().__new__(cls)

    def __post_init__(self) -> None:
        self._set_layout()
        for name in ("base", "position_scale"):
            number(name, getattr(self, name), above=1 if name == "base" else 0)
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("reverse", "learned"):
            flag(name, getattr(self, name))
        for name, choices in (("coordinates", Coordinates), ("angles", Angles), ("tables", Tables)):
            one_of(name, getattr(self, name), get_args(choices))
        for name, schemes in _SCHEMES.items():
            value = getattr(self, name)
            if type(value) not in schemes.values() and not (name != "axes" and value is None):
                module = "scaling" if name == "scaling" else "axes"
                raise ValueError(
                    f"{name} must be one of the schemes in phasor.{module}, got {value!r}; "
                    f"one of your own: phasor.{module}.register_{module}(its class) first"
                )
        self._check_axes()
        if self.frequencies is not None:
            self._check_frequencies(self.frequencies)
        elif self.scaling is not None:
            if self.angles == "float32_exp":
                raise ValueError(
                    f"angles='float32_exp' has no scaling (its ladder is used as it is), got {self.scaling!r}; "
                    "angles='float32' has them all"
                )
            frequencies_of = own_frequencies if self.angles == "float32" else exact_frequencies
            frequencies_of(self)
        object.__setattr__(self, "_key", json.dumps(self.to_dict()))

    def _set_layout(self) -> None:
        layout = Layout(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Layout)})
        if self.permuted and not self.interleaved:
            raise ValueError("permuted needs interleaved=True (pairs are read interleaved and written as halves)")
        object.__setattr__(self, "rotary_dim", layout.rotary_dim)
        object.__setattr__(self, "_layout", layout)

    def _check_axes(self) -> None:
        for axes in (self.axes,) if self.second is None else (self.axes, self.second):
            axes.weights(self.pairs)  # the scheme's own errors, while the spec is built and not when it is used
            self._check_rungs(max(i for i, _ in axes.rung_of_pair(self.pairs)))
        if self.second is not None and self.second.count != self.axes.count:
            raise ValueError(
                "second must have as many coordinates as axes (both read the same positions), "
                f"got {self.second.count} and {self.axes.count}"
            )

    def _check_rungs(self, highest: int) -> None:
        if self.exponent_dim is None:
            return
        whole("exponent_dim", self.exponent_dim)
        if self.exponent_dim % 2 and isinstance(self.scaling, Proportional):
            raise ValueError(f"exponent_dim must be even with proportional scaling, got {self.exponent_dim}")
        if self.exponent_dim <= 2 * highest:
            raise ValueError(
                f"exponent_dim must be at least {2 * highest + 1} for {highest + 1} frequencies "
                f"(its ladder has (exponent_dim + 1) // 2 rungs), got {self.exponent_dim}"
            )

    def _check_frequencies(self, frequencies: tuple[float, ...]) -> None:
        listed("frequencies", frequencies)
        object.__setattr__(self, "frequencies", tuple(frequencies))
        if len(frequencies) != self.pairs:
            raise ValueError(f"frequencies must have one value per pair, {self.pairs} here, got {len(frequencies)}")
        for i, value in enumerate(frequencies):
            number(f"frequencies[{i}]", value)
        if self.scaling is not None:
            raise ValueError(
                "frequencies and scaling exclude each other (the list is used as it is), "
                f"got scaling {self.scaling!r}; scale the list first"
            )
        if self.exponent_dim is not None:
            raise ValueError(
                "frequencies and exponent_dim exclude each other (the list is used as it is), "
                f"got exponent_dim {self.exponent_dim}"
            )

    @property
    def key(self) -> str:
        """The spec as a line of JSON, made once: what torch.compile can guard by value, so equal specs compile once."""
        return self._key  # type: ignore[attr-defined, no-any-return]

    @property
    def layout(self) -> Layout:
        """Which channels rotate and how they hold the pairs, as one value."""
        return self._layout  # type: ignore[attr-defined, no-any-return]

    @property
    def pairs(self) -> int:
        """The number of pairs that rotate, ``rotary_dim / 2``."""
        return self.rotary_dim // 2

    @property
    def length_dependent(self) -> bool:
        """Whether the frequencies depend on ``seq_len``."""
        return self.scaling is not None and self.scaling.length_dependent

    def inv_freq(self, seq_len: int | None = None) -> Tensor:
        """float64 ``[P]`` on the CPU: radians per position of each pair, after scaling.

        Exact values rounded once; with angles that are not exact the values of the model's own code, widened.
        ``seq_len`` matters to length-dependent scalings only; ``None`` is a sequence inside the trained length.
        These are the values that models keep as ``inv_freq``: without ``position_scale``, the sign of ``reverse`` and
        the learned log-scale, and with ``second`` those of the first members.
        """
        return _rounded_once(self, seq_len) if self.angles == "exact" else own_frequencies(self, seq_len).double()

    def attention_factor(self, seq_len: int | None = None) -> float:
        """The factor on cos and sin (YaRN, LongRoPE); scores of the rotated channels grow by its square."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor(seq_len)

    def at_length(self, seq_len: int) -> RotarySpec:
        """A plain spec for sequences of ``seq_len`` tokens, prompt and generation: nothing in it depends on a length.

        Equal for all lengths of one regime; the spec itself if it depends on none. Raises ``ValueError`` for a length
        below 1. Source: the rule that a cache has one regime for the life of a sequence (DESIGN.md, rule 4).

        >>> from phasor.scaling import DynamicNTK
        >>> spec = RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 128))
        >>> spec.at_length(60) == spec.at_length(128), spec.at_length(400).length_dependent
        (True, False)
        """
        whole("seq_len", seq_len)
        if self.scaling is None or not self.length_dependent:
            return self
        return self.replace(scaling=AtLength(self.scaling, seq_len))

    @property
    def cache_key(self) -> str:
        """16 hexadecimal digits for the keys of a prefix cache, the same for equal specs in every process.

        The beginning of SHA-256 of the spec's fields that are not the default, as JSON with sorted names. Raises
        ``ValueError`` for a spec whose rotation depends on a length, of which the digits would not speak.

        >>> RotarySpec(head_dim=8).cache_key == RotarySpec(head_dim=8, base=500.0).cache_key
        False
        """
        if self.length_dependent:
            raise ValueError(
                "cache_key needs a spec at one length, got one that depends on it; spec.at_length(n) first"
            )
        plain = RotarySpec(head_dim=self.head_dim).to_dict() | {"head_dim": None}
        fields = {name: value for name, value in self.to_dict().items() if value != plain[name]}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> RotarySpec:
        """A copy with some fields changed, checked again. If all channels rotate, they do at another ``head_dim``, too.

        >>> RotarySpec(head_dim=8).replace(base=500.0).base
        500.0
        >>> RotarySpec(head_dim=8).replace(head_dim=16).rotary_dim
        16
        """
        if "head_dim" in changes and self.rotary_dim == self.head_dim:
            changes.setdefault("rotary_dim", None)
        return dataclasses.replace(self, **changes)

    def diff(self, other: RotarySpec) -> dict[str, tuple[Any, Any]]:
        """Fields that differ, as ``{field: (mine, theirs)}``; empty if the two specs are equal.

        >>> RotarySpec(head_dim=8).diff(RotarySpec(head_dim=8, base=500.0))
        {'base': (10000.0, 500.0)}
        """
        mine_theirs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))
        return {name: (mine, theirs) for name, mine, theirs in mine_theirs if mine != theirs}

    def describe(self) -> str:
        """One line for people.

        >>> RotarySpec(head_dim=128, rotary_dim=64).describe()
        'first 64 of 128 channels, halves, base 10000, no scaling, one axis, exact angles'
        """
        width = f"{'last' if self.trailing else 'first'} {self.rotary_dim} of {self.head_dim}"
        if self.rotary_dim == self.head_dim:
            width = f"all {self.head_dim}"
        parts = [f"{width} channels", self.layout.describe(), "rotated backwards" if self.reverse else ""]
        parts.append(f"base {self.base:.10g}" if self.frequencies is None else f"{self.pairs} explicit frequencies")
        parts.append("" if self.exponent_dim is None else f"exponents over {self.exponent_dim}")
        parts.append("learned log-scale" if self.learned else "")
        parts.append("no scaling" if self.scaling is None else brief(self.scaling))
        parts.append("one axis" if isinstance(self.axes, OneAxis) else brief(self.axes))
        parts.append("real coordinates" if self.coordinates == "real" else "")
        parts.append("" if self.position_scale == 1 else f"positions times {self.position_scale:.10g}")
        parts.append("" if self.second is None else f"second members by {brief(self.second)} (not orthogonal)")
        parts.append("exact angles" if self.angles == "exact" else f"{self.angles} angles (tables: {self.tables})")
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        return f"RotarySpec: {self.describe()}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data from which `from_dict` makes an equal spec.

        >>> spec = RotarySpec(head_dim=8, base=500.0)
        >>> RotarySpec.from_dict(spec.to_dict()) == spec
        True
        """
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return lists(data | {name: to_data(data[name]) for name in _SCHEMES})  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RotarySpec:
        """Inverse of `to_dict`; raises ``ValueError`` for a key or a scheme it does not know."""
        if not isinstance(data, dict):
            raise ValueError(f"data must be a dictionary as made by to_dict, got {type(data).__name__}")
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"data has unknown keys {unknown}; known: {sorted(known)}")
        if "head_dim" not in data:
            raise ValueError("data must have the key 'head_dim'")
        schemes = {name: from_data(name, data[name], known) for name, known in _SCHEMES.items() if name in data}
        return cls(**data | schemes)


_SCHEMES: dict[str, dict[str, Any]] = {"scaling": SCALINGS, "axes": AXES, "second": AXES}


@lru_cache(maxsize=512)
def exact_frequencies(spec: RotarySpec, seq_len: int | None = None) -> tuple[Decimal, ...]:
    """``[P]`` exact frequencies of a spec, after scaling, in radians per position."""
    if spec.frequencies is not None:
        return tuple(Decimal(f) for f in spec.frequencies)
    base, scaling = Decimal(spec.base), spec.scaling
    ladder = inverse_frequencies if scaling is None else partial(scaling.inv_freq, seq_len=seq_len)
    return tuple(_rungs(spec, lambda dim: ladder(base, dim)))


def _rounded_once(spec: RotarySpec, seq_len: int | None) -> Tensor:
    import torch

    return torch.tensor([float(f) for f in exact_frequencies(spec, seq_len)], dtype=torch.float64, device="cpu")


def product_dtype(spec: RotarySpec) -> torch.dtype:
    """In which positions are multiplied by frequencies, where that is no integer phase."""
    import torch

    return torch.float32 if spec.angles in ("float32", "float32_exp") else torch.float64


def own_frequencies(spec: RotarySpec, seq_len: int | None = None) -> Tensor:
    """``[P]`` frequencies of a spec, after scaling, bit for bit as the model's code forms them, for inexact angles.

    Scalings have two arithmetics only: that of transformers in float32, else exact ones, rounded once.
    """
    import torch

    dtype, scaling = product_dtype(spec), spec.scaling
    if spec.frequencies is not None:
        return torch.tensor(spec.frequencies, dtype=dtype, device="cpu")
    if scaling is None:
        return torch.stack(_rungs(spec, lambda dim: own_ladder(spec.angles, spec.base, dim)))
    if dtype == torch.float64:
        return _rounded_once(spec, seq_len)
    return torch.stack(_rungs(spec, lambda dim: scaling.inv_freq_float32(spec.base, dim, seq_len)))


def _rungs(spec: RotarySpec, ladder: Callable[[int], Any]) -> list[Any]:
    """The frequency of every pair: ``ladder`` gives all of them for a divisor of the exponent."""
    rungs = spec.axes.rung_of_pair(spec.pairs)
    ladders = {n: ladder(2 * n if spec.exponent_dim is None else spec.exponent_dim) for n in {n for _, n in rungs}}
    return [ladders[n][i] for i, n in rungs]


@lru_cache(maxsize=512)
def axis_steps(spec: RotarySpec, seq_len: int | None = None) -> tuple[tuple[int, ...], ...]:
    """``[axes][P]`` turns per position in fixed point (`phase`): frequency times the axis' share of the pair."""
    frequencies = exact_frequencies(spec, seq_len)
    shares = spec.axes.weights(spec.pairs)
    with exact():
        scaled = [f * Decimal(spec.position_scale) for f in frequencies]
        return tuple(steps(f * Decimal(w) for f, w in zip(scaled, row, strict=True)) for row in shares)
