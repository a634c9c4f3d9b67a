"""What the doctor says of `random_faults`, of the same models without a fault, and of code that only looks odd.

cd tests && python -m doctor.random_faults 400 --out rows.jsonl
"""

import argparse
import contextlib
import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

import phasor
from cache_argument import given, returned

from .random_faults import KINDS, Fault, fault, right
from .random_planting import Plant
from .random_types import LENGTH, SHORT, TYPES

VISIBLE = 1e-3
ROUNDED = 0.1  # of calls in bfloat16, where equal formulas may differ

# ---- how visible a fault is ------------------------------------------------------------------------------------------


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(3, 96, (rows, length), generator=torch.Generator().manual_seed(length))


def whole(rows: int, length: int) -> Callable[[Any], Tensor]:
    return lambda model: model(input_ids=tokens(rows, length)).logits


def padded(left: bool) -> Callable[[Any], Tensor]:
    def run(model: Any) -> Tensor:
        lengths = torch.tensor([30, 17, 9, 25])[:, None]
        at = torch.arange(30)
        mask = at >= 30 - lengths if left else at < lengths
        return model(input_ids=tokens(4, 30), attention_mask=mask.long()).logits[mask]

    return run


def own_positions(model: Any) -> Tensor:
    at = torch.arange(24) + torch.tensor([0, 5, 40])[:, None] * (torch.arange(24) > 9)
    return model(input_ids=tokens(3, 24), position_ids=at).logits


def cached(*pieces: int, rows: int = 1) -> Callable[[Any], Tensor]:
    """The logits of all pieces, each after the cache of those before."""

    def run(model: Any) -> Tensor:
        cache, logits = None, list[Tensor]()
        for ids in tokens(rows, sum(pieces)).split(pieces, 1):
            out = model(input_ids=ids, use_cache=True, **(given(cache) if cache is not None else {}))
            cache, logits = returned(out), [*logits, out.logits]
        return torch.cat(logits, 1)

    return run


def embedded(model: Any) -> Tensor:
    return model(inputs_embeds=model.get_input_embeddings()(tokens(1, 24))).logits


def several_texts(model: Any) -> Tensor:
    """Two in a row, with a mask of four axes."""
    which, at = torch.arange(24) // 12, torch.arange(24) % 12
    seen = (which[:, None] == which) & torch.ones(24, 24, dtype=torch.bool).tril()
    mask = torch.zeros(1, 1, 24, 24).masked_fill(~seen, torch.finfo(torch.float32).min)
    return model(input_ids=tokens(1, 24), position_ids=at[None], attention_mask=mask).logits


def static_cache(model: Any) -> Tensor:
    cache = transformers.StaticCache(config=model.config, max_cache_len=32)
    pieces = tokens(1, 24).split((16, 6, 1, 1), 1)
    return torch.cat([model(input_ids=ids, use_cache=True, **given(cache)).logits for ids in pieces], 1)


def repeated(model: Any) -> Tensor:
    return torch.cat([whole(1, 12)(model) for _ in range(6)])


def after_long(model: Any) -> Tensor:
    whole(1, LENGTH - 10)(model)
    return whole(1, 12)(model)


def under_autocast(model: Any) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return whole(1, 24)(model).float()


def in_grad_mode(model: Any) -> Tensor:
    with torch.enable_grad():
        return whole(1, 24)(model).detach()


def gradients(model: Any) -> Tensor:
    """Of the embedding and of what makes q and k, each by its own size."""
    with torch.enable_grad():
        loss = (whole(2, 24)(model).log_softmax(-1)[..., 3]).sum()
        chosen = [w for name, w in model.named_parameters() if w.ndim > 1 and ("att" in name or "emb" in name)]
        found = torch.autograd.grad(loss, chosen, allow_unused=True)
    return torch.cat([g.flatten() / g.std().clamp(min=1e-9) for g in found if g is not None])


ALWAYS: dict[str, Callable[[Any], Tensor]] = {
    "short": whole(1, 12),
    "long": whole(1, LENGTH - 10),
    "batch of 4": whole(4, 24),
    "batch of 8": whole(8, 12),
    "embeddings": embedded,
    "padded left": padded(True),
    "padded right": padded(False),
    "rows of own positions": own_positions,
    "beyond the declared length": whole(1, LENGTH + 40),
    "repeated": repeated,
    "after a long call": after_long,
    "autocast": under_autocast,
    "grad mode": in_grad_mode,
    "gradients": gradients,
}
WITH_CACHE: dict[str, Callable[[Any], Tensor]] = {
    "decoding after 8": cached(8, 1, 1, 1),
    "decoding after 40": cached(40, 1, 1, 1),
    "decoding after 100": cached(100, 1, 1, 1),
    "decoding over the trained length": cached(SHORT - 6, *[1] * 12),
    "chunks": cached(24, 16, 16, 16),
    "cached batch of 3": cached(16, 8, 1, 1, rows=3),
    "several texts": several_texts,
    "static cache": static_cache,
}


CALLS = ALWAYS | WITH_CACHE


def moved(one: Fault, call: str) -> float:
    """By how many of their standard deviations a fault moves the logits, or the gradients, of a call of a new model."""
    with torch.no_grad():
        sound = CALLS[call](one.healthy())
        with one.planted() as plant:
            faulty = CALLS[call](plant.model)
    if faulty.shape != sound.shape:  # a parameter without any gradient
        return float("inf")
    return float((faulty - sound).abs().max() / sound.std())


def visible(one: Fault) -> dict[str, float]:
    """The calls in which a fault is visible."""
    calls = CALLS if TYPES[one.type].causal else ALWAYS
    sizes = {call: moved(one, call) for call in calls}
    return {call: size for call, size in sizes.items() if not size <= (ROUNDED if call == "autocast" else VISIBLE)}


# ---- what the doctor says --------------------------------------------------------------------------------------------


def outcome(report: Any, name: str) -> str:
    if report.verdict != "wrong":
        return report.verdict
    if any(word in cause for word in name.split(" or ") for cause in report.causes):
        return "named"
    laws = ("not ", "unknown")  # a law that the logits do not keep says that something is wrong, and not what
    unnamed = all(cause.startswith(laws) and cause != "not rotated" for cause in report.causes)
    return "no name" if unnamed else "other name"


def diagnosed(model: Any, name: str = "") -> dict[str, Any]:
    begun = time.perf_counter()  # noqa: TID251 - measured and printed, not judged
    try:
        report = phasor.diagnose(model)
        said = {"outcome": outcome(report, name), "verdict": report.verdict, "causes": list(report.causes)}
    except Exception as error:
        said = {"outcome": "raised", "verdict": "raised", "causes": [f"{type(error).__name__}: {str(error)[:200]}"]}
    return {**said, "seconds": round(time.perf_counter() - begun, 3)}  # noqa: TID251 - likewise


def of_fault(seed: int) -> dict[str, Any]:
    """One row: the fault, in what it is visible, and what was said of a model that has it and ran nothing before."""
    one = fault(seed)
    row = {"seed": seed, "type": one.type, "kind": one.kind, "layers": one.layers, "name": one.name}
    try:
        seen = visible(one)
        with one.planted() as plant:
            return {**row, "style": plant.style, "visible": seen, **diagnosed(plant.model, one.name + plant.drawn)}
    except Exception as error:
        return {**row, "style": "", "visible": {}, "outcome": "failed", "causes": [f"{type(error).__name__}: {error}"]}


# ---- nothing wrong ---------------------------------------------------------------------------------------------------

HARMLESS: dict[str, Callable[[Plant], None]] = {
    "as it is built": lambda p: None,
    "own rotation": lambda p: p.turn(lambda turn, q, k, cos, sin, see: _by_complex_numbers(p, q, k, cos, sin)),
    "rotation wrapped": lambda p: p.turn(right),
    "tables wrapped": lambda p: p.tables(lambda cos, sin, at: (cos, sin)),
    "tables in polar form": lambda p: p.tables(_polar),
    "attention hooked": lambda p: p.tables(lambda cos, sin, at: (cos.clone(), sin.clone()), slice(None)),
    "positions wrapped": lambda p: p.positions(lambda at: at.clone()),
    "positions by the mask": lambda p: p.text(_by_mask),
}


def _polar(cos: Tensor, sin: Tensor, at: Any) -> Any:
    wheel = torch.complex(cos.double(), sin.double())
    wheel = torch.polar(wheel.abs(), wheel.angle())
    return wheel.real.to(cos.dtype), wheel.imag.to(sin.dtype)


def _by_mask(at: Tensor, mask: Any) -> Tensor:
    """Positions that count what is no padding, as generation gives them."""
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return at
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -at.shape[1] :]


def _by_complex_numbers(p: Plant, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    first = [p.columns(pair)[0] for pair in range(p.pairs)]
    wheel = torch.complex(cos[..., first].float(), sin[..., first].float())[:, None]
    wheel = wheel.conj() if p.kind.model_type == "nanochat" else wheel
    return tuple(p.written(p.planes(x) * wheel, x) for x in (q, k))


def of_healthy(case: tuple[str, str]) -> dict[str, Any]:
    family, way = case
    row = {"type": family, "kind": way}
    if way == "own rotation" and "deepseek_v3" in family:  # its rotation gives the pairs in another order
        way = "rotation wrapped"
    with contextlib.ExitStack() as undo, torch.no_grad():
        plant = Plant(TYPES[family].build(2), TYPES[family], random.Random(f"{family} {way}"), undo)
        HARMLESS[way](plant)
        return {**row, "style": plant.style, **diagnosed(plant.model)}


def quiet() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()


# ---- the table -------------------------------------------------------------------------------------------------------

OUTCOMES = ("right", "not shown", "named", "other name", "no name", "raised")


def first_seen(row: dict[str, Any]) -> str:
    """The most ordinary call in which a fault is visible."""
    return next((name for name in CALLS if name in row["visible"]), "nothing")


def table(rows: list[dict[str, Any]], title: str, of: Callable[[dict[str, Any]], str]) -> None:
    print(f"\n{title:44}{'all':>6}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES))
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    for name, group in [*groups.items(), ("all", rows)]:
        counts = Counter(row["outcome"] for row in group)
        print(f"{name:44}{len(group):>6}" + "".join(f"{counts[outcome] or '':>12}" for outcome in OUTCOMES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, required=True, help="rows as JSON lines")
    given_ = parser.parse_args()
    healthy = [
        (family, way) for family, t in TYPES.items() for way in HARMLESS if t.causal or way != "positions by the mask"
    ]
    quiet()
    rows, sound = list[dict[str, Any]](), list[dict[str, Any]]()
    with given_.out.open("w") as out:
        seeds = range(given_.first, given_.first + given_.seeds)
        for kept, found in ((rows, map(of_fault, seeds)), (sound, map(of_healthy, healthy))):
            for row in found:
                kept.append(row)
                print(json.dumps(row), file=out, flush=True)
    failed = [row for row in rows if row["outcome"] == "failed"]
    seen = [row for row in rows if row["visible"] and row not in failed]
    print(f"{len(rows)} faults of {len(KINDS)} kinds: {len(seen)} visible, {len(failed)} not made")
    table(seen, "kind", lambda row: row["kind"])
    table(seen, "style", lambda row: row["style"])
    table(seen, "type", lambda row: row["type"])
    table(seen, "first visible in", first_seen)
    table(sound, "no fault", lambda row: row["kind"])
    seconds = sorted(row["seconds"] for row in (*seen, *sound))
    print(f"\nseconds a diagnosis: median {seconds[len(seconds) // 2]:.2f}, longest {seconds[-1]:.2f}")
    for row in failed:
        print("not made:", row["seed"], row["type"], row["kind"], row["causes"])
