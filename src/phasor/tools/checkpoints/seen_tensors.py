"""Which tensors hold q and k of a class of diffusers or timm: no row says it, a small model of the class shows it.

Backwards from q and k of each attention, they are the weights before anything else is projected. How heads lie in their
rows is tried: with rows exchanged, q and k before the rotation must be those of before, exchanged, and v as it was.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...eye import Observation
from ...eye.linear import NORMS, mixes
from ...eye.matrices import NoRotation, axes_of
from ...eye.operator import TWO_ANGLES
from ...eye.sites import Side, Site
from ...eye.tape import Tape, upstream
from ...models.reading.pictures import seen_pictures
from ...models.weights import Piece, Rows, Shapes, Weights, pieces
from ...rotary.spec import RotarySpec
from .permutation import PAIRS, order_of, reorder, rotated_channels, with_pairs, word_of
from .qk_tensors import AttentionTensors, QKTensors
from .stored import Tensor as Kept
from .stored import place_of

CLOSE = 1e-2  # of the largest number: some classes round q and k to bfloat16 where they turn
MOST_WAYS = 32  # in which rows may hold heads


class Found(NamedTuple):
    """An attention of the small model: the module under which its weights stand, its spec, and how they hold heads."""

    at: str
    spec: RotarySpec
    weights: Weights


def find_seen_tensors(folder: Path, config: dict[str, Any], tensors: Mapping[str, Kept]) -> QKTensors:
    """All of a model that follows its layout. Raises ``ValueError`` for what the class does not let be exchanged."""
    rotary, seen, real = seen_pictures(config)
    own = {name: tuple(p.shape) for name, p in real.named_parameters()}
    for name, shape in own.items():
        if name not in tensors:
            raise ValueError(f"{folder}: {name} is missing, which a {rotary.model_type} of its config has")
        if tensors[name].shape != shape:
            place, got = place_of(folder, name, tensors), list(tensors[name].shape)
            raise ValueError(f"{place}: must have the shape {list(shape)} that its config says, got {got}")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    sizes = {"heads": rotary.num_heads, "kv_heads": rotary.num_kv_heads}
    held: dict[str, AttentionTensors] = {}
    for found in _found(seen):
        for at in _in_all_layers(found.at, real):
            try:
                of_one = AttentionTensors(at, found.spec, pieces(found.weights, found.spec, shapes, at, **sizes))
            except ValueError as error:
                raise ValueError(f"{folder}: {str(error).removeprefix('shapes ')}") from None
            held[at] = of_one
    return QKTensors(rotary, None, Weights(), "", tuple(held.values()))


def _in_all_layers(at: str, real: nn.Module) -> list[str]:
    """The module of each layer that is as the one that was seen."""
    numbered = re.match(r"(?P<list>.*?)\.0(?P<rest>\..*|$)", at)
    if numbered is None:
        return [at]
    count = len(real.get_submodule(numbered["list"]))  # type: ignore[arg-type]
    return [f"{numbered['list']}.{i}{numbered['rest']}" for i in range(count)]


def _found(seen: Observation) -> list[Found]:
    """How each attention that turns holds its heads. Raises ``ValueError`` where that was not to be found."""
    model, found = seen.model, list[Found]()
    names = {seen.sites[0].q.tape.ids.get(id(p)): name for name, p in model.named_parameters()}
    reached = [(site, _letters(site, names)) for site in seen.sites]
    for site, letters in reached:
        if not (site.q.turns or site.k.turns):
            continue
        if site.v.turns or site.output.turns:
            raise ValueError(f"{site.where}: its values turn, too: they cannot be exchanged")
        moving = _moving(letters)
        for other, of in reached:
            shared = moving & of.keys()
            if shared and not (other.q.turns or other.k.turns) and not _moving(of) <= moving:
                raise ValueError(f"{site.where}: {min(shared)} makes q or k of {other.where}, too")
        found.append(_proved(seen, site, _spec(seen, site), letters))
    return found


def _moving(letters: Mapping[str, str]) -> set[str]:
    return {name for name, of in letters.items() if "q" in of or "k" in of}


def _spec(seen: Observation, site: Site) -> RotarySpec:
    """One with the layout of an attention, which alone says how its pairs lie."""
    side = site.q if site.q.turns else site.k
    if side.operator is None or side.operator.second is not None:
        raise ValueError(f"{site.where}: {TWO_ANGLES}: its pairs cannot be exchanged")
    if side.placed is None or (site.k.turns and site.k.placed != side.placed):
        raise ValueError(f"{site.where}: its pairs lie in no layout that is known here: they cannot be exchanged")
    return RotarySpec(**asdict(side.placed.layout))


def _letters(site: Site, names: Mapping[int | None, str]) -> dict[str, str]:
    """The weights that q, k and v follow from, and of which of these each is."""
    found: dict[str, str] = {}
    sides = {"q": site.attention.q, "k": site.attention.k, "v": site.attention.v}
    for letter, value in sides.items():
        for name in _weights(site.q.tape, names, value) if value is not None else ():
            found[name] = found.get(name, "") + letter
    return found


def _weights(tape: Tape, names: Mapping[int | None, str], value: int) -> dict[str, None]:
    """The names of the weights between a value and what was projected last, on each way to it."""
    found: dict[str, None] = {}
    pending, done = [value], set[int]()
    while pending:
        operation = tape.maker(pending.pop())
        if operation is None or operation.index in done:
            continue
        done.add(operation.index)
        others = {i for i in operation.inputs if i not in tape.data}
        found |= dict.fromkeys(names[i] for i in upstream(tape, others, tape.data) if i in names)
        if not mixes(tape, operation) or operation.name in NORMS:
            pending += [i for i in operation.inputs if i in tape.data]
    return found


def _proved(seen: Observation, site: Site, spec: RotarySpec, letters: Mapping[str, str]) -> Found:
    """The first way to hold heads in rows with which an exchange of pairs is one of q and k, and of nothing else."""
    part = seen.parts.get(site.layers[0], seen.rotary)
    assert part is not None
    at = _module_of(letters)
    shapes = {name: tuple(seen.model.get_parameter(name).shape) for name in letters}
    sizes = {"heads": part.num_heads, "kv_heads": part.num_kv_heads}
    inside = {name.removeprefix(f"{at}."): _of_which(seen, site, name, of) for name, of in letters.items()}
    for weights in itertools.islice(_ways(inside, shapes, at, spec, part.num_heads, part.num_kv_heads), MOST_WAYS):
        with suppress(ValueError, NoRotation):
            if _exchanges(seen, site, spec, pieces(weights, spec, shapes, at, **sizes)):
                return Found(at, spec, weights)
    raise ValueError(
        f"{site.where}: its q and k ({', '.join(inside) or 'no weights'}) were not seen to hold whole heads: its pairs "
        "cannot be exchanged"
    )


def _of_which(seen: Observation, site: Site, name: str, letters: str) -> str:
    """Of which of q, k and v a vector is that was put together with others: of those that change with it."""
    weight = seen.model.get_parameter(name)
    if weight.ndim > 1 or len(letters) < 2:
        return letters
    tape, old = _run_with(seen, {name: weight.detach() + 1}), site.q.tape
    values = {"q": site.attention.q, "k": site.attention.k, "v": site.attention.v}
    changed = {a: not torch.equal(tape.values[i], old.values[i]) for a, i in values.items() if i is not None}
    return "".join(letter for letter in letters if changed[letter])


def _run_with(seen: Observation, weights: Mapping[str, Tensor]) -> Tape:
    """The first call anew, with other weights in the small model."""
    assert seen.call is not None
    parameters = {name: seen.model.get_parameter(name) for name in weights}
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        for name, parameter in parameters.items():
            parameter.data.copy_(weights[name])
        return seen.call.tape()
    finally:
        for name, parameter in parameters.items():
            parameter.data.copy_(before[name])


def _module_of(names: Mapping[str, str]) -> str:
    """The module that holds all of these, above the projections themselves."""
    paths = [name.split(".") for name in names]
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in itertools.islice(same, max(map(len, paths), default=2) - 2))


class Way(NamedTuple):
    """What one tensor holds: rows of heads, or the gain of a norm on q, on k or on both."""

    rows: tuple[Rows, ...] = ()
    q_norms: tuple[str, ...] = ()
    k_norms: tuple[str, ...] = ()


def _ways(
    letters: Mapping[str, str], shapes: Shapes, at: str, spec: RotarySpec, heads: int, kv_heads: int
) -> Iterator[Weights]:
    """What all tensors may hold together, the plainest first."""
    options = []
    for name, of in letters.items():
        shape, weight = shapes[f"{at}.{name}"], f"{name.removesuffix('.bias')}.weight"
        follows = name != weight and weight in letters  # a bias goes with its weight
        if follows or not {"q", "k"} & {*of}:
            continue
        module = name.removesuffix(".weight") if name.endswith(".weight") else f"{name}."
        alone = shape[0] == {"q": heads, "k": kv_heads}.get(of, 0) * spec.head_dim
        order = of if alone or len(of) > 1 else f"{of}v"  # something beside it: a gate
        rows = [Way(rows=(Rows(module, order, blocks),)) for blocks in (1, "kv_heads")[: len(order)]]  # type: ignore[arg-type]
        if len(shape) > 1:
            options.append(rows)
        elif shape[0] % spec.head_dim == 0:
            gain = Way(q_norms=(module,) if "q" in of else (), k_norms=(module,) if "k" in of else ())
            options.append([gain, *rows])
    for way in itertools.product(*options):
        yield Weights(
            rows=tuple(row for one in way for row in one.rows),
            q_norms=tuple(norm for one in way for norm in one.q_norms),
            k_norms=tuple(norm for one in way for norm in one.k_norms),
        )


def _exchanges(seen: Observation, site: Site, spec: RotarySpec, held: list[Piece]) -> bool:
    """Whether, with these rows of the small model exchanged, q and k are exchanged before they turn, and v stays."""
    word = next(word for word in PAIRS if word != word_of(spec.layout))
    layouts = with_pairs(spec.layout, "native"), with_pairs(spec.layout, word)
    weights = {}
    for name in {piece.tensor for piece in held}:
        mine, weight = [piece for piece in held if piece.tensor == name], seen.model.get_parameter(name).detach()
        weights[name] = reorder(weight, order_of(mine, weight.shape[mine[0].axis], *layouts), mine[0].axis)
    tape = _run_with(seen, weights)
    old = site.q.tape
    if len(tape.values) != len(old.values):
        return False
    first = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    inside = rotated_channels(layouts[0]).permutation(rotated_channels(layouts[1]))
    order = [*range(first), *(first + channel for channel in inside)]
    order += range(len(order), spec.head_dim)
    q, k, v = site.attention.q, site.attention.k, site.attention.v
    turned = all(
        _same(_before_turning(tape, side, number, flat), _before_turning(old, side, number, flat)[..., order])
        for side, number, flat in (
            (site.q, q, site.attention.queries_transposed), (site.k, k, site.attention.keys_transposed)
        )
    )  # fmt: skip
    return turned and (v is None or _same(tape.values[v], old.values[v]))


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= CLOSE * other.abs().max()).all())


def _before_turning(tape: Tape, side: Side, number: int, transposed: bool) -> Tensor:
    """``[heads, tokens, channels]`` of q or k with its rotation undone; raises `NoRotation`."""
    value, seen = tape.values[number], side.operator
    tokens = value.shape[-1 if transposed else -2]
    at = axes_of(value, tokens, transposed).arranged(value).double()
    if seen is None or not side.turns:
        return at
    if (seen.cos.shape[0], seen.cos.shape[2]) != at.shape[:2]:
        raise NoRotation("its heads and tokens lie otherwise than those of the product")
    new, inputs = torch.zeros_like(at), seen.inputs if side.placed and side.placed.layout.permuted else seen.pairs
    turn = torch.complex(seen.cos, seen.sin).transpose(1, 2)
    (a, b), (x, y) = (torch.tensor(pairs).T for pairs in (seen.pairs, inputs))
    turned = torch.complex(at[..., a], at[..., b]) / torch.where(turn == 0, 1, turn)
    new[..., x], new[..., y] = turned.real, turned.imag
    new[..., list(seen.passing)] = at[..., list(seen.passing)]
    return new
