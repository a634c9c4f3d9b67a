"""Rotation: the ways to make the plane rotations of a sequence."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from .layout import Layout
from .planes import Planes
from .spec import RotarySpec
from .table_forms import Form, check_magnitude, per_pair
from .tables import Phases, learned_angles, rows_at


class Rotation(Planes):
    """cos and sin of every pair at every token, with all that is needed to apply them to a head.

    Made by `at` (a spec and positions), `from_tables` (tables of others), `from_angles` and `from_frequencies`
    (learned). Its fields, which it also takes by keyword and checks, are

    - ``cos``, ``sin``: ``[S, P]`` or ``[B, S, P]``; with ``per_head`` ``[(B,) H, S, P]``. They are multiplied in their
      own dtype or that of the activations, whichever is wider: half precision stays half, as some models have it.
    - ``layout``: which channels of a head form pair ``i`` (`Layout`); heads of another width are refused.
    - ``magnitude``: the factor already inside cos and sin (the attention factor; 1 for a pure rotation).
    - ``promoted``: the result keeps the wider dtype of cos and sin.
    - ``second``: cos and sin of the second members of the pairs, where a model turns them by other angles than the
      first (not a rotation: see `RotarySpec`).

    Immutable, and a pytree whose leaves are its tensors. Raises ``ValueError`` for tensors that do not fit each other
    or the layout.

    >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0, 1])).cos.shape
    torch.Size([2, 1])
    """

    @classmethod
    def at(
        cls,
        spec: RotarySpec,
        positions: Tensor,
        seq_len: int | None = None,
        *,
        log_scale: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> "Rotation":
        """The rotation of ``spec`` at ``positions``, on their device.

        ``positions`` is ``[S]`` or ``[B, S]``; for a spec with ``A`` axes ``[A, S]`` or ``[A, B, S]``. Negative ones
        turn backwards. They are integers, or of any real dtype from float32 for a spec with real coordinates.
        ``dtype`` is the dtype of the activations to be rotated: cos and sin are float64 for float64 and float32
        otherwise, except with float32 or float64 angles, where they are rounded as ``spec.tables`` says (name the
        dtype then, or the bits are not those of the model's code). ``log_scale`` ``[P]`` is the trained tensor of a
        spec with learned frequencies; gradients pass to it.

        Exact angles are right to 2.5e-7 for every ``|position| <= 2**31``, for cos and sin in float32. Beyond, the
        rounding of the fixed-point step adds up to ``|position| * 1.8e-19`` rad per axis: 5e-5 at 2**48, 1.6e-3 at
        2**53, 0.8 at 2**62.

        Raises ``ValueError`` if positions are not integers of at most 63 bits, if their rank does not fit the axes, if
        the frequencies depend on the length of the sequence and ``seq_len`` is missing, and if ``log_scale`` is
        missing or not wanted.

        >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0])).cos.tolist()
        [[1.0]]
        """
        return cls.of(Phases(spec, positions, seq_len, log_scale, dtype))

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
        `Layout` (``head_dim``, if only a part of it turns, ``interleaved``, ``trailing`` …). ``positions`` ``[S]`` or
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
        made = cls._laid_out(cos, sin, rotary_dim, per_head, magnitude, layout)
        check_magnitude(cos, sin, magnitude)
        return made

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


def _leaves(rotation: Rotation) -> tuple[list[Any], Any]:
    return [rotation.cos, rotation.sin, *(rotation.second or ())], rotation.about()


def _from_leaves(leaves: Iterable[Any], about: Iterable[tuple[str, Any]]) -> Rotation:
    """Unchecked: while a tree is mapped, anything may stand where the tensors will."""
    made, (cos, sin, *second) = object.__new__(Rotation), leaves
    for name, value in (("cos", cos), ("sin", sin), ("second", tuple(second) or None), *about):
        object.__setattr__(made, name, value)
    return made


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
