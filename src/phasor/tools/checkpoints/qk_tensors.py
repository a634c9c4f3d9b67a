"""Which tensors follow the layout: every piece of q and k of one model in a checkpoint, and the order of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...models.configs import ModelRotary, read_config
from ...models.families import ROWS
from ...models.prefixes import attentions, find_prefix
from ...models.reading.composite import ConfigTree
from ...models.reading.text_row import TextRow
from ...models.weights import Piece, Weights, pieces
from ...rotary.layout import Layout
from ...rotary.spec import RotarySpec
from .permutation import Order, in_words, order_of
from .quantized import SCALES, refuse_quantized, scales_of
from .stored import BLOCKS, FLOATS, Tensor


class Attention(NamedTuple):
    """One attention module of a checkpoint: its name, what turns, and where."""

    name: str
    spec: RotarySpec
    pieces: list[Piece]


class Move(NamedTuple):
    """A tensor whose indices along ``axis`` take another order; ``what`` it holds, in words."""

    axis: int
    order: Order
    what: str


@dataclass(frozen=True)
class Following:
    """The attentions of one part of a model: what was read of its config, and all that holds q and k."""

    rotary: ModelRotary
    row: Any
    weights: Weights
    prefix: str
    attentions: tuple[Attention, ...]

    @property
    def native(self) -> Layout:
        """The layout that the model's own code reads, of the first layer that turns."""
        return next(iter(self.rotary.distinct)).layout

    @property
    def says_itself(self) -> bool:
        """Whether the model's config says its layout, so that both are native (``rope_interleave``)."""
        return isinstance(self.row, TextRow) and self.row.interleave_key


def following(folder: Path, config: dict[str, Any], tensors: Mapping[str, Tensor], part: str | None) -> Following:
    """All of a model that follows its layout, found by names and shapes. Raises ``ValueError`` naming what is missing.

    ``config`` and the names of ``tensors`` are those of transformers; ``folder`` is named in errors.
    """
    rotary = read_config(config, part=part)
    row, sets = _weights(config, rotary.part)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    plain = {name: shape for name, shape in shapes.items() if not name.endswith(SCALES)}
    errors = []
    for weights in sets:
        refuse_quantized(folder, plain, weights)
        try:
            sizes = {"heads": rotary.num_heads, "kv_heads": rotary.num_kv_heads}
            prefix = find_prefix(plain, weights, rotary.layers, **sizes)
            found = [
                Attention(at, spec, pieces(weights, spec, plain, at, **sizes))
                for at, spec in attentions(plain, weights, rotary.layers, prefix).items()
            ]
        except ValueError as error:
            errors.append(error)
            continue
        _check_dtypes(folder, found, tensors)
        if not weights.uneven:
            _check_heads(folder, found, rotary)
        return Following(rotary, row, weights, prefix, tuple(found))
    raise ValueError(f"{folder}: {errors[0]}") from None


def _weights(config: dict[str, Any], part: str) -> tuple[Any, list[Weights]]:
    """The row of a part, and the names that its tensors may have: those of published files, those of transformers."""
    composite = ConfigTree(config, ROWS)
    row = composite.row(composite.sub_models.get(part, part))
    if row is None:
        name = composite.name(part)
        raise ValueError(
            f"model_type {name!r} is not known: which tensors hold q and k cannot be guessed; add its row to "
            "phasor.models, or permute the tensors yourself with phasor.checkpoints.order_of"
        )
    if part in composite.sub_models:
        return row, [row.sub_models[part.rpartition(".")[2]].weights]
    if isinstance(row.weights, str):
        raise ValueError(
            f"the q and k of model_type {composite.name(part)!r} have no weights to permute: {row.weights}"
        )
    return row, [row.weights, *([row.published] if row.published else [])]


def _check_dtypes(folder: Path, found: list[Attention], tensors: Mapping[str, Tensor]) -> None:
    for piece in (piece for attention in found for piece in attention.pieces):
        tensor = tensors[piece.tensor]
        if tensor.dtype not in FLOATS and not tensor.dtype.startswith(BLOCKS):
            raise ValueError(
                f"{folder}: {piece.tensor}: must have a dtype of {', '.join(FLOATS)} to hold q and k, "
                f"got {tensor.dtype}; convert the checkpoint before it is quantized"
            )
        if piece.role == "weight" and len(tensor.shape) < 2:
            raise ValueError(f"{folder}: {piece.tensor}: must be a matrix, got shape {list(tensor.shape)}")
        if piece.role == "bias" and len(tensor.shape) != 1:
            raise ValueError(f"{folder}: {piece.tensor}: must have one axis, got shape {list(tensor.shape)}")


def _check_heads(folder: Path, found: list[Attention], rotary: ModelRotary) -> None:
    """As many heads as the config says: else its heads have another width, and every order would be wrong."""
    for attention in found:
        for kind, wanted in (("q", rotary.num_heads), ("k", rotary.num_kv_heads)):
            shared = kind == "k" and attention.spec.trailing  # latent attention: one key head for all
            held = [p for p in attention.pieces if p.kind == kind and p.role == "weight" and p.axis == 0]
            if held and len(held[0].starts) not in (wanted, 1 if shared else wanted):
                raise ValueError(
                    f"{folder}: {attention.name}: must have {wanted} heads of {kind}, as its config says, got "
                    f"{len(held[0].starts)} of {attention.spec.head_dim} channels"
                )


def moves(
    folder: Path, found: Following, tensors: Mapping[str, Tensor], source: str, target: str, blocks: Any = None
) -> dict[str, Move]:
    """Tensor -> the order that it takes from layout ``source`` to ``target`` (`in_words`); those that stay are absent.

    ``blocks``: the sides of the blocks of rows and columns that share a scale, as the config says them.
    """
    by_tensor: dict[str, list[tuple[RotarySpec, Piece]]] = {}
    for attention in found.attentions:
        for piece in attention.pieces:
            by_tensor.setdefault(piece.tensor, []).append((attention.spec, piece))
    moved: dict[str, Move] = {}
    for name, held in by_tensor.items():
        spec, axis = held[0][0], held[0][1].axis
        size = tensors[name].shape[axis]
        ways = in_words(spec.layout, source), in_words(spec.layout, target)
        if ways[0] == ways[1]:
            continue
        move = Move(axis, order_of([piece for _, piece in held], size, *ways), _words([p for _, p in held]))
        moved[name] = move
        for scale, order in scales_of(folder, name, move.axis, move.order, tensors, blocks).items():
            moved[scale] = Move(0, order, f"scales of {move.what}")
    return moved


def _words(held: list[Piece]) -> str:
    """``32 heads of q, 8 heads of k``."""
    counts: dict[str, int] = {}
    for piece in held:
        counts[piece.kind] = counts.get(piece.kind, 0) + len(piece.starts)
    word = {"q": "q", "k": "k", "v": "values that turn", "qk": "q and k", "output": "the output"}
    return ", ".join(f"{n} head{'s' * (n > 1)} of {word[kind]}" for kind, n in counts.items())
