"""Settings for llama.cpp: flags where they reach every layer, else keys of the GGUF file."""

import math

from ...models.configs import ModelRotary
from ...rotary.scaling import Linear, LongRoPE, YaRN
from .base import CannotSayError, Settings
from .engine_config import Seen
from .gguf import ATTENTION, BASE, FACTOR, LENGTH, ORIGINAL, TYPE, arch_of, global_spec


def written(seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
    """Flags, then keys; whether they give what is wanted is for the reader to say."""
    arch = arch_of(seen)
    own, spec = global_spec(seen), global_spec(Seen(seen.data, seen.path, wanted, seen.kinds))
    lengthened = {"--override-kv": f"{arch.name}.{LENGTH}=int:{length}"} if length > (wanted_length(seen)) else {}
    if spec == own:
        ends = betas(seen)
        keys_only = Settings(flags={"-c": length, **ends}, gguf={LENGTH: length})
        return [Settings(flags={"-c": length, **lengthened, **ends}), keys_only]
    scaling, ends = spec.scaling, betas(Seen(seen.data, seen.path, wanted, seen.kinds))
    flags: dict[str, object] = {"-c": length}
    keys: dict[str, object] = {LENGTH: length}
    if spec.base != own.base:
        flags["--rope-freq-base"] = spec.base
        keys[BASE] = spec.base
    if isinstance(scaling, YaRN):
        if not scaling.truncate:
            raise CannotSayError("llama.cpp rounds the ends of YaRN's ramp: truncate false is lost, at any length")
        factor = float(scaling.factor)
        flags |= {"--rope-scaling": "yarn", "--rope-scale": factor, "--yarn-orig-ctx": scaling.original_max_position}
        keys |= {TYPE: "yarn", FACTOR: factor, ORIGINAL: scaling.original_max_position}
        flags |= ends
        implied = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1
        if not math.isclose(scaling.attention_factor(), implied, rel_tol=1e-9):
            keys[ATTENTION] = scaling.attention_factor() / implied
    elif isinstance(scaling, Linear):
        flags |= {"--rope-scaling": "linear", "--rope-scale": float(scaling.factor), **lengthened}
        keys |= {TYPE: "linear", FACTOR: float(scaling.factor)}
    elif scaling is None:
        flags |= lengthened
    elif type(scaling) is not type(own.scaling) or scaling != own.scaling:
        rest = (
            "its factors are tensors of the GGUF file" if isinstance(scaling, LongRoPE) else "convert the model again"
        )
        raise CannotSayError(f"llama.cpp has no flag and no key for {scaling.name} scaling: {rest}")
    return [Settings(flags=flags), Settings(flags={"-c": length, **ends}, gguf=keys)]


def betas(seen: Seen) -> dict[str, float]:
    """The flags for the ends of YaRN's ramp where they are not the usual ones: no key of the file says them."""
    scaling = global_spec(seen).scaling
    if not isinstance(scaling, YaRN):
        return {}
    ends = {"--yarn-beta-fast": (scaling.beta_fast, 32.0), "--yarn-beta-slow": (scaling.beta_slow, 1.0)}
    return {name: float(value) for name, (value, usual) in ends.items() if value != usual}


def wanted_length(seen: Seen) -> int:
    return seen.model.max_position or 0
