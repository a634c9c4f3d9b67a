"""Where q and k come from, by behaviour: what `phasor.weights` names is permuted in a model that runs.

Permuting the rotated channels, and the heads, in all pieces of q must permute the q that the model is about to turn,
all of it, and nothing else; the same for k. And with the rotation off, permuting the channels of q and k alike must
leave the model's output as it is, wherever norms stand.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from phasor.models.configs import ModelRotary
from phasor.models.prefixes import attentions, find_prefix
from phasor.models.weights import Piece, Weights, pieces
from phasor.rotary.spec import RotarySpec

from .watch import Seen, Watch

Specs = dict[str, RotarySpec]  # by the name of a tensor


def shuffled(size: int, seed: int = 0) -> Tensor:
    """A permutation without a fixed point that is no power of another pair layout's."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    moved = torch.empty_like(order)
    moved[order] = order.roll(1)
    return moved


def index_of(piece: Piece, size: int, spec: RotarySpec, heads: int) -> Tensor:
    """What each index along the axis of a piece is replaced by: head h by head h + ``heads``, its channels permuted."""
    index, starts, channels = torch.arange(size), piece.starts, shuffled(piece.width)
    first = spec.head_dim - spec.rotary_dim if spec.trailing and len(starts) > 1 else 0
    for h, start in enumerate(starts):
        other = starts[(h + heads) % len(starts)]
        if len(starts) > 1:
            index[start - first : start - first + spec.head_dim] = torch.arange(spec.head_dim) + other - first
        index[start : start + piece.width] = other + channels
    return index


@contextlib.contextmanager
def permuted(state: dict[str, Tensor], found: list[Piece], spec: Specs, heads: int) -> Iterator[None]:
    """The tensors of a model, permuted in place for a while."""
    before = {p.tensor: state[p.tensor].clone() for p in found}
    try:
        for p in found:
            tensor = state[p.tensor]
            index = index_of(p, tensor.shape[p.axis], spec[p.tensor], heads)
            tensor.copy_(tensor.index_select(p.axis, index))
            if p.role == "norm" and tensor.ndim > 1 and heads:
                tensor.copy_(tensor.roll(-heads, 0))
        yield
    finally:
        for name, tensor in before.items():
            state[name].copy_(tensor)


def expected(x: Tensor, spec: RotarySpec, count: int, heads: int) -> Iterator[Tensor]:
    """What a q or k becomes: its rotated channels permuted, and its heads moved, on either axis that could count them;
    keys may have been repeated for their query heads, one by one or all together. Where the model's code writes pairs
    as halves, it may have done so before it calls the function that rotates."""
    first = spec.head_dim - spec.rotary_dim if spec.trailing and x.shape[-1] == spec.head_dim else 0
    moves = shuffled(spec.rotary_dim)
    channels = torch.arange(x.shape[-1])
    channels[first : first + spec.rotary_dim] = first + moves
    if spec.permuted:
        halves = torch.cat([torch.arange(0, spec.rotary_dim, 2), torch.arange(1, spec.rotary_dim, 2)])
        as_halves = channels.clone()
        as_halves[first : first + spec.rotary_dim] = first + halves.argsort()[moves[halves]]
        yield from expected_heads(x[..., as_halves], count, heads)
    yield from expected_heads(x[..., channels], count, heads)


def expected_heads(x: Tensor, count: int, heads: int) -> Iterator[Tensor]:
    if not heads or count == 1:
        yield x
        return
    for axis in (-3, -2):
        if x.shape[axis] % count == 0:
            numbers = torch.arange(x.shape[axis])
            yield x.index_select(axis, numbers.reshape(count, -1).roll(-heads, 0).reshape(-1))
            yield x.index_select(axis, numbers.reshape(-1, count).roll(-heads, 1).reshape(-1))


def same(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 2e-5 * b.abs().max())


def faults(model: nn.Module, inputs: Any, rotary: ModelRotary, weights: Weights) -> tuple[list[str], int, int]:
    """What is wrong with the claims about a model; how many attentions, and how many whole models, were tested."""
    state = {n: x.detach() for n, x in model.state_dict().items()}
    shapes = {n: tuple(x.shape) for n, x in state.items()}
    prefix = find_prefix(shapes, weights, rotary.layers, heads=rotary.num_heads, kv_heads=rotary.num_kv_heads)
    specs = attentions(shapes, weights, rotary.layers, prefix)
    claimed = {
        at: pieces(weights, spec, shapes, at, heads=rotary.num_heads, kv_heads=rotary.num_kv_heads)
        for at, spec in specs.items()
    }
    randomised(state)
    said: list[str] = []
    with torch.no_grad(), Watch(model).on() as watch:
        base, plain = watch.run(inputs)
        tested, done = 0, set()
        for at, found in claimed.items():
            there = {state[p.tensor].data_ptr() for p in found}
            if not there & done:  # else an earlier layer's, shared
                one = of_attention(watch, inputs, state, base, at, found, specs[at], few=rotary.heads is not None)
                tested += one is not None
                said += one or []
            done |= there
        watch.off = True
        everything = [p for found in claimed.values() for p in found]
        by_tensor = {p.tensor: specs[at] for at, found in claimed.items() for p in found}
        whole = of_model(watch, inputs, state, everything, by_tensor) if plain else None
        said += whole or []
    return said, tested, int(whole is not None)


def randomised(state: dict[str, Tensor]) -> None:
    """Gains are ones and biases zeros in a new model, which would hide a permutation that was forgotten."""
    made = torch.Generator().manual_seed(1)
    for tensor in state.values():
        if tensor.is_floating_point() and tensor.numel() > 1 and tensor.ndim < 3 and tensor.std() == 0:
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=made))


def of_attention(
    watch: Watch,
    inputs: Any,
    state: dict[str, Tensor],
    base: Seen,
    at: str,
    found: list[Piece],
    spec: RotarySpec,
    few: bool,
) -> list[str] | None:
    """Faults of one attention; None if the model did not reach it. ``few``: only its first heads rotate, so that
    heads which change places are not seen."""
    mine = [key for key in base if f"{key[0]}.".startswith(f"{at}.") and ".indexer" not in key[0][len(at) :]]
    if any(p.kind == "output" for p in found):
        mine = [key for key in mine if (key[0], key[2]) != (at, "?")]  # the output, which is turned back
    if not mine:
        return None
    specs = {p.tensor: spec for p in found}
    coupled = any(p.kind == "qk" for p in found)
    said, moved = [], set()
    for kind in ("qk",) if coupled else ("q", "k", "v"):
        pieces_of = [p for p in found if p.kind == kind or coupled]
        if not pieces_of:
            continue
        heads = 0 if coupled or few or stay(pieces_of) or f"{at}.softmax_scaling.scale" in state else 1
        count = max(len(p.starts) for p in pieces_of)
        with permuted(state, pieces_of, specs, heads):
            seen, _ = watch.run(inputs)
        changed = [key for key in mine if not torch.equal(seen[key], base[key])]
        moved |= set(changed)
        if not changed:
            said.append(f"{at}: permuting {kind} changes nothing that turns")
        for key in changed:
            if not coupled and (letter := key[2].removeprefix("x")[:1]) in "qkv" and letter and letter != kind:
                said.append(f"{at}: permuting {kind} changes {key[2]}")
            if not any(same(seen[key], want) for want in expected(base[key], spec, count, heads)):
                said.append(f"{at}: {key[2]} is not {kind} permuted")
        for piece in pieces_of:
            with permuted(state, [piece], specs, heads):
                seen, _ = watch.run(inputs)
            if all(torch.equal(seen[key], base[key]) for key in mine) and piece.role != "norm":
                said.append(f"{at}: {piece.tensor} has no effect on {kind}")
    if not said and moved != set(mine):
        said.append(f"{at}: {[k[2] for k in mine if k not in moved]} came from elsewhere")
    return said


def stay(found: list[Piece]) -> bool:
    """Whether the heads cannot change places: norms of single heads, and stretches that are windows, not heads."""
    counts = {len(p.starts) for p in found if p.role == "weight"}
    return len(counts) > 1 or any(".norms." in p.tensor or p.tensor.endswith("position_bias") for p in found)


def of_model(watch: Watch, inputs: Any, state: dict[str, Tensor], found: list[Piece], specs: Specs) -> list[str] | None:
    """Faults of the whole model with its rotation off; None if it does not run so."""
    _, base = watch.run(inputs)
    if not base:
        return None
    once: dict[tuple[int, int, tuple[int, ...]], Piece] = {}
    for p in found:  # tensors that layers share are permuted once
        once.setdefault((state[p.tensor].data_ptr(), p.axis, p.starts), p)
    with permuted(state, list(once.values()), specs, 0):
        _, after = watch.run(inputs)
    said = (
        []
        if all(close(a, b) for a, b in zip(after, base, strict=True))
        else ["q and k permuted alike change the output"]
    )
    for role in {p.role for p in once.values()}:
        some = [p for p in once.values() if p.role == role and p.kind != "k"]
        with permuted(state, some, specs, 0):
            _, after = watch.run(inputs)
        if some and all(close(a, b) for a, b in zip(after, base, strict=True)):
            return said or None  # the output is rounded to codes, and shows nothing
    return said


def close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return bool((a.double() - b).abs().nan_to_num(0).max() <= 1e-4 * b.abs().nan_to_num(0).max().clamp(min=1e-6))
