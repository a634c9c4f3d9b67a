"""vLLM's rotations: what its code for each model type takes of rope parameters, and the formula of each type."""

from dataclasses import dataclass, replace

from ...rotary.scaling import NTK, Scaling
from .base import Rule
from .engine_config import ORIGINAL, Seen
from .facts import facts
from .rope import PLAIN, YARN_KEYS, Rope, always, need, yarn

VERSION = "0.33.0"
FILES = "vllm/model_executor/layers/rotary_embedding"


@dataclass(frozen=True)
class Own:
    """What vLLM's code for one model type does with rope parameters otherwise than by default.

    - ``theta``: the base of an override that states none (None: it stops with an error).
    - ``needs``: keys without which it stops; ``reads``: the keys of YaRN that it passes on.
    - ``grown``: a factor of its scaling lengthens the declared length (not of Gemma 3).
    - ``far``: M-RoPE's correction range is taken at so many times the original length.
    """

    theta: float | None = 10_000.0
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = tuple(YARN_KEYS)
    far: int = 4
    grown: bool = True
    note: str = ""


LATENT = Own(reads=("beta_fast", "beta_slow", "mscale", "mscale_all_dim"))
MODELS = facts("vllm", Own)


def model_of(seen: Seen) -> Own:
    latent = any(spec.trailing for spec in seen.model.distinct)
    return LATENT if latent else MODELS.get(seen.name, Own())


def rotation(
    seen: Seen, own: Own, kind: str, ropes: dict[str, Rope], declared: int | None, taken: int | None, rules: list[Rule]
) -> tuple[float, Scaling | None]:
    """Base and scaling of one kind of layer."""
    rope = ropes[kind]
    for key in own.needs:
        need(rope, key)
    base = rope.get("rope_theta")
    if base is None:
        base = own.theta
        source = f"vllm/model_executor/models ({seen.name})"
        rules.append(Rule(f"no rope_theta in the override: base {base:g}", source, True))
    spec = seen.spec_of(kind)
    assert spec is not None and base is not None
    scheme = "yarn" if own.note else rope["rope_type"]
    if scheme == "yarn":
        scaling = yarn(rope, own.reads)
        if "mrope_section" in rope and own.far != 1:
            far = scaling.original_max_position * own.far
            rules.append(
                Rule(f"M-RoPE takes YaRN's correction range at {far}, {own.far} times the original length",
                     f"{FILES}/mrope.py: MRotaryEmbedding.__init__", True)
            )  # fmt: skip
            scaling = replace(scaling, original_max_position=far)
        if own is LATENT and scaling.attention is None and scaling.mscale is not None:
            scaling = replace(scaling, mscale_all_dim=scaling.mscale_all_dim or 1e-300)
        return float(base), scaling
    if scheme == "longrope":
        return float(base), longrope(rope, declared, taken, rules)
    if scheme == "dynamic":
        return float(base), dynamic(rope, declared, rules)
    if scheme == "proportional":
        if rope.get("factor") not in (None, 1):
            rules.append(Rule("proportional: factor is not read", f"{FILES}/gemma4_rope.py", True))
        return float(base), PLAIN["proportional"]({**rope, "factor": 1.0})
    if scheme == "linear" and not isinstance(rope.get("factor"), float):
        raise ValueError(
            f"rope_parameters.factor must be written as {float(need(rope, 'factor'))}: vLLM cannot read a whole number"
        )
    if scheme not in PLAIN:
        raise ValueError(f"rope_type {scheme!r} is none that vLLM {VERSION} knows")
    return float(base), PLAIN[scheme](rope)


def longrope(rope: Rope, declared: int | None, taken: int | None, rules: list[Rule]) -> Scaling:
    original = int(need(rope, ORIGINAL))
    long = (taken or 0) > original
    text = f"LongRoPE: --max-model-len {taken} chooses the {'long' if long else 'short'} factors for every prompt"
    rules.append(Rule(text, f"{FILES}/phi3_long_rope_scaled_rope.py: __init__", True))
    return always(long, rope, declared, rope.get("long_mscale" if long else "short_mscale"))


def dynamic(rope: Rope, declared: int | None, rules: list[Rule]) -> Scaling:
    source = f"{FILES}/dynamic_ntk_scaling_rope.py"
    if "alpha" in rope:
        return NTK(float(rope["alpha"]))
    factor, trained = float(need(rope, "factor")), rope.get("max_trained_positions") or declared
    stretch = factor * (declared or 1) / (trained or 1) - (factor - 1)
    rules.append(Rule(f"dynamic is static: NTK factor {stretch:g} at every length", source, True))
    return NTK(stretch)
