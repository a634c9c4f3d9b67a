"""Calls that show one thing each: other lengths, positions that differ by axis, weights in half precision.

Each is a fresh call of the model, which is left as it was.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .arithmetic import HALF, halved, in_half
from .call import Call, CannotRun
from .sites import Side, Site, sites_of

LENGTHS = re.compile(r"max_position|n_positions|max_seq|context_len|seq_length|max_len")
TEXT = re.compile(r"text|llm|language|decoder|thinker")
LONGEST = 1 << 26
LARGEST = 1 << 30  # weights: two gigabytes in half precision
FAR = 1 << 16  # float32 angles are right to a hundredth of a radian up to here


@dataclass(frozen=True)
class Look:
    """The sites of one call, by module and number; or why it could not be made."""

    sites: Mapping[tuple[str, int], Site]
    why_not: str = ""

    def like(self, site: Site) -> Site | None:
        return self.sites.get((site.where, site.number))


def look(call: Call, before: Call | None = None, among: Collection[str] | None = None) -> Look:
    """The attentions of a call; ``among``: of these modules alone (Gemma 3n multiplies its streams by each other)."""
    try:
        return Look({(s.where, s.number): s for s in sites_of(call.tape(before), among=among)})
    except CannotRun as error:
        return Look({}, str(error))


def tokens_of(call: Call) -> int:
    """How many tokens the call has."""
    return int(call.contents[0].shape[-1] if not call.contents[0].is_floating_point() else call.contents[0].shape[-2])


def batch_of(call: Call) -> int:
    return int(call.contents[0].shape[0]) if call.contents[0].ndim > 1 else 1


def rows_of(call: Call) -> int:
    """How many sequences, or pictures, the call has at once; numbers without a batch are one."""
    contents = call.contents[0]
    return int(contents.shape[0]) if contents.ndim > (2 if contents.is_floating_point() else 1) else 1


def at_length(call: Call, length: int) -> Call:
    """The call with its last token at the end of a sequence of ``length``, the others at its beginning."""
    return at_positions(call, ends(call, length))


def ends(call: Call, length: int) -> Tensor:
    """The positions of `at_length`."""
    return positions_up_to(length, tokens_of(call))


def at_positions(call: Call, positions: Tensor) -> Call:
    """The call with its tokens at ``positions [tokens]``."""
    return call.at(positions.expand(batch_of(call), -1).contiguous())


def positions_up_to(length: int, tokens: int) -> Tensor:
    """
    >>> positions_up_to(100, 4).tolist()
    [0, 1, 2, 99]
    """
    return torch.tensor([*range(tokens - 1), length - 1])


def lengths_in(numbers: Mapping[str, Any]) -> list[int]:
    """The lengths that a config speaks of, ascending; not that of the text beside a picture.

    >>> lengths_in({"max_text_seq_length": 226, "max_seq_len": 512})
    [512]
    """
    found = [n for key, n in _leaves(numbers) if LENGTHS.search(key) and "text" not in key]
    return sorted({n for n in found if isinstance(n, int) and 64 < n < LONGEST})


def longest_in(numbers: Mapping[str, Any]) -> int | None:
    """The longest sequence that a config speaks of, in its own keys; else in those of its parts that are of text.

    >>> longest_in({"max_position_embeddings": 2048, "vision_config": {"max_position_embeddings": 9999}})
    2048
    """
    own = lengths_in({key: value for key, value in numbers.items() if not isinstance(value, Mapping)})
    text = {key: value for key, value in numbers.items() if isinstance(value, Mapping) and TEXT.search(key)}
    return max(own or lengths_in(text) or lengths_in(numbers), default=None)


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, str(name))
    elif not isinstance(value, bool):
        yield key, value


def at_axes(call: Call, longest: int, among: Collection[str]) -> Iterator[tuple[int, Look]]:
    """The call with positions of several axes, each in an order of its own, where the model takes such."""
    batch, far = batch_of(call), spread(tokens_of(call), longest)
    for count in (3, 4, 2):
        rows = torch.stack([far[shuffled(len(far), a)] for a in range(count)])
        found = look(call.at(rows[:, None].expand(-1, batch, -1).contiguous()), among=among)
        if not found.why_not:
            yield count, found


def spread(tokens: int, longest: int) -> Tensor:
    """So many positions from 0 to the last before ``longest``, near ones and far ones: slow pairs turn only far away.

    >>> spread(6, 1000).tolist()
    [0, 1, 2, 10, 100, 999]
    """
    last = max(min(longest, FAR) - 1, tokens - 1)
    far = [round(last ** (i / max(tokens - 3, 1))) for i in range(1, tokens - 2)]
    return torch.tensor([0, 1, 2, *(max(n, 3 + i) for i, n in enumerate(far))][:tokens])


def shuffled(tokens: int, axis: int) -> Tensor:
    """The numbers below ``tokens`` in an order of their own for each axis, 0 first.

    >>> shuffled(5, 0).tolist(), shuffled(5, 1).tolist()
    ([0, 1, 2, 3, 4], [0, 2, 1, 4, 3])
    """
    order = list(range(tokens))
    if axis:
        rest = order[1:]
        order[1:] = [x for i in range(0, len(rest), axis + 1) for x in reversed(rest[i : i + axis + 1])]
    return torch.tensor(order)


def in_half_precision(call: Call, among: Collection[str]) -> Look:
    """The call with weights in bfloat16, where they are not too many to be copied."""
    if sum(p.numel() for p in call.model.parameters() if p.dtype != HALF) > LARGEST:
        return Look({}, "the weights are too many to be copied")
    with in_half(call.model):
        return look(replace(call, args=halved(call.args), kwargs=halved(call.named)), among=among)


def heads_of(site: Site, call: Call) -> int:
    """The query heads of one attention; those of a picture's windows are told apart by the shape of the queries."""
    heads = heads_of_side(site.q if site.q.turns else site.k, call)
    return min(heads, site.heads) if call.contents[0].is_floating_point() else heads


def heads_of_side(side: Side, call: Call, own: bool = False) -> int:
    """The heads of one sequence, where those of all sequences of the batch, or of all windows of them, were counted.

    ``own``: before they are repeated for several queries.
    """
    assert side.operator is not None
    heads, rows = side.operator.own_heads if own else int(side.operator.cos.shape[0]), rows_of(call)
    if not call.contents[0].is_floating_point():  # each token has every head once
        count, tokens = heads * side.operator.cos.shape[-1], rows * tokens_of(call)
        if count % tokens == 0:
            return count // tokens
    return heads // rows if heads % rows == 0 else heads
