"""Rotation: one plane rotation per pair and token; how it is made, applied one after the other, and cut."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils import _pytree

from ..support.checks import whole
from ..support.tracing import capturing
from .layout import Layout
from .row_lengths import phases_of_rows
from .spec import RotarySpec
from .table_forms import Form, check_like_cos, check_magnitude, check_table, per_pair
from .tables import Phases, learned_angles, rows_at

Map = Callable[[Tensor], Tensor]

ABOUT = ("layout", "per_head", "magnitude", "promoted")  # all fields but the tensors


@dataclass(frozen=True, eq=False, kw_only=True)
class Rotation:
    """cos and sin of every pair at every token, with all that is needed to apply them to a head.

    Made by `at` (a spec and positions), `from_tables` (tables of others), `from_angles` and `from_frequencies`
    (learned). Its fields, which it also takes by keyword and checks, are

    - ``cos``, ``sin``: ``[S, P]`` or ``[B, S, P]``; with ``per_head`` ``[(B,) H, S, P]``. They are multiplied in their
      own dtype or that of the activations, whichever is wider: half precision stays half, as some models have it.
    - ``layout``: which channels of a head form pair ``i`` (`Layout`); heads of another width are refused.
    - ``magnitude``: the factor already inside cos and sin (the attention factor; 1 for a pure rotation). Each time the
      rotation is applied it multiplies: a rotated key has it, so move that with `shift` or `reposition`.
    - ``promoted``: the result keeps the wider dtype of cos and sin.
    - ``second``: cos and sin of the second members of the pairs, where a model rotates them by other angles than the
      first (not a rotation: see `RotarySpec`).

    Immutable, and a pytree whose leaves are its tensors. Raises ``ValueError`` for tensors that do not fit each other
    or the layout.

    >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0, 1])).cos.shape
    torch.Size([2, 1])
    """

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
        check_table("cos", self.cos, self.layout.pairs, self.per_head)
        check_like_cos("sin", self.sin, self.cos)
        for name, table in zip(("second[0]", "second[1]"), self.second or (), strict=bool(self.second)):
            check_like_cos(name, table, self.cos)

    def __str__(self) -> str:
        """What it holds, in a line; ``repr`` prints the tables, too."""
        batch = f" in {self.cos.shape[0]} sequences" if self.cos.ndim == 3 + self.per_head else ""
        heads = f", angles of its own for each of {self.cos.shape[-3]} heads" if self.per_head else ""
        scaled = "" if self.magnitude == 1 else f", cos and sin times {self.magnitude:.6g}"
        once = "" if self.magnitude == 1 else "; apply it once, and move rotated keys with phasor.shift or reposition"
        dtype = str(self.cos.dtype).removeprefix("torch.")
        return (
            f"Rotation of {self.cos.shape[-2]} tokens{batch}: {self.layout.describe()}, "
            f"{self.layout.pairs} pairs{heads}{scaled}, {dtype} on {self.cos.device}{once}"
        )

    @classmethod
    def at(
        cls,
        spec: RotarySpec,
        positions: Tensor,
        seq_len: int | Sequence[int] | Tensor | None = None,
        *,
        log_scale: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> "Rotation":
        """The rotation of ``spec`` at ``positions``, on their device.

        ``positions`` is ``[S]`` or ``[B, S]``; for a spec with ``A`` axes ``[A, S]`` or ``[A, B, S]``. Negative ones
        rotate backwards. They are integers, or of any real dtype from float32 for a spec with real coordinates.
        ``dtype`` is the dtype of the activations to be rotated: cos and sin are float64 for float64 and float32
        otherwise, except with float32 or float64 angles, where they are rounded as ``spec.tables`` says (name the
        dtype then, or the bits are not those of the model's code). ``log_scale`` ``[P]`` is the trained tensor of a
        spec with learned frequencies; gradients pass to it. ``seq_len`` is the length of the whole sequence, or a list
        or tensor with one for each row of the batch, where every row then has the bits that it has alone.

        Exact angles are right to 2.5e-7 for every ``|position| <= 2**31``, for cos and sin in float32. Beyond, the
        rounding of the fixed-point step adds up to ``|position| * 1.8e-19`` rad per axis: 5e-5 at 2**48, 1.6e-3 at
        2**53, 0.8 at 2**62.

        Raises ``ValueError`` if positions are not integers of at most 63 bits, if their rank does not fit the axes, if
        the frequencies depend on the length of the sequence and ``seq_len`` is missing, and if ``log_scale`` is
        missing or not wanted.

        >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0])).cos.tolist()
        [[1.0]]
        """
        if seq_len is None or isinstance(seq_len, int):
            return cls.of(Phases(spec, positions, seq_len, log_scale, dtype))
        parts, order = phases_of_rows(spec, positions, seq_len, log_scale, dtype)
        rotations = [cls.of(part) for part in parts]
        tables = [
            torch.cat(same).index_select(0, order) for same in zip(*(_leaves(r)[0] for r in rotations), strict=True)
        ]
        return _from_leaves(tables, rotations[0].about())

    @classmethod
    def of(cls, phases: Phases) -> "Rotation":
        """The rotation by phases that are checked, and not yet formed."""
        spec, (cos, sin) = phases.spec, phases.tables()
        about = {
            "layout": spec.layout,
            "per_head": False,
            "magnitude": spec.attention_factor(phases.seq_len),
            "promoted": phases.promoted,
        }
        second = () if spec.second is None else phases.tables(second=True)
        return _from_leaves((cos, sin, *second), about.items())

    @classmethod
    def from_tables(
        cls,
        cos: Tensor,
        sin: Tensor | None = None,
        *,
        form: Form,
        rotary_dim: int | None = None,
        positions: Tensor | None = None,
        per_head: bool = False,
        magnitude: float = 1.0,
        **layout: Any,
    ) -> "Rotation":
        """The rotation by cos and sin that another library made, half precision widened to float32.

        ``form`` says what the columns are; the tables can contradict it, and never choose it:

        - ``"half"``: ``[..., P]``, one per pair (flash-attn, ONNX);
        - ``"doubled"``: ``[c, c]``, one per channel in the order of halves (transformers, Liger), inside each block of
          a layout with blocks;
        - ``"repeated"``: ``[c0, c0, c1, c1]``, one per channel in the order of interleaved pairs;
        - ``"joined"``: ``[cos | sin]`` in one tensor (vLLM's and FlashInfer's ``cos_sin_cache``).

        The form of the tables does not say how the heads hold their pairs: ``layout`` does, with the fields of
        `Layout` (``head_dim``, if only a part of it rotates, ``interleaved``, ``trailing`` …). ``positions`` ``[S]`` or
        ``[B, S]`` picks rows, as `take` does. ``magnitude`` is the factor inside the tables (YaRN's attention
        factor; 1 if there is none). A view where that is possible; gradients pass.

        Raises ``ValueError`` for tables that do not fit ``form`` or each other. That looks at their values (not in
        compiled code), so make it once per model or step and not in every layer. Half tables that hold every value
        twice are refused unless ``rotary_dim`` confirms their width.

        >>> c, s = torch.tensor([[0.6]]), torch.tensor([[0.8]])
        >>> Rotation.from_tables(torch.cat((c, c), -1), torch.cat((s, s), -1), form="doubled").cos
        tensor([[0.6000]])
        """
        if (form == "joined") != (sin is None):
            raise ValueError(
                f"sin must be given, except with form='joined' ([cos | sin] in one tensor), got form={form!r}"
            )
        if positions is not None:  # first, so that only these rows are looked at and widened
            cos = rows_at(cos, positions, per_head) if _has_rows(cos) else cos
            sin = rows_at(sin, positions, per_head) if sin is not None and _has_rows(sin) else sin
        if sin is None:
            cos, sin = per_pair("cos", cos, "half", sure=True).chunk(2, dim=-1)
            form = "half"
        blocks, sure = layout.get("blocks", 1), rotary_dim is not None
        tables = (per_pair(n, t, form, blocks, sure) for n, t in (("cos", cos), ("sin", sin)))
        cos, sin = (t.float() if t.dtype.itemsize == 2 else t for t in tables)
        rotation = cls._laid_out(cos, sin, rotary_dim, per_head, magnitude, layout)
        check_magnitude(cos, sin, magnitude)
        return rotation

    @classmethod
    def from_angles(
        cls,
        angles: Tensor,
        *,
        form: Form = "half",
        rotary_dim: int | None = None,
        per_head: bool = False,
        magnitude: float = 1.0,
        **layout: Any,
    ) -> "Rotation":
        """The rotation by explicit ``angles`` in radians ``[..., S, P]``, float32 or float64; gradients pass.

        ``form``, ``rotary_dim`` and ``layout`` are those of `from_tables` (TransformerEngine's angles are
        ``"doubled"``); ``magnitude`` multiplies cos and sin. ``rotary_dim`` spares the look at their values.

        >>> Rotation.from_angles(torch.zeros(3, 2)).sin.abs().max().item()
        0.0
        """
        dtype = angles.dtype if isinstance(angles, Tensor) else type(angles).__name__
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"angles must be float32 or float64 (half precision cannot hold an angle), got {dtype}; "
                "convert them before the product that forms them"
            )
        if form == "joined":
            raise ValueError(
                "form must be 'half', 'doubled' or 'repeated' for angles, got 'joined', which from_tables reads"
            )
        angles = per_pair("angles", angles, form, layout.get("blocks", 1), rotary_dim is not None)
        return cls._of_angles(angles, rotary_dim, per_head, magnitude, layout)

    @classmethod
    def from_frequencies(
        cls, positions: Tensor, inv_freq: Tensor, *, magnitude: float = 1.0, **layout: Any
    ) -> "Rotation":
        """Learned frequencies or fractional positions: ``angle = sum over axes of position * inv_freq``.

        Gradients pass. ``inv_freq``, float32 or float64, is ``[P]`` with ``positions`` ``[(B,) S]``;
        ``[A, P]`` with ``[A, (B,) S]``; or ``[H, A, P]``, one set per head (RoPE-Mixed). Positions may be any real
        dtype. The product is formed in the dtype of ``inv_freq``, so the angle's error is about its rounding step
        times the angle: use float64 for long ranges, or `at` for integer positions and fixed frequencies.
        ``layout``: the fields of `Layout`; ``magnitude`` multiplies cos and sin.

        >>> r = Rotation.from_frequencies(torch.tensor([0.0, 0.5]), torch.tensor([torch.pi]))
        >>> r.sin[1].item()
        1.0
        """
        angles, per_head = learned_angles(positions, inv_freq), inv_freq.ndim == 3
        return cls._of_angles(angles, None, per_head, magnitude, layout)

    @classmethod
    def _of_angles(
        cls, angles: Tensor, rotary_dim: int | None, per_head: bool, magnitude: float, layout: dict[str, Any]
    ) -> "Rotation":
        cos, sin = angles.cos(), angles.sin()
        if magnitude != 1:
            cos, sin = cos * magnitude, sin * magnitude
        return cls._laid_out(cos, sin, rotary_dim, per_head, magnitude, layout)

    @classmethod
    def _laid_out(
        cls,
        cos: Tensor,
        sin: Tensor,
        rotary_dim: int | None,
        per_head: bool,
        magnitude: float,
        layout: dict[str, Any],
    ) -> "Rotation":
        width = 2 * cos.shape[-1] if rotary_dim is None else rotary_dim
        lies = Layout(**{"head_dim": width, "rotary_dim": width, **layout})
        return cls(cos=cos, sin=sin, layout=lies, per_head=per_head, magnitude=magnitude)

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
        """What undoes it: rotates back, and divides by the magnitude. New tensors.

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
        """The adjoint: rotates back and keeps the magnitude. Equal to the inverse if the magnitude is 1."""
        sin, second = self.sin, None
        if self.second is not None:  # the transpose of ((cos_1, -sin_1), (sin_2, cos_2))
            sin, second = self.second[1], (self.second[0], -self.sin)
        return self.replace(sin=-sin, second=second, layout=self.layout.transposed())

    def compose(self, other: Self) -> Self:
        """Both, one after the other: angles add, magnitudes multiply. Raises ``ValueError`` if the layouts differ.

        What moves a key from one position to another is ``new.compose(old.inverse())``: the attention factor of both
        cancels. ``other`` must read the layout that this one writes (they differ where pairs are ``permuted``).
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
        """With tokens that pass unrotated in front and behind: class and register tokens. New tensors.

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


def _leaves(rotation: Rotation) -> tuple[list[Any], Any]:
    return [rotation.cos, rotation.sin, *(rotation.second or ())], rotation.about()


def _from_leaves(leaves: Iterable[Any], about: Iterable[tuple[str, Any]]) -> Rotation:
    """Unchecked: while a tree is mapped, anything may stand where the tensors will."""
    rotation, (cos, sin, *second) = object.__new__(Rotation), leaves
    for name, value in (("cos", cos), ("sin", sin), ("second", tuple(second) or None), *about):
        object.__setattr__(rotation, name, value)
    return rotation


def _named_leaves(rotation: Rotation) -> tuple[list[tuple[Any, Any]], Any]:
    leaves, about = _leaves(rotation)
    return [(_pytree.GetAttrKey(n), t) for n, t in zip(("cos", "sin", "second", "second"), leaves, strict=False)], about


def _has_rows(table: Any) -> bool:
    """Whether rows can be picked; what cannot be is refused by the form, which says more."""
    return isinstance(table, Tensor) and table.ndim > 1


def _dumped(about: Any) -> Any:
    """The fields as JSON holds them, for `torch.export.save`."""
    return [[name, dataclasses.asdict(value) if name == "layout" else value] for name, value in about]


def _restored(data: Any) -> Any:
    return tuple((name, Layout(**value) if name == "layout" else value) for name, value in data)


_pytree.register_pytree_node(
    Rotation,
    _leaves,
    _from_leaves,
    serialized_type_name="phasor.Rotation",
    to_dumpable_context=_dumped,
    from_dumpable_context=_restored,
    flatten_with_keys_fn=_named_leaves,
)
torch.serialization.add_safe_globals(
    [Rotation, Layout]
)  # plain data: an exported program loads with its example inputs
