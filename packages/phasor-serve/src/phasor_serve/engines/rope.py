"""Rope parameters as engines read them, and the model with the base and scaling that follow from them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from phasor import ModelRotary, RotarySpec
from phasor.models.reading.schemes import ORIGINAL
from phasor.scaling import Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

from .base import Flags, Rules
from .engine_config import EngineConfig

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
    values = {field: rope[key] for key, field in YARN_KEYS.items() if key in reads and rope.get(key) is not None}
    return YaRN(factor=float(need(rope, "factor")), original_max_position=int(need(rope, ORIGINAL)), **values)


def others(reads: Collection[str]) -> list[str]:
    """The optional keys of YaRN that are not among those that an engine ``reads``."""
    return [key for key in YARN_KEYS if key not in reads]


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


def with_mscales(rope: Rope) -> Rope:
    """A LongRoPE's stated factor on cos and sin under the names that vLLM and SGLang read; else as it is."""
    stated = rope.get("attention_factor") if rope.get("rope_type") == "longrope" else None
    return rope if stated is None else {**rope, "long_mscale": stated, "short_mscale": stated}


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


def share_alone(rope: Rope, rules: Rules, source: str, run: bool = False) -> Scaling | None:
    """The proportional rotation of an engine that reads its share of the pairs and not its factor."""
    if rope.get("factor") not in (None, 1):
        rules.add("proportional: factor is not read", source, run)
    return PLAIN["proportional"]({**rope, "factor": 1.0})


def refuse_longer(flags: Flags, flag: str, taken: int | None, engine: str, variable: str) -> None:
    """Raise where more positions are asked for than ``taken`` from the config, unless a variable allows it."""
    asked, allowed = flags.get(flag), flags.get(variable) in ("1", "true", "True")
    if asked is not None and taken is not None and asked > taken and not allowed:
        raise ValueError(
            f"{flag} is {asked}, above the {taken} that {engine} takes from the config; override "
            f"max_position_embeddings as well, or set {variable}=1"
        )


BaseAndScaling = tuple[float, Scaling | None]
Rotation = Callable[[str], BaseAndScaling]  # of one kind of layer


def rotated(
    config: EngineConfig, rotation: Rotation, ropes: Mapping[str, Rope] | None = None, share: float = 1.0
) -> ModelRotary:
    """The model with base and scaling of each kind of layer replaced by those of ``rotation``.

    ``ropes``: the rope parameters of each kind, for engines that rotate the share of a head that these state, else
    ``share``.
    """
    changed: dict[tuple[str, RotarySpec], RotarySpec] = {}
    for kind, spec in zip(config.kinds, config.model.layers, strict=True):
        if spec is not None and (kind, spec) not in changed:
            base, scaling = rotation(kind)
            changed[kind, spec] = spec.replace(base=base, scaling=scaling)
            if ropes and not spec.trailing and ropes[kind].get("rope_type") != "proportional":
                dim = int(spec.head_dim * ropes[kind].get("partial_rotary_factor", share))
                changed[kind, spec] = changed[kind, spec].replace(rotary_dim=dim, exponent_dim=None)
    pairs = zip(config.kinds, config.model.layers, strict=True)
    layers = tuple(None if spec is None else changed[kind, spec] for kind, spec in pairs)
    return replace(config.model, layers=layers, softmax_factor=softmax_of(layers, config.model.softmax_factor))


def softmax_of(layers: Iterable[RotarySpec | None], otherwise: float) -> float:
    """The factor on the softmax: latent attention takes the square of YaRN's ``mscale_all_dim`` there."""
    latent = [spec.scaling for spec in layers if spec is not None and spec.trailing and spec.scaling is not None]
    return latent[0].softmax_factor() if latent else otherwise
