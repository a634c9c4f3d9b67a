"""What tells a model where tokens stand when nothing turns: read off the tape, in one sentence."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .attention import attentions
from .tape import Attention, Operation, Tape, upstream

MASKED = -1e4  # what is added to the logits of tokens that are not seen
DEEPEST = 24  # operations between a product and its softmax
ADDS = ("add", "add_", "sub", "baddbmm")


def instead(tape: Tape, standing: bool) -> str:
    """Positions without a rotation, in words: a bias on the logits, or a table added to the tokens.

    A bias is what is added to the logits and does not depend on the tokens' contents; it is named by its values.
    ``standing``: whether all q and k were seen to stand still. Empty where nothing can be said.
    """
    found = attentions(tape)
    if not found:
        return ""
    said = list(dict.fromkeys(filter(None, (_of_bias(tape, a) for a in found))))
    said += list(dict.fromkeys(_added(tape, found[0])))
    if said:
        return "; ".join(said)
    if not standing:
        return ""
    if all(a.how == "a product" for a in found):
        return "products of q and k without a softmax (linear attention), and no position in them"
    return "no position is seen in q, k, the logits or the embeddings: at most a mask orders the tokens"


def _of_bias(tape: Tape, attention: Attention) -> str:
    for number in _biases(tape, attention):
        bias = tape.values[number].detach().double()
        if bias.ndim < 2 or bias.shape[-1] < 3:
            continue
        if said := _named(tape, number, bias.reshape(-1, *bias.shape[-2:])):
            return said
    return ""


def _biases(tape: Tape, attention: Attention) -> Iterator[int]:
    """What is added to the logits and does not depend on the data, nearest the softmax first."""
    number, begin = attention.softmax, next((b for b, e in tape.inside_attention if b <= attention.at < e), None)
    if number is None and begin is not None:  # a fused call, taken apart as far as torch does that
        for operation in tape.operations[begin : attention.at + 1]:
            if "scaled_dot_product" in operation.name:
                yield from (i for i in operation.inputs[3:] if tape.is_float(i))
                return
            if "softmax" in operation.name:
                number = operation.inputs[0]
                break
    for _ in range(DEEPEST):
        maker = None if number is None else tape.maker(number)
        if maker is None or maker.name in ("bmm", "mm"):
            return
        free = [i for i in maker.inputs if i not in tape.data]
        if maker.name in ADDS and free:
            yield free[0]
        number = next((i for i in maker.inputs if i in tape.data), None)
        if maker.name == "baddbmm":
            return


def _named(tape: Tape, number: int, rows: Tensor) -> str:
    """``rows [heads, queries, keys]``: the name of a bias that differs from key to key, empty for a mask."""
    seen = rows > MASKED
    steps, both = rows.diff(dim=-1), seen[..., 1:] & seen[..., :-1]
    size = rows[seen].abs().max().item() if seen.any() else 0.0
    if not both.any() or steps[both].abs().max() <= 1e-6 * max(size, 1.0):
        return ""
    weights = [i for i in upstream(tape, [number]) if i in tape.weights]
    if weights:
        table = tape.values[max(weights, key=lambda i: tape.values[i].numel())]
        return f"a learned bias on the logits by distance (as T5's), from a table {list(table.shape)}"
    past = both & ~torch.ones_like(both, dtype=torch.bool).triu()  # keys up to the query's own
    past = past if past.any() else both
    slopes = [float(s[p].median()) for s, p in zip(steps, past, strict=True) if p.any()]
    apart = max(float((s[p] - m).abs().max()) for s, p, m in zip(steps, past, slopes, strict=False) if p.any())
    if apart <= 1e-2 * max(map(abs, slopes)):
        few = ", ".join(f"{slope:.4g}" for slope in list(dict.fromkeys(slopes))[:4])
        return f"ALiBi: the logits of each head fall by a slope for each position of distance ({few}, …)"
    return "a fixed bias on the logits, which is no multiple of the distance"


def _added(tape: Tape, first: Attention) -> Iterator[str]:
    """Tables added to the tokens before q and k part, a row for each position."""
    shared = set(upstream(tape, [first.q])) & set(upstream(tape, [first.k])) & tape.data
    for operation in tape.operations[: first.at]:
        if operation.name not in ("add", "add_", "mul") or not shared.intersection(operation.outputs):
            continue
        free = [i for i in operation.inputs[:2] if i not in tape.data]
        if len(free) != 1 or len(operation.inputs) < 2 or not _by_token(tape, operation, free[0]):
            continue
        table = free[0]
        if operation.name == "mul":
            yield "the hidden states are multiplied by a table of positions, before any projection"
            continue
        weights = {i for i in upstream(tape, [table]) if i in tape.weights and tape.values[i].ndim > 1}
        fixed = not weights or _sinusoidal(tape.values[table])
        yield "sinusoidal positions, added to the embeddings" if fixed else "learned positions, added to the embeddings"


def _by_token(tape: Tape, operation: Operation, table: int) -> bool:
    """Whether a table ``[tokens, channels]`` has a row for each token that it is added to, and they differ."""
    value, out = tape.values[table], tape.values[operation.outputs[0] or 0]
    if not value.is_floating_point() or value.ndim < 2 or value.shape[-2:] != out.shape[-2:] or value.shape[-1] < 2:
        return False
    row = value.detach().reshape(-1, *value.shape[-2:])[0]
    return bool((row != row[:1]).any())


def _sinusoidal(value: Tensor) -> bool:
    """Sines and cosines of one angle for each two channels: all rows have one length, the root of half the channels."""
    squares = value.detach().double().square().sum(-1)
    return bool((squares - value.shape[-1] / 2).abs().max() < 1e-3 * value.shape[-1])
