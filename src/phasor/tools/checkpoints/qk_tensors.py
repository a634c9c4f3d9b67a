"""Which tensors follow the layout: every piece of q and k of one model in a checkpoint, and the order of each."""

import re
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ...models.configs import ModelRotary, Source, read_config, tree_of
from ...models.prefixes import attentions, find_prefix
from ...models.reading.composite import ConfigTree
from ...models.reading.load import in_file
from ...models.reading.row import NoRotary
from ...models.reading.text_row import TextRow
from ...models.weights import Lacking, Piece, Shapes, Weights, pieces
from ...rotary.layout import Layout
from ...rotary.spec import RotarySpec
from .permutation import indices_of, with_pairs, word_of
from .stored import BLOCKS, FLOATS, Tensor, file_of, place_of


class AttentionTensors(NamedTuple):
    """One attention module of a checkpoint: its name, what rotates, and where."""

    name: str
    spec: RotarySpec
    pieces: list[Piece]


class Move(NamedTuple):
    """A tensor whose indices along ``axis`` take another order; ``what`` it holds, in words."""

    axis: int
    order: "array[int]"
    what: str


@dataclass(frozen=True)
class QKTensors:
    """The attentions of one part of a model: what was read of its config, and all that holds q and k."""

    rotary: ModelRotary
    row: Any
    weights: Weights
    prefix: str
    attentions: tuple[AttentionTensors, ...]

    @property
    def native(self) -> Layout:
        """The layout that the model's own code reads, of the first layer that rotates."""
        return next(iter(self.rotary.distinct)).layout

    def pair_word(self, word: str) -> str:
        """A layout's word with ``"native"`` spelled out, where it is one of the two."""
        return word_of(with_pairs(self.native, word))

    @property
    def says_itself(self) -> bool:
        """Whether the model's config says its layout, so that both are native (``rope_interleave``)."""
        return isinstance(self.row, TextRow) and self.row.interleave_key


def find_qk_tensors(
    folder: Path,
    config: Source,
    tensors: Mapping[str, Tensor],
    part: str | None,
    *,
    file: Path | None = None,
    keys: Mapping[str, str] = MappingProxyType({}),
) -> QKTensors:
    """All of a model that follows its layout, found by names and shapes. Raises ``ValueError`` naming what is missing.

    ``config`` and the names of ``tensors`` are those of transformers; ``folder`` is named in errors, or the ``file``
    that the config came from and its ``keys`` (as in `Source`).
    """
    with in_file(file or (folder if (folder / "config.json").is_file() else None)):
        try:
            tree = tree_of(config)
            rotary = read_config(tree, part=part)
            row, sets = _weights(tree, rotary.part)
        except ValueError as error:
            if not keys and not isinstance(error, NoRotary):  # nothing to convert is an error here
                raise
            raise ValueError(_in_words(str(error), keys)) from None
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    plain = {name: shape for name, shape in shapes.items() if not name.endswith(SCALES)}
    errors = []
    for weights in sets:
        refuse_quantized(folder, tensors, weights)
        try:
            sizes = {"heads": rotary.num_heads, "kv_heads": rotary.num_kv_heads}
            prefix = find_prefix(plain, weights, rotary.layers, **sizes)
            found = attentions(plain, weights, rotary.layers, prefix)
            held = _by_attention(plain, found, weights)
            attention_tensors = [
                AttentionTensors(at, spec, pieces(weights, spec, held[at], at, **sizes)) for at, spec in found.items()
            ]
        except ValueError as error:
            errors.append(error)
            continue
        for attention in attention_tensors:
            for name, fault in _faults(attention, rotary, tensors, weights.uneven):
                raise ValueError(f"{place_of(folder, name, tensors)}: {fault}")
        return QKTensors(rotary, row, weights, prefix, tuple(attention_tensors))
    says = str(errors[0]).removeprefix("shapes ")
    named = [name for name in plain if name.rpartition(".")[0] in says]  # the file of the tensor that it speaks of
    named.sort(key=lambda name: name not in says)
    place: object = file or folder / "config.json"
    if named:
        place = place_of(folder, named[0], tensors)
    elif isinstance(errors[0], Lacking) and _among_others(errors[0].name, plain):
        place = file_of(folder, errors[0].name, tensors)
    says = says.removeprefix(f"{named[0]} ") if named else says
    raise ValueError(f"{place}: {says}{_left_out(rotary)}") from None


def _by_attention(shapes: Shapes, found: Collection[str], weights: Weights) -> dict[str, Shapes]:
    """The tensors of each attention: each would be looked for among those of all layers and experts otherwise.

    All of them where keys may be lent, which the other attentions tell.
    """
    if any(rows.instead for rows in weights.rows):
        return dict.fromkeys(found, shapes)
    held: dict[str, dict[str, tuple[int, ...]]] = {at: {} for at in found}
    for name, shape in shapes.items():
        at = name
        while at := at.rpartition(".")[0]:
            if at in held:
                held[at][name] = shape
    return dict(held)


def _among_others(lacking: str, names: Collection[str]) -> bool:
    """Whether tensors of its layer, or of later ones, are there: else the config may count too many layers.

    >>> names = [f"layers.{i}.self_attn.q_proj.weight" for i in range(2)]
    >>> _among_others("layers.1.self_attn.k_proj.weight", names), _among_others("layers.2.self_attn", names)
    (True, False)
    """
    counted = re.compile(r"(?P<stack>(?:\D*\.)?)(?P<number>\d+)\.")
    if (own := counted.match(lacking)) is None:
        return False
    others = (match for name in names if (match := counted.match(name)) and match["stack"] == own["stack"])
    return any(int(other["number"]) >= int(own["number"]) for other in others)


def _left_out(rotary: ModelRotary) -> str:
    """After an error about sizes: those that the config leaves to its class, which may be those of another model."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    left = {key: said for key in keys if (said := rotary.sources.get(key, "")).startswith("not in config")}
    return "".join(f"; {key} is {said}: add that of this model" for key, said in left.items())


def _in_words(says: str, keys: Mapping[str, str]) -> str:
    """What is said of transformers' keys, of those that stand in the file.

    >>> _in_words("head_dim must be even, got 7", {"head_dim": "llama.attention.key_length"})
    'llama.attention.key_length must be even, got 7'
    """
    words = "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True))
    return re.sub(rf"\b({words})\b", lambda match: keys[match[0]], says) if keys else says


def _weights(composite: ConfigTree, part: str) -> tuple[Any, list[Weights]]:
    """The row of a part, and the names that its tensors may have: those of published files, those of transformers."""
    row = composite.row(composite.sub_models.get(part, part))
    if row is None:
        name = composite.name(part)
        raise ValueError(
            f"model_type {name!r} is not known: which tensors hold q and k cannot be guessed; add its row to "
            "phasor.models, or permute the tensors yourself with phasor.tools.checkpoints.order_of"
        )
    if part in composite.sub_models:
        return row, [row.sub_models[part.rpartition(".")[2]].weights]
    if isinstance(row.weights, str):
        raise ValueError(
            f"the q and k of model_type {composite.name(part)!r} have no weights to permute: {row.weights}"
        )
    return row, [row.weights, *([row.published] if row.published else [])]


def _faults(
    attention: AttentionTensors, rotary: ModelRotary, tensors: Mapping[str, Tensor], uneven: bool
) -> Iterator[tuple[str, str]]:
    """A tensor, and what it must be: each could be reordered, and every order would be wrong."""
    rows: dict[str, int] = {}
    for piece in attention.pieces:
        shape, dtype = tensors[piece.tensor].shape, tensors[piece.tensor].dtype
        if dtype not in FLOATS and not dtype.startswith(BLOCKS):
            fits = f"must have a dtype of {', '.join(FLOATS)} to hold q and k, got {dtype}"
            yield piece.tensor, f"{fits}; convert the checkpoint before it is quantized"
        if piece.role == "weight" and (len(shape) < 2 or 0 in shape):
            yield piece.tensor, f"must be a matrix, got shape {list(shape)}"
        elif piece.role == "weight":
            rows[piece.tensor.removesuffix(".weight")] = shape[piece.axis]
        if piece.role == "bias" and len(shape) != 1:
            yield piece.tensor, f"must have one axis, got shape {list(shape)}"
    for piece in attention.pieces:
        shape, wanted = tensors[piece.tensor].shape, rows.get(piece.tensor.removesuffix(".bias"))
        if piece.role == "bias" and wanted is not None and shape != (wanted,):
            yield (
                piece.tensor,
                f"must have one value for each of the {wanted} rows of its weight, got shape {list(shape)}",
            )
    for kind, heads in (("q", rotary.num_heads), ("k", rotary.num_kv_heads)) if not uneven else ():
        allowed = (heads, 1) if kind == "k" and attention.spec.trailing else (heads,)  # latent: one key head for all
        held = [p for p in attention.pieces if p.kind == kind and p.role == "weight" and p.axis == 0]
        if held and len(held[0].starts) not in allowed:
            got = f"{len(held[0].starts)} of {attention.spec.head_dim} channels{_left_out(rotary)}"
            yield held[0].tensor, f"must have {heads} heads of {kind}, as the config says, got {got}"


def moves(
    folder: Path, qk: QKTensors, tensors: Mapping[str, Tensor], source: str, target: str, blocks: Any = None
) -> dict[str, Move]:
    """Tensor -> the order that it takes from layout ``source`` to ``target`` (`with_pairs`); no others.

    ``blocks``: the sides of the blocks of rows and columns that share a scale, as the config says them.
    """
    by_tensor: dict[str, list[tuple[RotarySpec, Piece]]] = {}
    for attention in qk.attentions:
        for piece in attention.pieces:
            by_tensor.setdefault(piece.tensor, []).append((attention.spec, piece))
    moved: dict[str, Move] = {}
    for name, held in by_tensor.items():
        spec, axis = held[0][0], held[0][1].axis
        size = tensors[name].shape[axis]
        ways = with_pairs(spec.layout, source), with_pairs(spec.layout, target)
        if ways[0] == ways[1]:
            continue
        move = Move(axis, indices_of([piece for _, piece in held], size, *ways), _words([p for _, p in held]))
        moved[name] = move
        for scale, order in scales_of(folder, name, move.axis, move.order, tensors, blocks).items():
            moved[scale] = Move(0, order, f"scales of {move.what}")
    return moved


def _words(held: list[Piece]) -> str:
    """``32 heads of q, 8 heads of k``."""
    counts: dict[str, int] = {}
    for piece in held:
        counts[piece.kind] = counts.get(piece.kind, 0) + len(piece.starts)
    word = {"q": "q", "k": "k", "v": "values that rotate", "qk": "q and k", "output": "the output"}
    return ", ".join(f"{n} head{'s' * (n > 1)} of {word[kind]}" for kind, n in counts.items())


ROW_SCALES = (".weight_scale", ".weight_scale_inv")
SCALES = (*ROW_SCALES, ".input_scale", ".k_scale", ".v_scale", ".q_scale")  # the last ones are single numbers
PACKED = {
    "qweight": "GPTQ or AWQ: several rows share one integer",
    "qzeros": "GPTQ or AWQ: several rows share one integer",
    "weight_packed": "compressed-tensors: packed integers",
    "weight_scale_2": "NVFP4: two levels of scales",
    "absmax": "bitsandbytes: blocks run across rows",
    "SCB": "bitsandbytes: scales in a second tensor",
}


def refuse_quantized(folder: Path, tensors: Mapping[str, Tensor], weights: Weights) -> None:
    """Raises ``ValueError`` for a projection of q or k in a container whose rows are not rows of bytes."""
    modules = {name.rstrip(".") for rows in weights.rows for name in rows.name.split("|")}
    packed = re.compile(rf"\.({'|'.join(PACKED)})")
    for tensor in filter(packed.search, tensors):
        for word, why in PACKED.items():
            before, rest, _ = tensor.partition(f".{word}")
            if rest and any(before.removesuffix(".weight").endswith(f".{module}") for module in modules):
                raise ValueError(
                    f"{place_of(folder, tensor, tensors)}: the rows of a quantized weight must be rows of bytes to be "
                    f"permuted exactly, got {why}; convert the weights before they are quantized"
                )


def row_scales(name: str, tensors: Collection[str]) -> list[str]:
    """The tensors that hold the scales of a weight's rows."""
    return [scale for ending in ROW_SCALES if (scale := name.removesuffix(".weight") + ending) in tensors]


def scales_of(
    folder: Path, name: str, axis: int, order: "array[int]", tensors: Mapping[str, Tensor], blocks: Any
) -> "dict[str, array[int]]":
    """The scales beside a weight that change with the order of its rows: name -> order.

    One scale per tensor stays; one per row follows its row; one per block of rows stays if no row leaves its block.
    Raises ``ValueError`` where one does, and for scales of another shape.
    """
    moved = {}
    for scale in row_scales(name, tensors):
        shape, rows = tensors[scale].shape, tensors[name].shape[0]
        side = blocks[0] if isinstance(blocks, list) and blocks and isinstance(blocks[0], int) else 0
        fault = ""
        if axis != 0:
            fault = "scales of a weight whose columns move are not known"
        elif shape in ((), (1,), (1, 1)):
            continue
        elif shape in ((rows,), (rows, 1)):
            moved[scale] = order
        elif side < 1 or len(shape) != 2 or shape[0] != -(-rows // side):
            fault = (
                f"must be one scale, one for each of {rows} rows, or one for each block of "
                f"quantization_config.weight_block_size, got shape {list(shape)} and blocks {blocks!r:.40}"
            )
        elif any(row // side != index // side for row, index in enumerate(order)):
            fault = (
                f"every row must stay in its block of {side} rows that share a scale, and the heads straddle them; "
                "convert the weights before they are quantized"
            )
        if fault:
            raise ValueError(f"{place_of(folder, scale, tensors)}: {fault}")
    return moved
