"""A dictionary of rope parameters as engines take it: without a check, some keys read and others dropped."""

from collections.abc import Callable, Collection
from typing import Any

from ...models.reading.schemes import ORIGINAL
from ...rotary.scaling import Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

Rope = dict[str, Any]
YARN_KEYS = {
    "beta_fast": "beta_fast", "beta_slow": "beta_slow", "mscale": "mscale", "mscale_all_dim": "mscale_all_dim",
    "attention_factor": "attention", "truncate": "truncate",
}  # fmt: skip


def yarn(rope: Rope, reads: Collection[str] = tuple(YARN_KEYS)) -> YaRN:
    """YaRN with those of the optional keys that the engine ``reads``.

    >>> yarn({"factor": 4, "original_max_position_embeddings": 8, "truncate": False}, reads=("beta_fast",)).truncate
    True
    """
    given = {field: rope[key] for key, field in YARN_KEYS.items() if key in reads and rope.get(key) is not None}
    return YaRN(factor=float(need(rope, "factor")), original_max_position=int(need(rope, ORIGINAL)), **given)


def llama3(rope: Rope) -> Llama3:
    names = ("factor", "low_freq_factor", "high_freq_factor")
    return Llama3(**{name: float(need(rope, name)) for name in names}, original_max_position=int(need(rope, ORIGINAL)))


def need(rope: Rope, key: str) -> Any:
    """A key without which the engine does not start."""
    if rope.get(key) is None:
        raise ValueError(
            f"rope_parameters.{key} is missing, and {rope.get('rope_type')!r} rotation needs it; add it to the override"
        )
    return rope[key]


def always(long: bool, rope: Rope, declared: int | None, stated: float | None = None) -> LongRoPE:
    """LongRoPE that uses one list at every length; its factor is the one ``stated``, else that of the lengths."""
    values = tuple(float(v) for v in need(rope, "long_factor" if long else "short_factor"))
    original = int(need(rope, ORIGINAL))
    return LongRoPE(
        short_factor=values, long_factor=values, original_max_position=original,
        factor=(declared or original) / original, attention=stated, attention_short=stated,
    )  # fmt: skip


Forms = dict[str, Callable[[Rope], Scaling | None]]
PLAIN: Forms = {
    "default": lambda rope: None,
    "linear": lambda rope: Linear(float(need(rope, "factor"))),
    "yarn": yarn,
    "llama3": llama3,
    "proportional": lambda rope: Proportional(
        float(rope.get("partial_rotary_factor") or 1.0), float(rope.get("factor") or 1.0)
    ),
}
