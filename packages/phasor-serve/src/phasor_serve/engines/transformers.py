"""transformers 5.24: what `phasor.read_config` reads is what its modules rotate; length is what the config declares."""

import copy
from dataclasses import replace

from phasor import ModelRotary, read_config, write_config
from phasor.models.reading.write import NotWrittenError
from phasor.scaling import DynamicNTK

from .base import CannotSayError, Engine, EngineReading, EngineRule, Flags, Rules, Settings, facts_of, register_engine
from .engine_config import ROPES, EngineConfig
from .rope import Rope, need
from .serving import GIB, Reserve, Serving

# Classes that keep head_dim None, by which the functions of modeling_rope_utils.py multiply.
HEADLESS: dict[str, dict[str, str]] = facts_of("transformers", dict)
WHOLE = EngineRule(
    "frequencies and factors are those of the model's own modules, bit for bit with float32 angles",
    "transformers/modeling_rope_utils.py and models/*/modeling_*.py",
    run=True,
)


class Transformers(Engine):
    """`transformers`, run by itself: no flags, only config.json; checked live by the tests."""

    name = "transformers"
    version = "5.24.0"
    serving = Serving(
        caches={"int8": 8.0},  # QuantizedCache; its scales are not counted
        reserve=lambda memory, devices: Reserve(
            memory, "the whole prompt in one pass; CUDA's context", None, 0.3 * GIB, GIB
        ),
        window_kept="transformers/models/mistral/modeling_mistral.py: create_sliding_window_causal_mask",
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        model = config.model
        return EngineReading(
            engine=self.name, version=self.version, model=model, length=model.max_position, rules=(WHOLE,)
        )

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        return [Settings(config=rewritten(config, wanted, length))]


register_engine(Transformers())


def rewritten(config: EngineConfig, wanted: ModelRotary, length: int) -> dict[str, object]:
    """The config with the rotation ``wanted`` and the declared ``length``; raises `CannotSayError`."""
    declared = replace(wanted, max_position=max(length, wanted.max_position or length))
    try:
        data = write_config(declared, copy.deepcopy(config.data))
    except NotWrittenError as error:
        raise CannotSayError(_dynamic(declared) or f"no config.json says this rotation: {error.reason}") from None
    if config.name in HEADLESS and not config.path and data.get("head_dim") is None:
        data["head_dim"] = next(iter(wanted.distinct)).head_dim  # without it transformers stops with a TypeError
    return data


def as_transformers(
    config: EngineConfig, ropes: dict[str, Rope], declared: int | None, rules: Rules, source: str
) -> ModelRotary:
    """The rotation of a model that an engine runs with transformers' own modules: by the config that it changed.

    ``ropes``: the rope parameters of each kind of layer, after the changes. ``source``: where the engine says so.
    """
    for rope in ropes.values():
        need(rope, "rope_theta")
    gone = (*ROPES, "rope_theta", "partial_rotary_factor")
    text = {key: value for key, value in config.data.items() if key not in gone}
    whole = {kind: {"partial_rotary_factor": 1.0, **rope} for kind, rope in ropes.items()}
    text["rope_parameters"] = whole if any(config.kinds) else whole[""]
    rules.add("transformers' own modules run and rotate this model", source)
    return read_config({**text, "max_position_embeddings": declared})


def _dynamic(wanted: ModelRotary) -> str:
    """Why no config declares a length beyond the one from which dynamic NTK starts; empty where that is not wanted."""
    for spec in wanted.distinct:
        scaling = spec.scaling
        if isinstance(scaling, DynamicNTK) and scaling.original_max_position != wanted.max_position:
            trained = scaling.original_max_position
            return (
                f"dynamic NTK starts from the length that config.json declares, which must stay {trained:,} and cannot "
                f"become {wanted.max_position:,}; take another method (--method yarn), or, where the engine runs "
                f"prompts beyond what is declared, keep max_position_embeddings {trained} and set rope_scaling to "
                f"{{'rope_type': 'dynamic', 'factor': {scaling.factor:g}}} yourself"
            )
    return ""
