"""Where a checkpoint keeps q and k: `Weights` names the tensors of one model type, `pieces` the rows of each head.

A converter that moves channels between pair layouts must move them in every tensor that forms q or k: the rows of
projections, their biases, and the gains of norms on q and k. All of them, and nothing else.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..rotary.spec import RotarySpec

Shapes = Mapping[str, tuple[int, ...]]
Kind = Literal["q", "k", "v", "qk", "output"]
KINDS: dict[str, Kind] = {"q": "q", "k": "k", "r": "k", "w": "v", "h": "qk", "o": "output"}  # letter -> what it is of


@dataclass(frozen=True)
class Rows:
    """What the rows of one tensor hold, in order, a letter for each stretch.

    - ``"q"``, ``"k"``: whole heads, one after the other; ``"r"``: the rotated channels of the one key head that all
      query heads share (latent attention); ``"h"``: the channels of one head, the same for q and k of all heads.
    - ``"w"``: heads of values that rotate like keys; ``"o"``: heads of the output, which follow values that rotate or
      that are the keys themselves.
    - ``"v"`` and any other letter: rows that do not rotate (values, a gate, a latent): what the shape leaves over, in
      equal parts.

    The order is repeated ``blocks`` times, with the heads divided among the blocks: once (stacked), ``"kv_heads"``
    times (the query heads of a key head, then that key head), ``"heads"`` times (a gate beside each query head), or a
    number. ``"unshared"``: once where query heads share keys, else ``"kv_heads"`` times.

    ``name``: the module inside the attention with a ``weight`` and perhaps a ``bias``; with a dot at its end the
    parameter itself. ``"a|b"``: a, or b in checkpoints without a. ``axis`` of the weight counts the rows. ``always``:
    every attention that rotates has it; ``instead``: ``(keys, values)``, it counts only where
    the attention has the first of these modules and not the second (keys are values too).

    With heads of 2 channels, two query heads and one key head, ``"qkv"`` stacks rows 0-3 of q, 4-5 of k, then v:

    >>> Rows("qkv_proj", "qkv").starts(8, head_dim=2, heads=2, kv_heads=1)
    {'q': (0, 2), 'k': (4,)}
    """

    name: str
    order: str
    blocks: int | Literal["heads", "kv_heads", "unshared"] = 1
    axis: int = 0
    always: bool = True
    instead: tuple[str, str] | None = None

    def starts(
        self, size: int, *, head_dim: int, heads: int, kv_heads: int, rotary_dim: int = 0
    ) -> dict[str, tuple[int, ...]]:
        """The first row of every head, by letter, in a tensor of ``size`` rows.

        Where the tensor holds one letter alone, its size says how many heads there are; otherwise ``heads`` and
        ``kv_heads`` do. Raises ``ValueError`` if that many heads of ``head_dim`` rows do not make up ``size``.
        """
        count = {"heads": heads, "kv_heads": kv_heads, "unshared": kv_heads if heads == kv_heads else 1}
        blocks = self.blocks if isinstance(self.blocks, int) else count[self.blocks]
        widths = {"q": heads * head_dim // blocks, "k": kv_heads * head_dim // blocks, "r": rotary_dim}
        if len(self.order) == 1:
            widths[self.order] = size // head_dim * head_dim
        others = [letter for letter in self.order if letter not in widths]
        left = size // blocks - sum(widths[letter] for letter in self.order if letter in widths)
        if size % blocks or left < 0 or (left > 0) != bool(others) or (others and left % len(others)):
            raise ValueError(
                f"{self.name} must have rows of {', '.join(self.order)} for heads of {head_dim} channels ({heads} of "
                f"q and {kv_heads} of k), {blocks} times, got {size} rows"
            )
        first_rows: dict[str, tuple[int, ...]] = {}
        at = 0
        for letter in self.order * blocks:
            width = widths[letter] if letter in widths else left // len(others)
            if letter in KINDS:
                step = width if letter == "r" else head_dim
                first_rows[letter] = (*first_rows.get(letter, ()), *range(at, at + width, step))
            at += width
        return first_rows


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The names of one model type's tensors that form q and k; the defaults are Llama's.

    - ``attention``: the module of one layer's attention, ``{}`` for its number, from the module that holds the layers;
      what stands before it differs between checkpoints (`find_prefix`). Of several, each layer has them all
      (``stacks="each"``), or the numbers of the second go on where those of the first end (``"after"``), or all of
      them are run again and again, whatever the layer (``"loop"``).
    - ``rows``: its projections, letter by letter (`Rows`).
    - ``q_norms``, ``k_norms``: norms on q and k, where a checkpoint has them. A gain covers one head, and then all
      heads share it, or all heads; or there is one for each head, with ``{}`` for its number.
    - ``may_lack``: the kinds that some layers take from others, and have no tensors for: ``("k",)``.
    - ``frequencies``: the tensor of learned frequencies, from where ``attention`` starts.
    - ``uneven``: layers may have other numbers of heads than the config says for all.
    - ``source``: ``"run"``: tested on a model of transformers; ``"read"``: from the published code and checkpoints.

    >>> Weights().attention[0].format(3)
    'layers.3.self_attn'
    """

    attention: tuple[str, ...] = ("layers.{}.self_attn",)
    rows: tuple[Rows, ...] = (Rows("q_proj", "q"), Rows("k_proj", "k"))
    q_norms: tuple[str, ...] = ("q_norm",)
    k_norms: tuple[str, ...] = ("k_norm",)
    stacks: Literal["each", "after", "loop"] = "each"
    may_lack: tuple[Kind, ...] = ()
    frequencies: str = ""
    uneven: bool = False
    source: Literal["run", "read"] = "run"


@dataclass(frozen=True)
class Gguf:
    """How llama.cpp knows a model: the name of its architecture, and whether its rope type rotates interleaved pairs.

    Its source calls that type NORM, and the one of halves NEOX (``llama_model_rope_type``).

    >>> Gguf("qwen2", interleaved=False).arch
    'qwen2'
    """

    arch: str
    interleaved: bool


class Piece(NamedTuple):
    """Where one tensor holds the channels that rotate: ``width`` indices along ``axis`` from each of ``starts``.

    There is one start per head, and the indices from it are the channels of the head in their order. A norm (and
    kind ``"qk"``) with a single start is shared by all heads.

    >>> piece = Piece("q_proj.weight", "q", "weight", starts=(0, 64), width=64)
    >>> [range(start, start + piece.width) for start in piece.starts]
    [range(0, 64), range(64, 128)]
    """

    tensor: str
    kind: Kind
    role: Literal["weight", "bias", "norm"]
    starts: tuple[int, ...]
    width: int
    axis: int = 0


class Lacking(ValueError):
    """A tensor that must be there, by ``name``, and is not."""

    def __init__(self, says: str, name: str) -> None:
        super().__init__(says)
        self.name = name


def pieces(weights: Weights, spec: RotarySpec, shapes: Shapes, at: str, *, heads: int, kv_heads: int) -> list[Piece]:
    """Every place in a state dict that holds channels of q or k that ``spec`` rotates, in the attention module ``at``.

    ``shapes``: name -> shape of all tensors. ``heads`` and ``kv_heads`` divide fused tensors; how many heads a tensor
    of q or k alone has, and the widths of values, latents and gates, follow from its shape. Nothing is read but names
    and shapes.

    Raises ``ValueError`` for a tensor that is missing, that does not hold whole heads, or that has others beside it
    (scales of a quantized weight, adapters), whose layout is not known.

    >>> llama = {"layers.0.self_attn.q_proj.weight": (8, 8), "layers.0.self_attn.k_proj.weight": (4, 8)}
    >>> for piece in pieces(Weights(), RotarySpec(head_dim=4), llama, "layers.0.self_attn", heads=2, kv_heads=1):
    ...     print(piece.tensor, piece.kind, piece.starts, piece.width)
    layers.0.self_attn.q_proj.weight q (0, 4) 4
    layers.0.self_attn.k_proj.weight k (0,) 4
    """
    if lacking := missing(weights, shapes, at):
        raise Lacking(f"shapes must have {lacking}, and does not; is {at} an attention that rotates?", lacking)
    norms: list[tuple[Kind, str]] = [("q", n) for n in weights.q_norms] + [("k", n) for n in weights.k_norms]
    projections = (piece for rows in weights.rows for piece in _of_rows(rows, spec, shapes, at, heads, kv_heads))
    return [*projections, *(piece for kind, norm in norms for piece in _of_norm(kind, norm, spec, shapes, at))]


def _of_rows(rows: Rows, spec: RotarySpec, shapes: Shapes, at: str, heads: int, kv_heads: int) -> Iterator[Piece]:
    name = next((name for name in named(rows, at) if name in shapes), None)
    if name is None or (rows.instead and not _keys_serve(*rows.instead, shapes, at)):
        return
    tensors: dict[str, Literal["weight", "bias"]] = {name: "weight"}
    if not rows.name.endswith("."):
        module = name.removesuffix("weight")
        if beside := [n for n in shapes if n.startswith(module) and n not in (name, f"{module}bias")]:
            raise ValueError(f"shapes has {beside[0]} beside {name}: quantized or adapted weights; merge them first")
        if rows.axis == 0 and f"{module}bias" in shapes:
            tensors[f"{module}bias"] = "bias"
    sizes = {"head_dim": spec.head_dim, "heads": heads, "kv_heads": kv_heads, "rotary_dim": spec.rotary_dim}
    for tensor, role in tensors.items():
        size = _size(tensor, shapes, rows.axis)
        try:
            starts = rows.starts(size, **sizes)
        except ValueError as error:
            raise ValueError(f"{at}.{error}") from None
        for letter, firsts in starts.items():
            inside = 0 if letter == "r" else _offset(spec)
            at_rows = tuple(first + inside for first in firsts)
            yield Piece(tensor, KINDS[letter], role, at_rows, spec.rotary_dim, rows.axis)


def _of_norm(kind: Kind, norm: str, spec: RotarySpec, shapes: Shapes, at: str) -> Iterator[Piece]:
    """Gains and shifts of the norm on q or k, as far as there are any."""
    names = [norm[:-1]] if norm.endswith(".") else [f"{norm}.weight", f"{norm}.bias"]
    for count in itertools.count():
        tensors = [t for t in (f"{at}.{name.format(count)}" for name in names) if t in shapes]
        for tensor in tensors:
            size, axis = _size(tensor, shapes, -1), len(shapes[tensor]) - 1
            starts = tuple(range(_offset(spec), size, spec.head_dim))
            if size == spec.rotary_dim != spec.head_dim:  # a norm on the rotated channels alone
                starts = (0,)
            elif size % spec.head_dim:
                raise ValueError(f"{tensor} must cover whole heads of {spec.head_dim} channels, got {size}")
            yield Piece(tensor, kind, "norm", starts, spec.rotary_dim, axis)
        if not tensors or "{}" not in norm:
            return


def _size(tensor: str, shapes: Shapes, axis: int) -> int:
    """Of a tensor along an axis, which a number alone has not."""
    if len(shapes[tensor]) < max(axis + 1, 1):
        raise ValueError(f"{tensor} must have an axis of channels, got shape {list(shapes[tensor])}")
    return shapes[tensor][axis]


def _keys_serve(keys: str, values: str, shapes: Shapes, at: str) -> bool:
    """Whether the keys of an attention are its values; refused where another layer's keys may be."""
    if f"{at}.{keys}.weight" in shapes or f"{at}.{values}.weight" in shapes:
        return f"{at}.{values}.weight" not in shapes
    others = [name.removesuffix(f"{keys}.weight") for name in shapes if name.endswith(f".{keys}.weight")]
    if any(f"{other}{values}.weight" not in shapes for other in others):
        raise ValueError(f"shapes must say whether the keys that {at} borrows are values too, and some keys here are")
    return False


def _offset(spec: RotarySpec) -> int:
    """The first channel of a head that rotates."""
    return spec.head_dim - spec.rotary_dim if spec.trailing else 0


def named(rows: Rows, at: str) -> list[str]:
    """The names that the tensor of ``rows`` may have in the attention ``at``.

    >>> named(Rows("q_proj", "q"), "layers.0.self_attn")
    ['layers.0.self_attn.q_proj.weight']
    """
    return [f"{at}.{n[:-1]}" if n.endswith(".") else f"{at}.{n}.weight" for n in rows.name.split("|")]


def missing(weights: Weights, names: Collection[str], at: str) -> str:
    """The first tensor that an attention which rotates must have and has not; empty if it has all.

    >>> missing(Weights(rows=(Rows("q_proj", "q"), Rows("k_proj", "k"))), {"attn.q_proj.weight"}, "attn")
    'attn.k_proj.weight'
    """
    for rows in weights.rows:
        lent = all(KINDS.get(letter) in (None, *weights.may_lack) for letter in rows.order)
        if rows.always and not lent and not any(name in names for name in named(rows, at)):
            return " or ".join(named(rows, at))
    return ""
