"""Which layers scale their queries by position, and how (`phasor.temperature`)."""

from collections.abc import Iterable

from ..temperature import LearnedLog, LogFloor, Power, Temperature
from .keys import Keys
from .scalings import ORIGINAL

SCALED_QUERIES = ("ministral3", "mistral4")  # read llama_4_scaling_beta, for all layers


def read_beta(model_type: str, rope: Keys) -> Temperature | None:
    """Ministral 3 and Mistral 4: ``llama_4_scaling_beta`` in the rope parameters, over the trained length."""
    beta = rope.number("llama_4_scaling_beta", at_least=0)
    rope.became("no effect: repeats the length of the config", "max_position_embeddings")
    if beta is None:
        return None
    where = rope.found("llama_4_scaling_beta")[0][0]
    if model_type not in SCALED_QUERIES:
        raise ValueError(f"{where} is {beta!r}, but the code of {model_type} does not read it; remove the key")
    length = rope.whole(ORIGINAL)
    if length is None:
        raise ValueError(f"{rope.places[0][0]}{ORIGINAL} is missing: llama_4_scaling_beta counts in it; add it")
    rope.became(f"queries grow with beta {beta:.10g} per {length} positions", "llama_4_scaling_beta")
    return LogFloor(beta, length) if beta else None


def read_temperatures(
    model_type: str, keys: Keys, turns: list[bool], betas: Iterable[Temperature | None]
) -> tuple[Temperature | None, ...]:
    """One per layer, or empty; ``turns``: which layers rotate, ``betas``: what their rope parameters say."""
    scheme: Temperature | None = None
    if model_type == "llama4_text":
        scheme = _llama4(keys)
    elif model_type == "beam":
        scheme = Power()
    elif model_type == "mistral_large4_text":
        return (LearnedLog(),) * len(turns)
    found = next((beta for beta in betas if beta is not None), None)
    layers = tuple(scheme if not turn else found for turn in turns)
    return layers if any(layers) else ()


def _llama4(keys: Keys) -> Temperature | None:
    """Llama 4 scales the queries of layers that do not rotate, unless ``attn_temperature_tuning`` is off."""
    tuning = keys.get("attn_temperature_tuning")
    keys.became("queries of layers without rotation grow" if tuning else "off", "attn_temperature_tuning")
    beta, length = keys.number("attn_scale", at_least=0), keys.whole("floor_scale")
    for name, value, default in (("attn_scale", beta, "0.1"), ("floor_scale", length, "8192")):
        if value is None:
            keys.sources[keys.places[0][0] + name] = f"not in config: Llama4TextConfig's default, {default}"
    if tuning is not None and not tuning:
        return None
    return LogFloor(0.1 if beta is None else beta, 8192 if length is None else length, offset=1)
