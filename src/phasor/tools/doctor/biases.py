"""What a bias on the logits must be at each distance, and what it is called where it is something else.

A softmax sees of a bias only how it differs from key to key. So a bias is taken less that of the query's own key.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...encodings.alibi import alibi_slopes
from ...encodings.t5 import t5_bucket
from ...eye.bias import LogitBias
from ...models.without_rotation import ALIBI, ALWAYS_ALIBI, DISENTANGLED, LEARNED, stated_slopes
from .deviation import Deviation, places
from .told_of_calls import RESTART

WITHIN = 2e-5  # of the values that a bias is formed of: a few roundings of float32
WITHIN_HALF = 2.0**-7  # two roundings of bfloat16
FARTHEST = 128  # distances that are tried in place of the right ones
MOST = 256  # values by which a fault is named

# What is added at distances, query minus key, ``[...]`` -> ``[heads, ...]``.
Rule = Callable[[Tensor], Tensor]

CROSS = "EncDecAttention"  # T5's attention to the encoder, which has none


def meant(config: Any, where: str) -> int:
    """How many biases the attention ``where`` has by its config; 0 where that does not say it."""
    kind = getattr(config, "model_type", "")
    if kind in LEARNED:
        return int(not where.endswith(CROSS))
    if kind in DISENTANGLED and config.relative_attention:
        return len({"c2p", "p2c"} & set(config.pos_att_type))
    alibi = getattr(getattr(config, "attn_config", config), "alibi", kind in ALWAYS_ALIBI)
    return int(kind in ALIBI and bool(alibi))


def factor_of(config: Any) -> float | None:
    """By what the products of contents and of positions must be multiplied, all alike; None where nothing says it."""
    if getattr(config, "model_type", "") not in DISENTANGLED:
        return None
    terms = 1 + len({"c2p", "p2c"} & set(config.pos_att_type))
    return (config.hidden_size / config.num_attention_heads * terms) ** -0.5


def rule_of(bias: LogitBias, config: Any, causal: bool) -> Rule | str:
    """What a config says that is added at each distance, where keys behind a query are seen or not.

    Or why nothing says it.
    """
    if bias.looked_up:
        return _disentangled(config) if hasattr(config, "position_buckets") else "nothing says which rows those must be"
    if bias.table is not None:
        return _of_buckets(bias, bias.table, config, causal)
    if getattr(config, "model_type", "") in ALIBI:
        return _of_slopes(stated_slopes(config, len(bias.values)), causal)
    if bias.slopes:
        paper = torch.tensor(alibi_slopes(len(bias.slopes)), dtype=torch.float64)
        seen = torch.tensor(bias.slopes, dtype=torch.float64)
        if torch.allclose(seen, paper, rtol=WITHIN_HALF):
            return _of_slopes(tuple(paper.tolist()), causal)
        return "its slopes are not those of the paper, and nothing says which they must be"
    return "nothing says by what rule it is formed"


def _of_slopes(slopes: tuple[float, ...], causal: bool) -> Rule:
    steep = torch.tensor(slopes, dtype=torch.float64)

    def rule(distance: Tensor) -> Tensor:
        away = distance if causal else distance.abs()
        return -steep.view(-1, *[1] * distance.ndim) * away

    return rule


def _of_buckets(bias: LogitBias, table: Tensor, config: Any, causal: bool) -> Rule | str:
    """T5's, where the config says how many buckets there are and the table has as many rows."""
    buckets = getattr(config, "relative_attention_num_buckets", 0)
    if tuple(table.shape) != (buckets, len(bias.values)):
        return "nothing says by what rule its table is looked up"
    farthest = getattr(config, "relative_attention_max_distance", 128)
    values = table.detach().double().T

    def at(distance: Tensor) -> Tensor:
        both = not causal
        return values[:, t5_bucket(-distance, bidirectional=both, num_buckets=buckets, max_distance=farthest)]

    return lambda distance: at(distance) - at(torch.zeros_like(distance))


def _disentangled(config: Any) -> Rule:
    """The rows of DeBERTa's table: distances near by have one each, farther ones share one by their logarithm.

    Source: He et al. 2021, arXiv:2111.09543, and ``make_log_bucket_position`` of its code.
    """
    buckets, farthest = config.position_buckets, config.max_relative_positions
    farthest = config.max_position_embeddings if farthest < 1 else farthest
    span = buckets if buckets > 0 else farthest
    exact = buckets // 2

    def rule(distance: Tensor) -> Tensor:
        rows = distance
        if buckets > 0:
            far = distance.abs().clamp(min=exact).double()
            share = (far / exact).log() / math.log((farthest - 1) / exact)
            rows = torch.where(
                distance.abs() <= exact, distance, distance.sign() * ((share * (exact - 1)).ceil() + exact)
            )
        return (rows + span).clamp(0, 2 * span - 1).double()[None]

    return rule


@dataclass(frozen=True, eq=False)
class Known:
    """One bias of one attention as a plain call shows it, and the ``rule`` that a config gives, where that is right.

    ``other``: the rule of the other direction, of an encoder for a decoder's.
    """

    bias: LogitBias
    within: float
    rule: Rule | None = None
    other: Rule | None = None

    def at(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``[rows, heads, queries, keys]`` at positions ``[rows, queries]`` and ``[rows, keys]``; NaN where unknown."""
        distance = queries[:, :, None] - keys[:, None, :]
        if self.rule is not None:
            return self.rule(distance).transpose(0, 1)
        far = self.bias.values.shape[-1] - 1
        if self.bias.by_distance is not None:
            found = self.bias.by_distance[:, (distance + far).clamp(0, 2 * far)].transpose(0, 1)
            return found.masked_fill((distance.abs() > far)[:, None], torch.nan)
        assert self.bias.relative is not None
        m, n = (x.clamp(0, far) for x in (queries, keys))
        found = self.bias.relative[:, m[:, :, None], n[:, None, :]].transpose(0, 1)
        outside = (queries > far)[:, :, None] | (keys > far)[:, None, :]
        return found.masked_fill(outside[:, None], torch.nan)


@dataclass(frozen=True, eq=False)
class Compared:
    """Values that are wrong, ``[n]``: what is ``seen`` and ``must`` be, in which ``head``, at what ``distance``.

    ``key``: the position of the key; ``size``: of the values behind each; ``began``: the first position of the call.
    ``slopes``: by which one each head falls with the distance, and must fall; None where by no one.
    """

    seen: Tensor
    must: Tensor
    head: Tensor
    distance: Tensor
    key: Tensor
    size: Tensor
    known: Known
    began: int
    slopes: tuple[list[float | None], list[float | None]]

    def matches(self, other: Tensor) -> bool:
        """Whether what is wrong is this instead."""
        return bool(((self.seen - other).abs() <= 4 * self.known.within * self.size + 1e-7).all())

    def at(self, distance: Tensor, rule: Rule | None = None) -> Tensor:
        """What must be at other distances, in the same heads; NaN where unknown."""
        zero = torch.zeros(len(distance), 1, dtype=torch.int64)
        found = (
            self.known.at(distance[:, None], zero) if rule is None else rule(distance[:, None, None]).transpose(0, 1)
        )
        head = self.head if found.shape[1] > 1 else 0  # one for all heads
        return found[torch.arange(len(distance)), head, 0, 0]

    def moved(self, by: int) -> Tensor:
        """What must be where all distances are others by a number, the query's own too."""
        return self.at(self.distance + by) - self.at(torch.full_like(self.distance, by))


def deviation_of_bias(known: Known, bias: LogitBias, queries: Tensor, keys: Tensor, live: Tensor) -> Deviation | str:
    """How a bias differs from what is known, in a call of ``rows`` texts; empty where it does not.

    ``queries [rows, tokens]``, ``keys [rows, tokens]``: their positions, the last keys being the queries';
    ``live [rows, keys]``: keys that are no padding.
    """
    rows, tokens = queries.shape
    if bias.values.shape[-2:] != (tokens, keys.shape[1]) or len(bias.values) % rows:
        return "its keys are not the tokens that were given"
    relative = bias.relative
    assert relative is not None  # it has the keys of its queries
    seen, values, shown = (torch.unflatten(x, 0, (rows, -1)) for x in (relative, bias.values, bias.seen))
    own = values.diagonal(keys.shape[1] - tokens, -2, -1).unsqueeze(-1)
    must = known.at(queries, keys)
    if must.shape[1] == 1:  # the same in all heads
        must = must.expand_as(seen)
    if must.shape != seen.shape:
        return "it has another number of heads"
    size = values.abs() + own.abs() + must.nan_to_num().abs()
    there = shown & live[:, None, None, :] & live[:, None, -tokens:, None] & must.isfinite()
    distance = (queries[:, :, None] - keys[:, None, :])[:, None]
    if not bool((there & (distance != 0)).any()):
        return "" if tokens == keys.shape[1] == 1 else "nothing says what it must be there"
    wrong = ((seen - must).abs() > known.within * size + 1e-7) & there
    if not bool(wrong.any()):
        return ""
    keys_of, distance = (x.expand_as(seen) for x in (keys[:, None, None, :], distance))
    every = wrong.nonzero()
    at = every[:: 1 + len(every) // MOST].unbind(1)
    parts = (seen[at], must[at], at[1], distance[at], keys_of[at], size[at])
    slopes = (_slopes_of(seen, there, distance), _slopes_of(must, there, distance))
    compared = Compared(*parts, known, int(queries.min()), slopes)
    cause, says = next((name, said) for name, test in NAMES if (said := test(compared)) is not None)
    heads, tokens_of, of_rows = (places(wrong, axis) for axis in (1, 2, 0))
    few = f"{', '.join(map(str, heads[:6]))}{', …' * (len(heads) > 6)}"
    place = f" (head{'s' * (len(heads) > 1)} {few})" if len(heads) < seen.shape[1] else ""
    return Deviation(cause, says + place, tokens_of[0], None, tokens_of, of_rows)


def _lost(c: Compared) -> str | None:
    return "no bias is added" if bool((c.seen.abs() < 1e-9).all()) else None


def _restarts(c: Compared) -> str | None:
    """Queries count from 0 in each call, or keys of the call do so too."""
    if not c.began:
        return None
    key = torch.where(c.key >= c.began, c.key - c.began, c.key)
    query = c.distance + c.key - c.began
    counts = c.matches(c.moved(-c.began)) or c.matches(c.at(query - key))
    return "its calls count from 0 again" if counts else None


def _positions(c: Compared) -> str | None:
    """All distances are others by a number, or those to keys that stand elsewhere than the query's own."""
    steps = (by for each in range(1, FARTHEST + 1) for by in (each, -each))
    by = next((by for by in steps if c.matches(c.moved(by)) or c.matches(c.at(c.distance + by))), None)
    return None if by is None else f"each distance is taken for one that is {by:+d}"


def _slopes_of(values: Tensor, there: Tensor, distance: Tensor) -> list[float | None]:
    """By which one each head falls with the distance; None where by no one."""
    each = (-values / distance).masked_fill(~there | (distance <= 0), torch.nan).movedim(1, 0).flatten(1)
    middle = each.nanmedian(1, keepdim=True).values
    even = (((each - middle).abs() <= 2e-2 * middle.abs() + 1e-7) | each.isnan()).all(1) & middle[:, 0].isfinite()
    return [slope if one else None for slope, one in zip(middle[:, 0].tolist(), even.tolist(), strict=True)]


def _slopes(c: Compared) -> str | None:
    """Each head falls by one slope, and by another than it must."""
    seen, must = c.slopes
    if c.known.bias.table is not None or c.known.bias.looked_up or None in seen or None in must:
        return None
    heads = c.head.unique().tolist()
    more = ", …" if len(heads) > 4 else ""
    few, right = (", ".join(f"{of[head]:.4g}" for head in heads[:4]) + more for of in (seen, must))
    if torch.allclose(torch.tensor(seen[::-1]), torch.tensor(must), rtol=1e-2):
        return f"the slopes of the heads are in reverse order ({few})"
    return f"the slopes of the heads are {few}, and must be {right}"


def _direction(c: Compared) -> str | None:
    if c.matches(-c.must):
        return "it grows with the distance, and must fall"
    if c.matches(c.at(-c.distance)):
        return "keys before a query get what keys behind it must get"
    if c.known.other is not None and c.matches(c.at(c.distance, c.known.other)):
        return f"its buckets are those of {'an encoder' if c.known.bias.causal else 'a decoder'}"
    return None


def _factor(c: Compared) -> str | None:
    """All values are as much longer or shorter."""
    by = float((c.seen * c.must).sum() / (c.must * c.must).sum().clamp(min=1e-12))
    if c.known.bias.looked_up or not c.matches(by * c.must):
        return None
    return "it is added twice" if math.isclose(by, 2, rel_tol=1e-3) else f"it is {by:.4g} times what it must be"


def _bucket(c: Compared) -> str | None:
    """Each value is in the table, at other distances."""
    table, distance = c.known.bias.table, int(c.distance[0])
    if table is None:
        return f"distance {distance} takes the row of another distance" if c.known.bias.looked_up else None
    if table.shape[-1] <= int(c.head.max()):
        return None
    rows = table.detach().double()[:, c.head]
    apart = (c.seen - (rows[:, None] - rows)).abs().flatten(0, 1).amin(0)  # that of the query's own may be another, too
    there = bool((apart <= 4 * c.known.within * c.size + 1e-7).all())
    return f"distance {distance} takes the row of another distance" if there else None


def _coarse(c: Compared) -> str | None:
    off = (c.seen - c.must).abs()
    coarse = not c.known.bias.looked_up and bool((off <= WITHIN_HALF * c.size).all())
    return "it is rounded to half precision" if coarse else None


def _other(c: Compared) -> str | None:
    return f"it is off by up to {float((c.seen - c.must).abs().max()):.2g}"


# One row a fault: its cause, and what the values say where it is that one.
NAMES: tuple[tuple[str, Callable[[Compared], str | None]], ...] = (
    (RESTART, _restarts),
    ("bias lost", _lost),
    ("direction", _direction),
    ("positions", _positions),
    ("half precision", _coarse),
    ("slopes", _slopes),
    ("factor of the bias", _factor),
    ("bucket", _bucket),
    ("bias", _other),
)
