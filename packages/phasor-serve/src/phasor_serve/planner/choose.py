"""The rotation for a longer context: which layers are stretched, and how."""

from dataclasses import dataclass, replace
from decimal import Decimal

from phasor import ModelRotary, RotarySpec
from phasor.models.published_lengths import PublishedLength, published_length
from phasor.rotary.scaling.ntk import stretched_base
from phasor.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from phasor.support.checks import one_of, whole

from ..engines import EngineConfig, engine_of
from ..engines.rope import softmax_of
from .traps import windowed

METHODS = ("auto", "yarn", "linear", "ntk", "dynamic", "none")


@dataclass(frozen=True)
class Choice:
    """``wanted``: the rotation for ``length``; ``trained``: the length it starts from; ``factor``: the stretch."""

    wanted: ModelRotary
    trained: int
    factor: float
    why: tuple[str, ...]
    length: int


def choose(
    config: EngineConfig, length: int | None, method: str = "auto", original: int | None = None,
    engine: str = "transformers",
) -> Choice:  # fmt: skip
    """The rotation of a config for sequences of ``length``; raises ``ValueError`` where none is known to be right.

    ``length``: None is the trained one; a shorter one keeps the rotation.
    ``original``: the length that the model was trained with; by default the published one, else the declared one.
    ``engine``: who runs it, and applies a window that all layers have, or does not.
    """
    one_of("method", method, METHODS)
    model = config.model
    if length is not None:
        whole("length", length)
    if original is not None:
        whole("original", original)
    if any(
        "rope_parameters" in note.split(" states no rope_theta")[0] for note in model.notes if "no rope_theta" in note
    ):
        raise ValueError(
            "rope_parameters.rope_theta is missing: the base would be the class's default, which is hardly that of "
            "the checkpoint; add the value it was trained with"
        )
    published = published_length(model) if original is None else None
    trained = original or (published.tokens if published else model.max_position)
    if trained is None:
        raise ValueError("the config declares no length; pass original (--original): the length it was trained with")
    declared = model.max_position or trained
    length = trained if length is None else length
    if length < trained:
        why = f"shorter than the trained {trained:,}: the rotation stays, and short prompts pay nothing"
        return Choice(model, trained, 1.0, (why,), length)
    if length <= declared and original is None:
        why = f"the config declares {declared:,} positions: nothing is stretched"
        return Choice(model, trained, 1.0, (why, *_beyond(published, length)), length)
    rotating = [word for word, spec in zip(model.layer_types, model.layers, strict=True) if spec is not None]
    window, kept, moot = window_of_all(model), engine_of(engine).serving.window_kept, ""
    if all(windowed(word) for word in rotating):
        moot = "only windowed layers rotate (those with full attention do not): a stretch would be moot, and harm"
    elif window and window <= trained and kept:
        moot = (
            f"every layer sees its last {window:,} tokens alone (sliding_window), so no distance is new to it: a "
            f"stretch would be moot, and harm [{kept}]"
        )
    if moot:
        if method in ("auto", "none"):
            longer = replace(model, max_position=max(length, declared))
            return Choice(longer, trained, 1.0, (moot, *_beyond(published, length)), length)
        raise ValueError(f"method {method!r} on a model in which {moot}; leave the method out")
    choice = _stretched(config, length, method, trained)
    stated = original or any(spec.scaling and spec.scaling.trained_length for spec in model.distinct)
    taken = () if published or stated or method == "none" else (_taken(trained),)
    reasons = (*choice.why, *taken, *_beyond(published, length))
    if window and window < length and not kept:
        return replace(choice, wanted=replace(choice.wanted, windows=()), why=(*reasons, _lost(window, engine)))
    return replace(choice, why=reasons)


def window_of_all(model: ModelRotary) -> int | None:
    """The window of a model whose layers all have one that no type of layer names (Mistral 7B 0.1, Phi-3)."""
    plain = not any(windowed(word) for word in model.layer_types) and all(model.windows)
    return max((window for window in model.windows if window), default=None) if plain else None


def _lost(window: int, engine: str) -> str:
    """What it means that an engine does not apply the window of all layers, or may not."""
    means = f"without it, distances beyond {window:,} are new to the model, however it is stretched"
    if lost := engine_of(engine).serving.window_lost:
        return f"{engine} does not apply sliding_window to this model: {means} [{lost}]"
    return f"whether {engine} applies the window of {window:,} tokens (sliding_window) is not shown: {means}"


def _taken(declared: int) -> str:
    """The caution where nobody has said what the model was trained with."""
    return (
        f"whether it was trained with the declared {declared:,} is not shown: no published length is known here; "
        "original (--original) states another"
    )


def _beyond(published: PublishedLength | None, length: int) -> tuple[str, ...]:
    """The published length of training, where a longer one is asked for."""
    if published is None or length <= published.tokens:
        return ()
    return (f"trained with {published.tokens:,} positions [{published.source}]",)


def _stretched(config: EngineConfig, length: int, method: str, trained: int) -> Choice:
    model = config.model
    far = {kind for kind, word in zip(config.kinds, model.layer_types, strict=True) if not windowed(word)}
    stretched: dict[RotarySpec, RotarySpec] = {}
    factor, why = length / trained, []
    layers = []
    for kind, spec in zip(config.kinds, model.layers, strict=True):
        if spec is None or kind not in far:
            layers.append(spec)
            continue
        if spec not in stretched:
            stretched[spec], factor, text = stretch(spec, length, method, trained)
            why.append(text)
        layers.append(stretched[spec])
    if any(word for word in model.layer_types if windowed(word)):
        near = [s for k, s in zip(config.kinds, model.layers, strict=True) if s is not None and k not in far]
        why.append(
            "windowed layers keep their rotation" if near else "windowed layers share it: one dictionary for all"
        )
    softmax = softmax_of(layers, model.softmax_factor)
    declared = max(length, model.max_position or 0)
    wanted = replace(model, layers=tuple(layers), max_position=declared, softmax_factor=softmax)
    return Choice(wanted, trained, factor, tuple(dict.fromkeys(why)), length)


def stretch(spec: RotarySpec, length: int, method: str, trained: int) -> tuple[RotarySpec, float, str]:
    """One rotation for ``length``: the new spec, by how much it is stretched, and why so."""
    scaling, factor = spec.scaling, length / trained
    if method == "none":
        return spec, 1.0, "no stretch was asked for: positions beyond the trained ones are new to the model"
    if spec.frequencies is not None or spec.learned:
        raise ValueError("the frequencies of this model are a list of its own; stretch them with RotarySpec yourself")
    if method == "auto" and scaling is not None:
        return _further(spec, scaling, length, trained)
    if scaling is not None and type(scaling).name != method:
        raise ValueError(
            f"method {method!r} would replace the {scaling.name} scaling that the model was trained with; leave the "
            "method out, or change the config first"
        )
    if scaling is not None:
        return _further(spec, scaling, length, trained)
    if method in ("auto", "yarn"):
        stretched: Scaling = YaRN(factor=factor, original_max_position=trained)
        return spec.replace(scaling=stretched), factor, f"YaRN by {factor:g} over the trained {trained:,} (static)"
    if method == "linear":
        return spec.replace(scaling=Linear(factor)), factor, f"linear by {factor:g}: every pair is slowed alike"
    if method == "dynamic":
        stretched = DynamicNTK(factor=factor, original_max_position=trained)
        return (
            spec.replace(scaling=stretched),
            factor,
            f"dynamic NTK from {trained:,} on: short prompts are left as they are",
        )
    base = float(stretched_base(Decimal(spec.base), Decimal(factor), spec.rotary_dim))
    return (
        spec.replace(base=base),
        factor,
        f"NTK: base {spec.base:.6g} becomes {base:.6g}, the slowest pair is slowed by {factor:g}",
    )


def _attention(scaling: YaRN, factor: float) -> tuple[YaRN, str]:
    """YaRN by ``factor``: a stated attention factor that is the old factor's is made anew, any other is kept."""
    by_formula = replace(scaling, attention=None)
    was, stated = by_formula.attention_factor(), scaling.attention_factor()
    scaled = replace(by_formula, factor=factor)
    if abs(stated / was - 1) < 1e-5:
        return scaled, f"attention_factor {stated:.6g}, the formula's for {scaling.factor:g}, becomes " + (
            f"{scaled.attention_factor():.6g}"
        )
    kept = f"attention_factor {stated:.6g} is kept: it is not the formula's {was:.6g}, and none is known for {factor:g}"
    return replace(scaling, factor=factor), kept


def _further(spec: RotarySpec, scaling: Scaling, length: int, trained: int) -> tuple[RotarySpec, float, str]:
    """The scaling that the model was trained with, stretched further."""
    if isinstance(scaling, YaRN):
        factor = max(length / scaling.original_max_position, scaling.factor)
        scaled: Scaling = replace(scaling, factor=factor)
        text = f"its YaRN goes from {scaling.factor:g} to {factor:g}"
        if scaling.attention is not None and factor != scaling.factor:
            scaled, change = _attention(scaling, factor)
            text = f"{text}; {change}"
        return spec.replace(scaling=scaled), factor / scaling.factor, text
    if isinstance(scaling, Linear | Llama3 | NTK | Proportional):
        factor = scaling.factor * length / trained
        scaled = replace(scaling, factor=factor)
        text = f"its {scaling.name} scaling goes from {scaling.factor:g} to {factor:g}"
        return spec.replace(scaling=scaled), length / trained, text
    if isinstance(scaling, DynamicNTK):
        return spec, length / trained, "its dynamic NTK follows the length by itself"
    if isinstance(scaling, LongRoPE):
        raise ValueError(
            f"LongRoPE's divisors were searched for {trained:,} positions: there are none for {length:,}; ask for at "
            f"most {trained:,}, or, where the model's card publishes others (MiniCPM4's does for 131,072), put these "
            "into rope_scaling, raise max_position_embeddings, and plan again"
        )
    raise ValueError(
        f"how {scaling.name} scaling is stretched further is not known; describe it with RotarySpec yourself"
    )
