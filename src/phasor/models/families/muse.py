"""Muse, Beam, Laguna and Mellum."""

from dataclasses import replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...rotary.temperature import Power
from ...support.checks import number
from ..reading.keys import Keys, is_list
from ..reading.layers import BY_NAME, Layers, alike, every, with_last_full
from ..reading.refusal import Reason, Refused
from ..reading.row import Row
from ..reading.text import TextModel
from ..reading.text_row import Rope
from ..weights import Weights

BEAM = {"sliding_attention": Rope(10_000.0, top=()), "full_attention": None}
LAGUNA = {
    "full_attention": Rope(500_000.0, {"partial_rotary_factor": 0.5}, top=()),
    "sliding_attention": Rope(10_000.0, {"partial_rotary_factor": 1.0}, top=()),
}
MELLUM = {"full_attention": Rope(500_000.0, top=()), "sliding_attention": Rope(10_000.0, top=())}


def from_the_last(keys: Keys, count: int) -> list[str]:
    """Every fourth layer, counted from the last, has full attention."""
    return ["sliding_attention" if (count - 1 - i) % 4 else "full_attention" for i in range(count)]


def by_zeros(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Muse reads of the bases in ``layer_rope_theta`` only whether they are 0: those layers do not rotate."""
    count, base = len(model.layers), next(spec.base for spec in model.layers if spec is not None)
    listed = keys.get("layer_rope_theta", check=is_list)
    if listed is None:
        every_fourth = "not in config: every fourth layer, counted from the last, does not rotate"
        keys.sources["layer_rope_theta"] = every_fourth
        listed = [base if (count - 1 - i) % 4 else 0 for i in range(count)]
    if len(listed) != count:
        raise ValueError(f"layer_rope_theta must have one value per layer, {count} here, got {len(listed)}")
    for i, value in enumerate(listed):
        number(f"layer_rope_theta[{i}]", value, at_least=0)
        if value not in (0, base):
            raise Refused(
                f"layer_rope_theta[{i}] is {value!r}, but the code uses rope_theta {base:.10g} for all layers that "
                "rotate; write 0 or that base, or describe the layers with RotarySpec yourself",
                Reason.CONTRADICTION,
                f"{keys.places[0][0]}layer_rope_theta",
                f"{keys.places[0][0]}rope_parameters",
            )
    keys.explain("which layers rotate: those without a 0", "layer_rope_theta")
    return replace(model, layers=tuple(s if v else None for s, v in zip(model.layers, listed, strict=True)))


def zeros(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_zeros` reads: the base of each layer that rotates, and 0 for the others."""
    count = len(model.layers)
    fourth = all((spec is None) == (not (count - 1 - i) % 4) for i, spec in enumerate(model.layers))
    if data.get("layer_rope_theta") is not None or not fourth:
        data["layer_rope_theta"] = [0 if spec is None else spec.base for spec in model.layers]


def power(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Beam scales the queries of its layers without rotation by a power of the position."""
    layers = tuple(Power() if spec is None else None for spec in model.layers)
    return replace(model, temperatures=layers if any(layers) else ())


# fmt: off
ROWS: dict[str, Row] = {
    "beam": TextModel("BeamConfig", rope=BEAM, hidden=5120, heads=48, kv_heads=8, layers=52, head_dim=128, length=8192,
        layer_types=Layers(with_last_full(every(6)), BY_NAME), tables="float32",
        after=power),
    "laguna": TextModel("LagunaConfig", rope=LAGUNA, hidden=2048, heads=48, kv_heads=8, layers=40, head_dim=128,
        length=131_072, layer_types=Layers(alike("full_attention"), BY_NAME), partial=1.0,
        weights=Weights(uneven=True)),
    "mellum": TextModel("MellumConfig", rope=MELLUM, hidden=2304, heads=32, kv_heads=4, layers=28, head_dim=128,
        length=131_072, shares=(), dicts=("rope_parameters",), layer_types=Layers(alike("full_attention"), BY_NAME),
        partial=1.0),
    "muse_glimmer_assistant": TextModel("MuseGlimmerAssistantConfig", base=500_000.0, hidden=6656, heads=32,
        kv_heads=8, layers=5, head_dim=128, length=131_072, layer_types=Layers(alike("sliding_attention"), BY_NAME),
        notes=("queries stand at the last positions of the keys",)),
    "muse_glimmer_text": TextModel("MuseGlimmerTextConfig", base=10_000.0, hidden=6656, heads=32, kv_heads=2,
        layers=52, head_dim=128, length=131_072, layer_types=Layers(from_the_last, BY_NAME), after=by_zeros,
        write=zeros),
    "muse_spark_text": TextModel("MuseSparkTextConfig", rope=Rope(500_000.0, top=(), bare=10_000.0), hidden=8192,
        heads=128, kv_heads=16, layers=62, head_dim=64, length=1_048_576, layer_types=Layers(from_the_last, BY_NAME),
        after=by_zeros, write=zeros),
}
# fmt: on
