"""Random single faults of tiny models, to measure how many visible ones the doctor calls right.

A seed draws a family (`random_types`), a kind of fault, its parameters, and the way in which it gets into the model
(`random_planting`). ``python -m doctor.random_faults`` (in ``tests``) diagnoses many and prints what was said of them.
"""

import cmath
import contextlib
import copy
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from .random_planting import Plant, See, Turn
from .random_types import LENGTH, SHORT, TYPES, Type
from .wild import register

Wrong = Callable[..., Any]  # (turn, q, k, cos, sin, see) -> q and k, turned wrongly
Change = Callable[[Tensor], Tensor]
LOW = (torch.bfloat16, torch.float16)

# ---- wrong rotations -------------------------------------------------------------------------------------------------


def right(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
    return turn(q, k, cos, sin)


def still(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
    return turn(q, k, torch.ones_like(cos), torch.zeros_like(sin))


def keys_backwards(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
    return turn(q, k, cos, sin)[0], turn(q, k, cos, -sin)[1]


def twice(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
    return turn(*turn(q, k, cos, sin), cos, sin)


def split(of_q: Wrong, of_k: Wrong) -> Wrong:
    """Queries turned in one way, keys in another."""
    return lambda *given: (of_q(*given)[0], of_k(*given)[1])


def same(x: Tensor) -> Tensor:
    return x


def times(by: float) -> Change:
    return lambda x: x * by


def rounded(to: torch.dtype) -> Change:
    return lambda x: x.to(to).to(x.dtype)


def under_autocast(change: Change) -> Change:
    return lambda x: change(x) if torch.is_autocast_enabled("cpu") else x


def after(of_q: Change, of_k: Change) -> Wrong:
    """What was turned, changed further."""

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        q, k = turn(q, k, cos, sin)
        return of_q(q), of_k(k)

    return wrong


def one_late(p: Plant) -> Wrong:
    return after(same, lambda k: p.written(p.planes(k) * p.step, k))


def on_one(p: Plant, change: Change) -> Wrong:
    return after(*p.pick((change, same), (same, change)))


def on_some(p: Plant, change: Change) -> Wrong:
    return after(*p.pick((change, same), (same, change), (change, change)))


def of_pair(p: Plant, by: complex) -> Change:
    """One pair's plane times a complex number."""
    wheel = torch.ones(p.pairs, dtype=torch.complex64)
    wheel[p.draw.randrange(p.pairs)] = torch.tensor(by)
    return lambda x: p.written(p.planes(x) * wheel, x)


def other_pairs(p: Plant) -> Wrong:
    """Halves where pairs are interleaved, or the reverse."""
    n = p.pairs
    apart = torch.tensor([*range(0, 2 * n, 2), *range(1, 2 * n, 2)])
    order = apart.argsort() if p.kind.interleaved else apart

    def moved(x: Tensor, order: Tensor) -> Tensor:
        return torch.cat((x[..., order], x[..., 2 * n :]), -1)

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        return tuple(moved(x, order.argsort()) for x in turn(moved(q, order), moved(k, order), cos, sin))

    return wrong


def factor(p: Plant) -> float:
    return float(p.pick(0.25, 0.5, 0.7, 0.9, 1.1, 1.4, 2.0, 3.0))


def any_wrong(p: Plant) -> Wrong:
    name, wrong = p.pick(
        ("not rotated", still),
        ("sign", keys_backwards),
        ("positions", one_late(p)),
        ("factor or louder", after(same, times(factor(p)))),
    )
    p.drawn = f" or {name}"
    return wrong


# ---- in some calls, and in a part of them ----------------------------------------------------------------------------


def when(p: Plant, holds: Callable[..., bool], *drawn: int, of_layer: bool = False, wrong: Wrong | None = None) -> None:
    """A wrong rotation in the calls for which ``holds(q, see, *drawn)`` is true."""
    wrong = wrong or any_wrong(p)
    p.turn(lambda turn, q, *more: (wrong if holds(q, more[-1], *drawn) else right)(turn, q, *more), of_layer)


def where(p: Plant, mask: Callable[..., Tensor], *drawn: int, wrong: Wrong | None = None) -> None:
    """A wrong rotation where ``mask(x, *drawn)``, which spreads to ``[B, H, S, 1]``, is true."""
    wrong = wrong or any_wrong(p)

    def mixed(turn: Turn, q: Tensor, k: Tensor, *more: Any) -> Any:
        both = zip((q, k), wrong(turn, q, k, *more), right(turn, q, k, *more), strict=True)
        return tuple(torch.where(mask(x, *drawn), bad, good) for x, bad, good in both)

    p.turn(mixed)


def index(x: Tensor, dim: int) -> Tensor:
    return torch.arange(x.shape[dim]).view([-1 if i == dim else 1 for i in range(4)])


def of_head(p: Plant, wrong: Wrong) -> None:
    where(p, lambda x, head: index(x, 1) == head % x.shape[1], p.draw.randrange(4), wrong=wrong)


def of_layer(p: Plant, wrong: Wrong) -> None:
    layer = p.draw.randrange(len(p.attentions))
    when(p, lambda q, see, layer: see.layer == layer, layer, of_layer=True, wrong=wrong)


def with_cache(p: Plant, n: int, decoding: bool) -> None:
    when(p, lambda q, see: see.cached >= n and (q.shape[2] == 1) == decoding, of_layer=True)


def every(p: Plant, n: int) -> None:
    calls: dict[int, int] = {}

    def holds(q: Tensor, see: See) -> bool:
        calls[see.layer] = calls.get(see.layer, 0) + 1
        return calls[see.layer] % n == 0

    when(p, holds, of_layer=True)


def sticky(p: Plant, n: int, wrong: Wrong | None = None) -> None:
    """Wrong in all calls after one of more than n tokens."""
    long: set[int] = set()

    def holds(q: Tensor, see: See) -> bool:
        stuck = see.layer in long
        if q.shape[2] > n:
            long.add(see.layer)
        return stuck

    when(p, holds, of_layer=True, wrong=wrong)


def stale_key(p: Plant, n: int) -> None:
    """A step writes the key of the step before it, once the cache holds n tokens."""
    last: dict[int, Tensor] = {}

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        q, k = turn(q, k, cos, sin)
        before, last[see.layer] = last.get(see.layer), k[:, :, -1:]
        return q, before if before is not None and before.shape == k.shape and see.cached >= n else k

    p.turn(wrong, of_layer=True)


def keys_in_cache(p: Plant, n: int) -> None:
    """What the cache holds is turned on by one position with each call, once it holds n tokens."""

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        if see.cached >= n:
            held = see.cache.layers[see.layer]
            held.keys = p.written(p.planes(held.keys) * p.step, held.keys)
        return turn(q, k, cos, sin)

    p.turn(wrong, of_layer=True)


def kept_changed(p: Plant, change: Change) -> None:
    """What the cache holds is changed before each call."""

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        if see.cached:
            held = see.cache.layers[see.layer]
            held.keys = change(held.keys)
        return turn(q, k, cos, sin)

    p.turn(wrong, of_layer=True)


def values_turned(p: Plant) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    p.style, sdpa = "attention function", functions["sdpa"]

    def attend(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **more: Any) -> Any:
        n = min(p.pairs, v.shape[-1] // 2)
        wheel = torch.polar(torch.ones(1), torch.arange(v.shape[2])[:, None] * p.step[:n].angle())
        turned = torch.complex(v[..., :n].float(), v[..., n : 2 * n].float()) * wheel
        v = torch.cat((turned.real.to(v.dtype), turned.imag.to(v.dtype), v[..., 2 * n :]), -1)
        return sdpa(module, q, k, v, mask, **more)

    register(p.undo, p.model, attend)


def in_fused(p: Plant, change: Change) -> None:
    """Queries changed by what is put in the place of torch's fused attention."""
    functional = torch.nn.functional
    p.style, fused = "fused attention wrapped", functional.scaled_dot_product_attention
    p.undo.callback(setattr, functional, "scaled_dot_product_attention", fused)
    functional.scaled_dot_product_attention = lambda q, *more, **named: fused(change(q), *more, **named)


def in_update(p: Plant, change: Change) -> None:
    """What was kept before is given back changed by the cache."""
    p.style, update = "cache of one's own", DynamicLayer.update

    def given_back(self: Any, keys: Tensor, *more: Any, **named: Any) -> Any:
        all_keys, values = update(self, keys, *more, **named)
        kept = all_keys.shape[2] - keys.shape[2]
        return torch.cat((change(all_keys[:, :, :kept]), all_keys[:, :, kept:]), 2), values

    p.undo.callback(setattr, DynamicLayer, "update", update)
    DynamicLayer.update = given_back  # type: ignore[method-assign]


# ---- tables, positions, and what is stored ---------------------------------------------------------------------------


def some_tables(p: Plant, change: Callable[[Tensor, Tensor], Any]) -> None:
    """Tables changed where they are made, or where each attention takes them."""
    p.tables(lambda cos, sin, at: change(cos, sin), p.pick(None, slice(None)))


def on_tables(p: Plant, of_cos: Change, of_sin: Change) -> None:
    some_tables(p, lambda cos, sin: (of_cos(cos), of_sin(sin)))


def still_pairs(p: Plant, pairs: Iterable[int]) -> None:
    columns = [column for pair in pairs for column in p.columns(pair)]

    def change(cos: Tensor, sin: Tensor) -> Any:
        cos, sin = cos.clone(), sin.clone()
        cos[..., columns], sin[..., columns] = 1.0, 0.0
        return cos, sin

    some_tables(p, change)


def pairs_exchanged(p: Plant, *pairs: int) -> None:
    one, two = (torch.tensor(p.columns(i)) for i in pairs or p.draw.sample(range(p.pairs), 2))

    def change(cos: Tensor, sin: Tensor) -> Any:
        order = torch.arange(cos.shape[-1])
        order[one], order[two] = two, one
        return cos[..., order], sin[..., order]

    some_tables(p, change)


def pair_backwards(p: Plant) -> None:
    columns = torch.tensor(p.columns(p.draw.randrange(p.pairs)))
    on_tables(p, same, lambda sin: torch.where(torch.isin(torch.arange(sin.shape[-1]), columns), -sin, sin))


def pair_faster(p: Plant, angle: float) -> None:
    columns = p.columns(p.draw.randrange(p.pairs))

    def change(cos: Tensor, sin: Tensor, at: Tensor) -> Any:
        wheel = torch.complex(cos[..., columns], sin[..., columns]) * torch.exp(1j * angle * at)[..., None]
        cos, sin = cos.clone(), sin.clone()
        cos[..., columns], sin[..., columns] = wheel.real, wheel.imag
        return cos, sin

    p.tables(change)


def pair_s_frequency(p: Plant, by: float) -> None:
    pair = p.draw.randrange(p.pairs)
    p.frequencies(lambda f: torch.where(torch.arange(len(f)) == pair, f * by, f))


def layer_late(p: Plant) -> None:
    layer = p.draw.randrange(len(p.attentions))
    p.tables(lambda cos, sin, at: (cos.roll(1, 1), sin.roll(1, 1)), slice(layer, layer + 1))


def low_angles(p: Plant, low: torch.dtype) -> None:
    def change(cos: Tensor, sin: Tensor, at: Tensor) -> Any:
        cos, sin, angles = cos.clone(), sin.clone(), (at[..., None] * p.step.angle()).to(low).float()
        for pair in range(p.pairs):
            cos[..., p.columns(pair)], sin[..., p.columns(pair)] = (
                f(angles[..., [pair]]) for f in (torch.cos, torch.sin)
            )
        return cos, sin

    p.tables(change)


def row_times(at: Tensor, row: int, by: int) -> Tensor:
    return torch.where(torch.arange(len(at))[:, None] == row, at * by, at)


def step_moved(at: Tensor, n: int, by: int) -> Tensor:
    return at + by * (at.shape[1] == 1) * (at >= n)


def chunk_moved(at: Tensor, n: int, by: int) -> Tensor:
    return at + by * (at.shape[1] > 1) * (at[:, :1] >= n)


def halved_behind_padding(at: Tensor, mask: Any) -> Tensor:
    if not isinstance(mask, Tensor) or mask.ndim != 2 or bool(mask.all()):
        return at
    return (mask[:, -at.shape[1] :].cumsum(-1) // 2).to(at.dtype)


def scale_edited(p: Plant, by: float) -> None:
    p.style = "attribute edited"
    for attention in p.attentions:
        attention.scaling = attention.scaling * by


def scale_in_decoding(p: Plant, by: float) -> None:
    p.style = "attention hook"

    def around(module: Any, args: Any, kwargs: Any) -> None:
        tokens = (args[0] if args else kwargs["hidden_states"]).shape[1]
        module.scaling = own * (by if tokens == 1 else 1.0)

    for attention in p.attentions:
        own = attention.scaling
        attention.register_forward_pre_hook(around, with_kwargs=True)


def attention_factor(p: Plant, change: Callable[[float], float]) -> None:
    p.style = "attribute edited"
    for name in [n for n in vars(p.rotary) if n.endswith("attention_scaling")]:
        setattr(p.rotary, name, change(getattr(p.rotary, name)))


def never_reset(p: Plant) -> None:
    p.style = "attribute edited"
    p.rotary.original_max_seq_len = 0


def rebuilt(p: Plant, **rope: Any) -> None:
    """A rotary module of the same class, built from an edited copy of the config."""
    p.style, config = "rotary module rebuilt", copy.deepcopy(p.model.config)
    config.rope_parameters.update(rope)
    p.replace_rotary(type(p.rotary)(config))


def switch_at(p: Plant, length: int) -> None:
    """The rotary module alone reads another trained length."""
    p.style, p.rotary.config = "config edited", copy.deepcopy(p.model.config)
    p.rotary.config.rope_parameters["original_max_position_embeddings"] = length


# ---- only backwards --------------------------------------------------------------------------------------------------


class Fused(torch.autograd.Function):
    """A rotation with a backward of its own, as fused kernels have it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Any, backward: Any) -> Tensor:
        ctx.backward_of = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.backward_of(grads[0]), None, None


def backwards(p: Plant, change: Change = same, of_forward: bool = False, kept: Change = same) -> None:
    """The gradient changed: ``change`` of the right one, or the forward's rotation in place of its transpose, or by
    what is ``kept`` of the tables."""

    def wrong(turn: Turn, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, see: See) -> Any:
        def turned(one: Any, which: int) -> Tensor:
            return turn(*(one if i == which else x.detach() for i, x in enumerate((q, k))), cos, sin)[which]

        def gradient(g: Tensor, which: int) -> Tensor:
            if of_forward:
                return turned(g, which)
            with torch.enable_grad():
                x = (q, k)[which].detach().requires_grad_()
                again = turn(
                    *(x if i == which else other.detach() for i, other in enumerate((q, k))), kept(cos), kept(sin)
                )
                return change(torch.autograd.grad(again[which], x, g)[0])

        return tuple(
            Fused.apply(x, lambda x, i=i: turned(x, i), lambda g, i=i: gradient(g, i)) for i, x in enumerate((q, k))
        )

    p.turn(wrong)


def hooked(change: Change) -> Wrong:
    """The gradient changed behind the rotation, where nothing else of the call shows it."""

    def listening(x: Tensor) -> Tensor:
        x = x.clone()
        if x.requires_grad:
            x.register_hook(change)
        return x

    return after(listening, listening)


def one_negated(k: Tensor) -> Tensor:
    return torch.cat((-k[..., :1], k[..., 1:]), -1)


def half_zero(g: Tensor) -> Tensor:
    return torch.cat((torch.zeros_like(g[..., : g.shape[-1] // 2]), g[..., g.shape[-1] // 2 :]), -1)


# ---- the table -------------------------------------------------------------------------------------------------------


def one_rope(t: Type) -> bool:
    """Whether the config's rope parameters are flat, and all that its module is built from."""
    return t.model_type not in ("gemma3_text", "olmo3", "modernbert", "gptj", "minimax_m2")


def stored(t: Type) -> bool:
    """Whether the module holds its frequencies, the same at every length."""
    return t.rope not in ("dynamic", "longrope") and t.model_type != "gptj"


def ropes(*names: str) -> Callable[[Type], bool]:
    return lambda t: t.rope in names and one_rope(t)


def plain(t: Type) -> bool:
    return stored(t) and one_rope(t) and t.rope != "yarn"


def causal(t: Type) -> bool:
    return t.causal


def not_of(*names: str) -> Callable[[Type], bool]:
    return lambda t: t.causal and t.model_type not in names


@dataclass(frozen=True)
class Kind:
    """``label``: what a good diagnosis calls it, one of these or another; ``put`` does it to a model; ``only``: the
    types that can have it."""

    label: str
    put: Callable[[Plant], None]
    only: Callable[[Type], bool] = lambda t: True


CACHES, ROWS = (1, 9, 20, 33, 64), (20, 40, 64, 100, 128)
KINDS: dict[str, Kind] = {
    # size and angle
    "factor on q": Kind("attention factor", lambda p: p.turn(after(times(factor(p)), same))),
    "factor on k": Kind("attention factor", lambda p: p.turn(after(same, times(factor(p))))),
    "factor on q and k": Kind("attention factor", lambda p: p.turn(after(*[times(factor(p))] * 2))),
    "factor on one pair": Kind("one pair louder", lambda p: p.turn(on_some(p, of_pair(p, factor(p))))),
    "factor on one head": Kind(
        "one head louder or attention factor", lambda p: of_head(p, on_some(p, times(factor(p))))
    ),
    "factor in one layer": Kind("attention factor", lambda p: of_layer(p, on_some(p, times(factor(p))))),
    "factor on the tables": Kind("attention factor", lambda p: on_tables(p, *[times(factor(p))] * 2)),
    "factor on the cosines": Kind("attention factor", lambda p: on_tables(p, times(factor(p)), same)),
    "softmax scale": Kind("attention factor", lambda p: scale_edited(p, factor(p)), not_of("falcon", "stablelm")),
    "attention factor dropped": Kind(
        "attention factor", lambda p: attention_factor(p, lambda f: 1.0), ropes("yarn", "longrope")
    ),
    "attention factor twice": Kind(
        "attention factor", lambda p: attention_factor(p, lambda f: f * f), ropes("yarn", "longrope")
    ),
    "angle offset of one pair": Kind(
        "angle of one pair", lambda p: p.turn(on_one(p, of_pair(p, cmath.rect(1.0, p.draw.uniform(0.3, 3.0)))))
    ),
    "keys one position late": Kind("positions", lambda p: p.turn(one_late(p))),
    # which pairs turn, how far, and which way
    "frequency of one pair": Kind(
        "frequency of one pair", lambda p: pair_s_frequency(p, p.pick(0.5, 0.9, 1.1, 2.0)), stored
    ),
    "one pair faster": Kind("frequency of one pair", lambda p: pair_faster(p, p.draw.uniform(0.01, 0.5))),
    "pairs exchanged": Kind("pairs exchanged or frequencies in reverse order", pairs_exchanged),
    "frequencies reversed": Kind("frequencies in reverse order", lambda p: p.frequencies(lambda f: f.flip(0)), stored),
    "wrong pairing": Kind("layout", lambda p: p.turn(other_pairs(p))),
    "sign": Kind("sign", lambda p: on_tables(p, same, torch.neg)),
    "sign of k": Kind("sign of k", lambda p: p.turn(keys_backwards)),
    "sign of one pair": Kind("sign", pair_backwards),
    "cos and sin exchanged": Kind("cos and sin exchanged", lambda p: some_tables(p, lambda cos, sin: (sin, cos))),
    "nothing turns": Kind("not rotated", lambda p: p.turn(still)),
    "q alone turns": Kind("q only", lambda p: p.turn(split(right, still))),
    "k alone turns": Kind("k only", lambda p: p.turn(split(still, right))),
    "a layer does not turn": Kind("not rotated", lambda p: of_layer(p, still)),
    "a layer one token late": Kind("positions", layer_late),
    "a head does not turn": Kind("not rotated or q only or k only", lambda p: of_head(p, still)),
    "a pair does not turn": Kind("not rotated", lambda p: still_pairs(p, [p.draw.randrange(p.pairs)])),
    "half of the pairs turn": Kind("rotary width", lambda p: still_pairs(p, range(p.pairs // 2, p.pairs))),
    "turned twice": Kind("rotated twice", lambda p: p.turn(twice)),
    "keys turned twice": Kind("rotated twice", lambda p: p.turn(split(right, twice))),
    "values turned too": Kind("values rotated", values_turned, not_of("gpt_oss")),
    # in some rows, tokens and calls
    "one row": Kind(
        "one row of a batch or some rows of a batch", lambda p: where(p, lambda x, n: index(x, 0) == n, p.pick(1, 2, 3))
    ),
    "the last row": Kind(
        "one row of a batch or some rows of a batch",
        lambda p: where(p, lambda x: index(x, 0) == max(x.shape[0] - 1, 1)),
    ),
    "batches of three and more": Kind("only in large batches", lambda p: when(p, lambda q, see: q.shape[0] > 2)),
    "long calls": Kind(
        "only in long calls", lambda p: when(p, lambda q, see, n: q.shape[2] > n, p.pick(24, 32, 50, 64, 100, 128))
    ),
    "the last block": Kind(
        "only the last block",
        lambda p: where(p, lambda x, n: index(x, 2) >= x.shape[2] // n * n, p.pick(5, 8, 16, 32)),
    ),
    "tokens from one on": Kind(
        "only from one token on", lambda p: where(p, lambda x, n: index(x, 2) >= n, p.pick(17, 33, 64, 100))
    ),
    "decoding": Kind("only in decoding", lambda p: with_cache(p, p.pick(*CACHES), True), causal),
    "chunks": Kind("only in chunks", lambda p: with_cache(p, p.pick(*CACHES[:4]), False), causal),
    "stale cached key": Kind(
        "stale key in the cache or positions, only in decoding", lambda p: stale_key(p, p.pick(*CACHES)), causal
    ),
    "keys in the cache": Kind(
        "only in keys that were kept",
        lambda p: keys_in_cache(p, p.pick(*CACHES)),
        not_of("deepseek_v2", "deepseek_v3"),
    ),
    "every nth call": Kind("only in some calls", lambda p: every(p, p.pick(2, 3, 5))),
    "after a long call": Kind(
        "state of a longer call or only in some calls", lambda p: sticky(p, p.pick(24, 40, 64, 100))
    ),
    "under autocast": Kind("only under autocast", lambda p: when(p, lambda q, see: torch.is_autocast_enabled("cpu"))),
    "in grad mode": Kind("only in grad mode", lambda p: when(p, lambda q, see: torch.is_grad_enabled())),
    # positions
    "positions jump": Kind(
        "positions",
        lambda p: p.positions(lambda at, n, by: at + by * (at >= n), p.pick(1, 5, 17, 40, 100), p.pick(1, 2, 7)),
    ),
    "positions divided": Kind("positions", lambda p: p.positions(lambda at, by: at // by, p.pick(2, 3, 4))),
    "positions of one row": Kind("positions", lambda p: p.positions(row_times, p.pick(1, 2, 3), p.pick(2, 3))),
    "positions of the first row": Kind("positions", lambda p: p.positions(lambda at: at[:1].expand_as(at))),
    "positions behind padding": Kind("positions", lambda p: p.text(halved_behind_padding), causal),
    "positions restart": Kind(
        "positions restart with the cache", lambda p: p.positions(lambda at: at - at[:, :1]), causal
    ),
    "positions in decoding": Kind(
        "positions", lambda p: p.positions(step_moved, p.pick(*CACHES), p.pick(-1, 1, 3)), causal
    ),
    "positions in chunks": Kind(
        "positions", lambda p: p.positions(chunk_moved, p.pick(*CACHES[:4]), p.pick(-1, 1, 3)), causal
    ),
    "positions in int8": Kind("positions", lambda p: p.positions(rounded(torch.int8), text=False)),
    "table clamped": Kind(
        "table of another length or positions",
        lambda p: p.positions(lambda at, n: at.clamp(max=n), p.pick(*ROWS), text=False),
    ),
    "table wrapped": Kind(
        "table of another length or positions", lambda p: p.positions(lambda at, n: at % n, p.pick(*ROWS), text=False)
    ),
    # what is stored, and in which precision
    "base": Kind(
        "base or frequencies", lambda p: p.frequencies(lambda f, by: f**by, p.pick(0.5, 0.95, 1.02, 1.25, 1.5)), stored
    ),
    "built with another base": Kind("base", lambda p: rebuilt(p, rope_theta=p.pick(2e3, 2e4, 5e5)), plain),
    "scaling dropped": Kind(
        "scaling", lambda p: rebuilt(p, rope_type="default"), ropes("linear", "yarn", "llama3", "longrope")
    ),
    "scaling of another factor": Kind(
        "scaling", lambda p: rebuilt(p, factor=p.pick(1.5, 6.0, 8.0)), ropes("linear", "yarn", "dynamic")
    ),
    "frequencies in low precision": Kind("frequencies rounded", lambda p: p.frequencies(rounded(p.pick(*LOW))), stored),
    "tables in bfloat16": Kind("half precision", lambda p: on_tables(p, *[rounded(torch.bfloat16)] * 2)),
    "angles in low precision": Kind("half precision", lambda p: low_angles(p, p.pick(*LOW)), plain),
    "product in low precision": Kind("half precision", lambda p: p.turn(after(*[rounded(p.pick(*LOW))] * 2))),
    "dynamic frequencies kept": Kind("state of a longer call", never_reset, ropes("dynamic")),
    "LongRoPE switches elsewhere": Kind(
        "length of the switch", lambda p: switch_at(p, SHORT + p.pick(-30, -5, -1, 1, 5, 30)), ropes("longrope")
    ),
    "LongRoPE stays short": Kind("length of the switch", lambda p: switch_at(p, 100 * LENGTH), ropes("longrope")),
    # only backwards
    "no backward": Kind("no gradient", lambda p: backwards(p, torch.zeros_like)),
    "backward with the forward's sign": Kind("sign of the gradient", lambda p: backwards(p, of_forward=True)),
    "backward with a factor": Kind("factor of the gradient", lambda p: backwards(p, times(factor(p)))),
    "backward of half of the channels": Kind(
        "half of the gradient or no gradient or gradient of some channels", lambda p: backwards(p, half_zero)
    ),
    "backward in bfloat16": Kind("gradient in half precision", lambda p: backwards(p, rounded(torch.bfloat16))),
}

# Those that hide from one way of looking, each with what it is called.
HIDDEN: dict[str, Kind] = {
    "gradients negated by a hook": Kind("factor of the gradient", lambda p: p.turn(hooked(torch.neg))),
    "keys detached": Kind("no gradient", lambda p: p.turn(after(same, torch.detach))),
    "queries longer in long calls": Kind(
        "attention factor, only in long calls",
        lambda p: when(p, lambda q, see: q.shape[2] > 60, wrong=after(times(1.2), same)),
    ),
    "keys cut off in batches": Kind(
        "no rotation, only in large batches",
        lambda p: when(p, lambda q, see: q.shape[0] > 1, wrong=after(same, lambda k: k.clamp(-1, 1))),
    ),
    "a channel negated": Kind("two angles in a pair", lambda p: p.turn(after(same, one_negated))),
    "cosines and sines exchanged in a layer": Kind(
        "cos and sin exchanged", lambda p: of_layer(p, lambda turn, q, k, cos, sin, see: turn(q, k, sin, cos))
    ),
    "first keys at rest": Kind(
        "not rotated of k", lambda p: where(p, lambda x: index(x, 2) < 4, wrong=split(right, still))
    ),
    "frequencies negated": Kind("sign", lambda p: p.frequencies(torch.neg), stored),
    "tables in float16": Kind("half precision", lambda p: on_tables(p, *[rounded(torch.float16)] * 2)),
    "longer after a long call": Kind("state of a longer call", lambda p: sticky(p, 100, after(*[times(1.2)] * 2))),
    "keys cut off": Kind("no rotation", lambda p: p.turn(after(same, lambda k: k.clamp(-1, 1)))),
    "heads of keys in another order": Kind("heads exchanged of k", lambda p: p.turn(after(same, lambda k: k.flip(1)))),
    "a kept key twice": Kind(
        "no rotation, only in keys that were kept",
        lambda p: kept_changed(p, lambda k: torch.where(index(k, 2) == 1, k.roll(1, 2), k)),
    ),
    "turned twice in training": Kind(
        "rotated twice, only in training", lambda p: when(p, lambda q, see: p.model.training, wrong=twice)
    ),
    "keys rounded in the cache": Kind(
        "half precision, only in keys that were kept", lambda p: kept_changed(p, rounded(torch.bfloat16))
    ),
    "keys rounded by a cache of one's own": Kind(
        "half precision, only in keys that were kept", lambda p: in_update(p, rounded(torch.bfloat16))
    ),
    "queries longer in the fused attention": Kind("attention factor", lambda p: in_fused(p, times(1.2))),
    "tables rounded under autocast": Kind(
        "half precision, only under autocast", lambda p: on_tables(p, *[under_autocast(rounded(torch.bfloat16))] * 2)
    ),
    "decoding under autocast": Kind(
        "rotated twice, only in decoding",
        lambda p: when(p, lambda q, see: q.shape[2] == 1 and torch.is_autocast_enabled("cpu"), wrong=twice),
    ),
    "slow pairs exchanged": Kind("pairs exchanged", lambda p: pairs_exchanged(p, p.pairs - 2, p.pairs - 1)),
    "keys of all rows but one detached": Kind(
        "half of the gradient, only in some rows of a batch",
        lambda p: p.turn(after(same, lambda k: torch.cat((k[:1], k[1:].detach())))),
    ),
    "backward with the tables of the first row": Kind(
        "angles of the gradient, only in some rows of a batch",
        lambda p: backwards(p, kept=lambda table: table[:1].expand_as(table)),
    ),
    "turned twice in a static cache": Kind(
        "rotated twice, only through a static cache",
        lambda p: when(p, lambda q, see: see.static and see.cached > 0, of_layer=True, wrong=twice),
        causal,
    ),
    "rows from the sixth on": Kind(
        "not rotated, only in some rows of a batch",
        lambda p: where(p, lambda x: index(x, 0) > 4, wrong=still),
    ),
    "positions of embeddings": Kind(
        "positions, only with embeddings in place of tokens",
        lambda p: p.text(lambda at, given: at // 2 if isinstance(given, Tensor) and given.ndim == 3 else at),
        causal,
    ),
    "positions of several texts": Kind(
        "positions, only with several texts in a row",
        lambda p: p.text(lambda at, given: at // 2 if isinstance(given, Tensor) and given.ndim == 4 else at),
        causal,
    ),
    "scale in decoding": Kind(
        "attention factor, only in decoding",
        lambda p: scale_in_decoding(p, 1.3),
        not_of("falcon", "stablelm"),
    ),
}


@dataclass(frozen=True)
class Fault:
    """A fault of a family: ``planted()`` gives the model that has it, ``healthy()`` the same without."""

    seed: int
    type: str
    kind: str
    layers: int

    @property
    def name(self) -> str:
        return (KINDS | HIDDEN)[self.kind].label

    def healthy(self) -> Any:
        return TYPES[self.type].build(self.layers, self.seed)

    @contextlib.contextmanager
    def planted(self) -> Iterator[Plant]:
        """The fault's model, new each time, in a `Plant`; what was changed outside of it is put back."""
        with contextlib.ExitStack() as undo:
            with torch.no_grad():
                plant = Plant(self.healthy(), TYPES[self.type], random.Random(self.seed), undo)
                (KINDS | HIDDEN)[self.kind].put(plant)
            yield plant


def fault(seed: int) -> Fault:
    """A fault drawn by a seed; as many seeds in a row as there are kinds have each kind once.

    Those that hide are drawn from seed 90000 on, so that the seeds before keep their faults.
    """
    kinds = KINDS if seed < 90_000 else KINDS | HIDDEN
    draw, name = random.Random(f"fault {seed}"), list(kinds)[seed % len(kinds)]
    family = draw.choice([t for t in TYPES if kinds[name].only(TYPES[t])])
    return Fault(seed, family, name, draw.choice((2, 3)))


if __name__ == "__main__":
    from .random_measured import main

    main()
