"""P plane rotations per token: the fields of a `Rotation`, and what can be done with them."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..support.checks import whole
from ..support.tracing import capturing
from .layout import Layout
from .tables import rows_at

Map = Callable[[Tensor], Tensor]

ABOUT = ("layout", "per_head", "magnitude", "promoted")  # all fields but the tensors


@dataclass(frozen=True, eq=False, kw_only=True)
class Planes:
    """The fields and the algebra of a `Rotation`, whose docstring has their meaning."""

    cos: Tensor
    sin: Tensor
    layout: Layout
    per_head: bool = False
    magnitude: float = 1.0
    promoted: bool = False
    second: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.layout, Layout):
            raise ValueError(f"layout must be a Layout, got {self.layout!r}; from tables of others use from_tables")
        if not 0 < self.magnitude < float("inf"):  # a comparison, which compilers trace
            raise ValueError(f"magnitude must be a finite number above 0, got {self.magnitude!r}")
        _check("cos", self.cos, self.layout.pairs, self.per_head)
        _alike("sin", self.sin, self.cos)
        for name, table in zip(("second[0]", "second[1]"), self.second or (), strict=bool(self.second)):
            _alike(name, table, self.cos)

    @property
    def learns(self) -> bool:
        """Whether a gradient must reach the tables."""
        return self.cos.requires_grad or self.sin.requires_grad

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """``[c c]`` and ``[-s s]``, by which rows of two halves are multiplied; kept while cos and sin stay."""
        if capturing(self.cos.device):  # a graph forms them again, from what cos and sin will be then
            return self._rows()
        if self.cos.is_inference() or self.sin.is_inference():  # which do not count what is written to them
            return self._rows()
        versions = self.cos._version, self.sin._version
        kept = self.__dict__.get("_kept")
        if kept is None or kept[0] != versions:
            kept = self.__dict__["_kept"] = (versions, self._rows())
        return kept[1]

    def _rows(self) -> tuple[Tensor, Tensor]:
        return torch.cat((self.cos, self.cos), -1), torch.cat((-self.sin, self.sin), -1)

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows that are kept: the tables of a copy count their versions anew."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def about(self) -> tuple[tuple[str, Any], ...]:
        """All fields but the tensors, by name: hashable."""
        return tuple((name, getattr(self, name)) for name in ABOUT)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked again."""
        fields = {"cos": self.cos, "sin": self.sin, "second": self.second, **dict(self.about())}
        return type(self)(**fields | changes)

    def inverse(self) -> Self:
        """What undoes it: turns back, and divides by the magnitude. New tensors.

        >>> from phasor import RotarySpec, Rotation
        >>> r = Rotation.at(RotarySpec(head_dim=2), torch.tensor([1]))
        >>> bool((r.inverse().sin == -r.sin).all())
        True
        """
        self._must_be_orthogonal("inverse")
        shrink = self.magnitude**-2
        cos, sin = (self.cos, -self.sin) if shrink == 1 else (self.cos * shrink, -self.sin * shrink)
        return self.replace(cos=cos, sin=sin, magnitude=1 / self.magnitude, layout=self.layout.transposed())

    def transpose(self) -> Self:
        """The adjoint: turns back and keeps the magnitude. Equal to the inverse if the magnitude is 1."""
        sin, second = self.sin, None
        if self.second is not None:  # the transpose of ((cos_1, -sin_1), (sin_2, cos_2))
            sin, second = self.second[1], (self.second[0], -self.sin)
        return self.replace(sin=-sin, second=second, layout=self.layout.transposed())

    def compose(self, other: Self) -> Self:
        """Both, one after the other: angles add, magnitudes multiply. Raises ``ValueError`` if the layouts differ.

        ``other`` must read the layout that this one writes (they differ where pairs are ``permuted``).
        """
        self._must_be_orthogonal("compose")
        other._must_be_orthogonal("compose")
        written = (self.layout.written(), self.per_head, self.cos.shape[-2])
        read = (other.layout.read(), other.per_head, other.cos.shape[-2])
        if written != read:
            raise ValueError(
                "rotations must agree in (layout, per_head, tokens) to be composed, "
                f"got {written} written and {read} read"
            )
        return self.replace(
            cos=self.cos * other.cos - self.sin * other.sin,
            sin=self.sin * other.cos + self.cos * other.sin,
            magnitude=self.magnitude * other.magnitude,
            layout=dataclasses.replace(self.layout, permuted=self.layout.permuted != other.layout.permuted),
        )

    def _must_be_orthogonal(self, name: str) -> None:
        if self.second is not None:
            raise ValueError(
                f"{name} needs a rotation, got one with second angles (spec.second), which is not orthogonal; "
                "transpose() is its adjoint"
            )

    def padded(self, before: int = 0, after: int = 0) -> Self:
        """With tokens that pass unturned in front and behind: class and register tokens. New tensors.

        Raises ``ValueError`` if it has a magnitude, which such tokens would not get.

        >>> from phasor import RotarySpec, Rotation
        >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([3])).padded(before=2).sin[:2].tolist()
        [[0.0], [0.0]]
        """
        whole("before", before, at_least=0)
        whole("after", after, at_least=0)
        if self.magnitude != 1:
            raise ValueError(
                f"padded needs a rotation of magnitude 1 (passing tokens are not scaled), got {self.magnitude}"
            )
        pad, fill = (0, 0, before, after), torch.nn.functional.pad
        return self._mapped(lambda cos: fill(cos, pad, value=1.0), lambda sin: fill(sin, pad))

    def to(self, device: torch.device | str) -> Self:
        """The same rotation on another device. The dtype of its tables is part of what it computes and stays."""
        if not isinstance(device, torch.device | str):
            raise ValueError(f"device must be a device (a rotation keeps the dtype of its tables), got {device}")
        return self._mapped(lambda table: table.to(device))

    def slice(self, start: int, stop: int) -> Self:
        """Tokens ``start`` to ``stop`` of the sequence, as views."""
        return self._mapped(lambda table: table[..., start:stop, :])

    def take(self, positions: Tensor) -> Self:
        """The tokens at rows ``positions`` ``[S]`` or ``[B, S]`` of a table that begins at position 0. New tensors.

        With ``[B, S]`` the table must have no batch of its own. Raises ``ValueError`` for rows that it does not have
        (on a CPU; elsewhere the device's own assertion fails). `phasor.positions` builds such rows for packed
        documents, offsets and padding.

        >>> from phasor import RotarySpec, Rotation
        >>> table = Rotation.at(RotarySpec(head_dim=2), torch.arange(100))
        >>> bool((table.take(torch.tensor([7, 3])).cos[1] == table.cos[3]).all())
        True
        """
        return self._mapped(lambda table: rows_at(table, positions, self.per_head))

    def heads(self, chosen: range) -> Self:
        """The rotation of some heads, as views: a rank's share of heads with angles of their own."""
        if not isinstance(chosen, range):
            raise ValueError(f"chosen must be a range of heads, got {chosen!r}")
        if not self.per_head:
            return self
        count = self.cos.shape[-3]
        if chosen.step < 1 or not all(0 <= h < count for h in chosen):
            raise ValueError(f"chosen must be a rising range inside the {count} heads, got {chosen}")
        part = slice(chosen.start, chosen.stop, chosen.step)
        return self._mapped(lambda table: table[..., part, :, :])

    def _mapped(self, of_cos: Map, of_sin: Map | None = None) -> Self:
        """With all tables changed, those of sines by ``of_sin`` if it is given."""
        of_sin = of_sin or of_cos
        second = None if self.second is None else (of_cos(self.second[0]), of_sin(self.second[1]))
        return self.replace(cos=of_cos(self.cos), sin=of_sin(self.sin), second=second)


def _check(name: str, table: Tensor, pairs: int, per_head: bool) -> None:
    if not isinstance(table, Tensor) or not table.is_floating_point():
        got = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {got}")
    shape = table.shape
    if len(shape) not in ((3, 4) if per_head else (2, 3)):
        order = "[(batch,) heads, seq, pairs] with per_head" if per_head else "[(batch,) seq, pairs]"
        raise ValueError(f"{name} must be {order}, got shape {tuple(shape)}")
    if shape[-1] != pairs:
        raise ValueError(
            f"{name} must have one column for each of the layout's {pairs} pairs (rotary_dim / 2), got {shape[-1]}; "
            "tables of other forms: Rotation.from_tables(cos, sin, form=...)"
        )


def _alike(name: str, table: Tensor, cos: Tensor) -> None:
    if not isinstance(table, Tensor) or (table.shape, table.dtype, table.device) != (cos.shape, cos.dtype, cos.device):
        got = f"{table.dtype} {tuple(table.shape)} on {table.device}" if isinstance(table, Tensor) else repr(table)
        raise ValueError(
            f"{name} must have the shape, dtype and device of cos, {cos.dtype} {tuple(cos.shape)} on {cos.device}, "
            f"got {got}"
        )
