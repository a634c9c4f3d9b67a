"""What fits a memory: weights, keys and values, and what each engine keeps for itself, with the source of each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from phasor.support.number_text import size_text

from ..engines import EngineConfig, engine_of
from ..engines.serving import Reserve
from .amounts import LONGEST
from .kv import bits_of, stores
from .weights import Weights


@dataclass(frozen=True)
class Fit:
    """What one engine can hold in a memory.

    ``longest``: tokens of each of ``batch`` sequences that fit where every estimate is at its worst; ``at_best``: at
    its best; 0: none. ``slots``: sequences of ``length`` tokens, at worst; ``cache``: bytes of one; ``at``: both at
    another length. ``work``: what a pass takes, at best and at worst.
    """

    memory: int
    weights: Weights
    reserve: Reserve
    batch: int
    length: int
    longest: int
    at_best: int
    slots: int
    cache: int
    work: tuple[int, int]
    at: Callable[[int], tuple[int, int]] = field(repr=False, compare=False)

    @property
    def fits(self) -> bool:
        return self.slots >= self.batch

    @property
    def below(self) -> str:
        """What is said where not even the weights fit; empty where they do."""
        if self.weights.low <= self.reserve.usable:
            return ""
        return (
            f"memory of {size_text(self.memory)} is below the weights: the engine takes "
            f"{size_text(self.reserve.usable)} of it, and they need {self.weights.describe()}; take fewer bits "
            "(--weights-bits) or more devices (--tp)"
        )

    def describe(self) -> list[str]:
        worst = "any length" if self.longest >= LONGEST else f"{self.longest:,} tokens"
        best = "" if self.at_best == self.longest else f" (at best {self.at_best:,})"
        many = f" for each of {self.batch} sequences" if self.batch > 1 else ""
        held = f"{self.slots:,} of {self.length:,} tokens at once, {size_text(self.cache)} each"
        need = self.weights.high + self.work[1] + self.batch * self.cache
        work = f"; work {size_text(self.work[0])} to {size_text(self.work[1])}" if self.work[1] else ""
        much = f"{self.length:,} tokens need {size_text(need)}; fewer bits for cache (--dtype) or weights make room; "
        return [self.below] if self.below else [
            f"{'' if self.fits else much}longest: {worst}{best}{many}; {held}",
            f"weights {self.weights.describe()}{work}",
            f"of {size_text(self.memory)} the engine takes {size_text(self.reserve.usable)}: {self.reserve.source}",
        ]  # fmt: skip

    def table(self) -> list[str]:
        """What one sequence needs at 4,096 tokens, twice that and so on, and how many fit at once."""
        lengths = [4096 << i for i in range(18) if 4096 << i <= max(self.length, min(self.longest, LONGEST - 1))]
        rows = [(n, self.at(n)) for n in dict.fromkeys((*lengths, self.length))]
        return [f"{n:>11,} tokens  {size_text(size):>9}  {slots:>5,} at once" for n, (size, slots) in sorted(rows)]

    def to_dict(self) -> dict[str, Any]:
        names = ("memory", "length", "longest", "at_best", "slots", "cache", "work")
        weights, taken = [self.weights.low, self.weights.high], int(self.reserve.usable)
        return {**{name: getattr(self, name) for name in names}, "weights": weights, "usable": taken}


def fit(
    config: EngineConfig, engine: str, memory: int, weights: Weights, length: int, *, dtype: str = "bfloat16",
    tensor_parallel: int = 1, batch: int = 1, draft: EngineConfig | None = None,
) -> Fit:  # fmt: skip
    """What fits ``memory`` bytes on each of ``tensor_parallel`` devices; ``dtype`` of the cache as for `kv.memory`.

    ``draft``: a model that drafts tokens, whose keys and values stand beside; its weights are part of ``weights``.
    """
    serving = engine_of(engine).serving
    if serving.reserve is None:
        raise ValueError(f"what {engine} keeps of a memory is not known; state it as reserve= in the engine's Serving")
    reserve = serving.reserve(memory, tensor_parallel)
    own = Weights(weights.low // tensor_parallel, weights.high // tensor_parallel, weights.source)
    bits = bits_of(dtype, engine)
    kept = [one for model in (config, draft) if model for one in stores(model, engine, tensor_parallel, bits)]

    def cache(tokens: int) -> int:
        return sum(store.bytes_at(tokens, bits) for store in kept)

    def room(tokens: int, worst: bool) -> float:
        """Bytes for the cache beside weights and a pass over such a prompt."""
        taken = (own.high if worst else own.low) + work_of(config, reserve, tokens, tensor_parallel)[worst]
        return reserve.share * (reserve.usable - taken)

    def longest(worst: bool) -> int:
        page = serving.page
        return page * _largest(lambda n: batch * cache(n * page) <= room(n * page, worst), LONGEST // page)

    def at(tokens: int) -> tuple[int, int]:
        return cache(tokens), max(0, int(room(tokens, True) // max(cache(tokens), 1)))

    size, slots = at(length)
    return Fit(
        memory=memory, weights=own, reserve=reserve, batch=batch, length=length, longest=longest(True),
        at_best=longest(False), slots=slots, cache=size, at=at,
        work=work_of(config, reserve, length, tensor_parallel),
    )  # fmt: skip


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` for which it holds; 0 where it does for none. What fails at n fails beyond."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def work_of(config: EngineConfig, reserve: Reserve, length: int, tensor_parallel: int = 1) -> tuple[int, int]:
    """Activations of one pass and what stands beside them: from what must be alive at once to twice that.

    Alive at once: the residual stream twice, and the widest of queries, keys and values or the gated feed-forward; then
    logits in float32, of the last token, or in llama.cpp of the batch. vLLM measured 1.26 GiB for Llama 3 8B with 8,192
    tokens (vllm-project/vllm#10511), where this gives 0.77 to 1.55.
    """
    if reserve.tokens == 0:
        return int(reserve.low), int(reserve.high)
    text, model = config.text, config.model
    tokens = min(length, reserve.tokens or length)
    hidden = int(text.get("hidden_size") or 4096)
    inner = int(text.get("intermediate_size") or 4 * hidden)
    if experts := text.get("num_experts_per_tok"):
        inner = int(experts) * int(text.get("moe_intermediate_size") or inner)
    heads = model.num_heads + 2 * model.num_kv_heads
    head = next(iter(model.distinct)).head_dim if model.distinct else hidden // model.num_heads
    alive = tokens * reserve.width * (2 * hidden + max(3 * inner, heads * head) // tensor_parallel)
    logits = 4 * int(text.get("vocab_size") or 0) * (tokens if reserve.width == 4 else 1)
    pass_of = alive + logits
    return int(pass_of + reserve.low), int(2 * pass_of + reserve.high)
