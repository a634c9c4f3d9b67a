"""RotarySpec: everything that decides a rotary encoding, and nothing else."""

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from .axes import AXES, Axes, OneAxis
from .checks import flag, listed, number
from .frequencies import inverse_frequencies, inverse_frequencies_float32
from .pairs import check_rotary_dim
from .phase import exact, steps
from .scaling import SCALINGS, Scaling

Angles = Literal["exact", "float32"]
Tables = Literal["activation", "float32", "rounded"]


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """One rotary encoding as plain, hashable data: no tensors, so no dtype, device or framework can damage it.

    - ``head_dim``: channels of one head; ``rotary_dim`` of them turn (default: all), the first ones, or the last
      ones if ``trailing`` (multi-head latent attention).
    - ``base``: pair ``i`` turns by ``base ** (-2 i / rotary_dim)`` radians per position (``rope_theta``); or
      ``frequencies``, one explicit value per pair, instead of the ladder.
    - ``interleaved``: pairs are channels ``(2i, 2i + 1)``; otherwise halves, ``(i, i + rotary_dim / 2)``.
    - ``scaling``: how the ladder is stretched for long contexts (`phasor.scaling`); ``axes``: which coordinate of a
      position turns which pair (`phasor.axes`).
    - ``angles``: ``"exact"`` forms phases as integers, right to 2.5e-7 up to position 2**31. ``"float32"`` repeats
      the arithmetic of transformers' modules bit for bit, including its error, which grows with the position (9e-3 at
      131k for base 500000).
    - ``tables``, for float32 angles only: where the model's code rounds cos and sin. ``"activation"``: to the dtype of
      the activations, which are then multiplied in that dtype (most models); ``"float32"``: not at all; ``"rounded"``:
      to that dtype, but multiplied in float32.

    Raises ``ValueError`` for an odd or oversized ``rotary_dim``, for non-finite numbers, and for choices that exclude
    each other. Source: RoFormer, arXiv:2104.09864, section 3.2.

    >>> RotarySpec(head_dim=4, base=100.0).inv_freq().tolist()
    [1.0, 0.1]
    """

    head_dim: int
    rotary_dim: int = None  # type: ignore[assignment]  # replaced by head_dim
    base: float = 10_000.0
    frequencies: tuple[float, ...] | None = None
    interleaved: bool = False
    trailing: bool = False
    scaling: Scaling | None = None
    axes: Axes = OneAxis()  # noqa: RUF009 (frozen)
    angles: Angles = "exact"
    tables: Tables = "activation"

    def __post_init__(self) -> None:
        if self.rotary_dim is None:
            object.__setattr__(self, "rotary_dim", self.head_dim)
        check_rotary_dim(self.rotary_dim, self.head_dim)
        number("base", self.base, above=1)
        object.__setattr__(self, "base", float(self.base))
        flag("interleaved", self.interleaved)
        flag("trailing", self.trailing)
        if self.angles not in ("exact", "float32"):
            raise ValueError(f"angles must be 'exact' or 'float32', got {self.angles!r}")
        if self.tables not in ("activation", "float32", "rounded"):
            raise ValueError(f"tables must be 'activation', 'float32' or 'rounded', got {self.tables!r}")
        for name, kind in (("scaling", Scaling), ("axes", Axes)):
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "scaling" and value is None):
                raise ValueError(f"{name} must be one of the schemes in phasor.{name}, got {value!r}")
        self.axes.weights(self.pairs)  # the scheme's own errors, while the spec is built and not when it is used
        if self.frequencies is not None:
            self._check_frequencies(self.frequencies)
        elif self.scaling is not None:
            self.inv_freq()

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

    @property
    def pairs(self) -> int:
        """The number of pairs that turn, ``rotary_dim / 2``."""
        return self.rotary_dim // 2

    @property
    def length_dependent(self) -> bool:
        """Whether the frequencies depend on ``seq_len``."""
        return self.scaling is not None and self.scaling.length_dependent

    def inv_freq(self, seq_len: int | None = None) -> Tensor:
        """float64 ``[P]`` on the CPU: radians per position of each pair, after scaling.

        Exact values rounded once; with ``angles="float32"`` the float32 values of the model's own code, widened.
        ``seq_len`` matters to length-dependent scalings only; ``None`` is a sequence inside the trained length.
        """
        if self.angles == "float32":
            return float32_frequencies(self, seq_len).double()
        return torch.tensor([float(f) for f in exact_frequencies(self, seq_len)], dtype=torch.float64, device="cpu")

    def attention_factor(self, seq_len: int | None = None) -> float:
        """The factor on cos and sin (YaRN, LongRoPE); scores of the rotated channels grow by its square."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor(seq_len)

    def replace(self, **changes: Any) -> "RotarySpec":
        """A copy with some fields changed, checked again. If all channels turn, they still do at another ``head_dim``.

        >>> RotarySpec(head_dim=8).replace(base=500.0).base
        500.0
        >>> RotarySpec(head_dim=8).replace(head_dim=16).rotary_dim
        16
        """
        if "head_dim" in changes and self.rotary_dim == self.head_dim:
            changes.setdefault("rotary_dim", None)
        return dataclasses.replace(self, **changes)

    def diff(self, other: "RotarySpec") -> dict[str, tuple[Any, Any]]:
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
        parts = [f"{width} channels", "interleaved" if self.interleaved else "halves"]
        parts.append(f"base {self.base:.10g}" if self.frequencies is None else f"{self.pairs} explicit frequencies")
        parts.append("no scaling" if self.scaling is None else _brief(self.scaling))
        parts.append("one axis" if isinstance(self.axes, OneAxis) else _brief(self.axes))
        parts.append("exact angles" if self.angles == "exact" else f"float32 angles (tables: {self.tables})")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data from which `from_dict` makes an equal spec.

        >>> spec = RotarySpec(head_dim=8, base=500.0)
        >>> RotarySpec.from_dict(spec.to_dict()) == spec
        True
        """
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("scaling", "axes"):
            scheme = data[name]
            data[name] = None if scheme is None else {"name": scheme.name, **_listed(dataclasses.asdict(scheme))}
        return _listed(data)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RotarySpec":
        """Inverse of `to_dict`; raises ``ValueError`` for a key or a scheme it does not know."""
        if not isinstance(data, dict):
            raise ValueError(f"data must be a dictionary as made by to_dict, got {type(data).__name__}")
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"data has unknown keys {unknown}; known: {sorted(known)}")
        if "head_dim" not in data:
            raise ValueError("data must have the key 'head_dim'")
        fields = dict(data)
        if fields.get("scaling") is not None:
            fields["scaling"] = _scheme("scaling", fields["scaling"], SCALINGS)
        if fields.get("axes") is not None:
            fields["axes"] = _scheme("axes", fields["axes"], AXES)
        return cls(**fields)


def _brief(scheme: Scaling | Axes) -> str:
    """``name(field=value, …)`` with long lists cut and defaults left out."""
    shown = []
    for f in dataclasses.fields(scheme):  # type: ignore[arg-type]
        value = getattr(scheme, f.name)
        if value != f.default:
            shown.append(f"{f.name}={_shortened(value)}")
    return f"{scheme.name}({', '.join(shown)})"


def _shortened(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return f"[{len(value)} x {len(value[0])} values]"
    return f"[{len(value)} values]" if isinstance(value, tuple) and len(value) > 4 else f"{value}"


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _listed(v) for k, v in value.items()}
    return [_listed(v) for v in value] if isinstance(value, tuple | list) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list | tuple) else value


def _scheme(field: str, data: Any, known: dict[str, Any]) -> Any:
    if not isinstance(data, dict) or data.get("name") not in known:
        raise ValueError(f"{field} must be a dictionary with a 'name' out of {sorted(known)}, got {data!r}")
    try:
        return known[data["name"]](**{k: _tupled(v) for k, v in data.items() if k != "name"})
    except TypeError as error:
        raise ValueError(f"{field} {data['name']!r} does not fit its fields: {error}") from None


@lru_cache(maxsize=512)
def exact_frequencies(spec: RotarySpec, seq_len: int | None = None) -> tuple[Decimal, ...]:
    """``[P]`` exact frequencies of a spec, after scaling, in radians per position."""
    if spec.frequencies is not None:
        return tuple(Decimal(f) for f in spec.frequencies)
    base = Decimal(spec.base)
    rungs = spec.axes.rung_of_pair(spec.pairs)
    ladders = {
        n: inverse_frequencies(base, 2 * n) if spec.scaling is None else spec.scaling.inv_freq(base, 2 * n, seq_len)
        for n in {n for _, n in rungs}
    }
    return tuple(ladders[n][i] for i, n in rungs)


def float32_frequencies(spec: RotarySpec, seq_len: int | None = None) -> Tensor:
    """``[P]`` float32 frequencies of a spec, after scaling, bit for bit as transformers forms them."""
    if spec.frequencies is not None:
        return torch.tensor(spec.frequencies, dtype=torch.float32, device="cpu")
    rungs = spec.axes.rung_of_pair(spec.pairs)
    ladders = {
        n: inverse_frequencies_float32(spec.base, 2 * n)
        if spec.scaling is None
        else spec.scaling.inv_freq_float32(spec.base, 2 * n, seq_len)
        for n in {n for _, n in rungs}
    }
    return torch.stack([ladders[n][i] for i, n in rungs])


@lru_cache(maxsize=512)
def axis_steps(spec: RotarySpec, seq_len: int | None = None) -> tuple[tuple[int, ...], ...]:
    """``[axes][P]`` turns per position in fixed point (`phasor.phase`): frequency times the axis' share of the pair."""
    frequencies = exact_frequencies(spec, seq_len)
    shares = spec.axes.weights(spec.pairs)
    with exact():
        return tuple(steps(f * Decimal(w) for f, w in zip(frequencies, row, strict=True)) for row in shares)
