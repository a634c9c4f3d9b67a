"""What the page knows of one model: its rotations with their steps, what its cache keeps, and engines' settings."""

import struct
from typing import Any

from phasor import ModelRotary
from phasor.axes import OneAxis
from phasor.models.published_lengths import published_length
from phasor.rotary.spec import RotarySpec, axis_steps
from phasor.support.number_text import ranges
from phasor.tools.inspect.model_page import window_of
from phasor.tools.inspect.view import ConfigView
from phasor_serve.engines import ENGINES, EngineConfig, load_config
from phasor_serve.planner import Plan, plan
from phasor_serve.planner.kv import stores

STRETCHES = (1, 2, 4, 8)  # times the declared length: where the settings of every engine are given
LONGEST = 2**31


def view_entries(view: ConfigView, source: Any, name: str) -> list[dict[str, Any]]:
    """One entry for each model that is shown of a config.

    ``source`` as in `phasor.read_config`; ``name``: how the page calls it. Settings and memory are those of the text
    model, which engines serve.
    """
    entries = []
    for model in view.shown:
        title = f"{name}: {model.part}" if len(view.shown) > 1 else name
        entries.append(model_entry(model, source, title))
    return entries


def model_entry(model: ModelRotary, source: Any, name: str) -> dict[str, Any]:
    """Plain JSON data of one model.

    >>> toy = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> from phasor import read_config
    >>> entry = model_entry(read_config(toy), toy, "toy")
    >>> entry["rotations"][0]["regimes"][0]["steps"][0][:16]  # 2**64 / 2 pi
    '28be60db9391054a'
    """
    published = published_length(model)
    return {
        "name": name,
        "type": model.model_type,
        "part": model.part,
        "declared": model.max_position,
        "trained": published.tokens if published else None,
        "trained_source": published.source if published else "",
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "layers": len(model.layers),
        "own_angles": model.own_angles,
        "softmax_factor": model.softmax_factor,
        "notes": [*model.notes, *_beyond_rotation(model)],
        "rotations": [_rotation(model, spec, layers) for spec, layers in model.distinct.items()],
        **_served(model, source),
    }


def _beyond_rotation(model: ModelRotary) -> list[str]:
    """What the figures leave out, in words."""
    notes = []
    if any(scheme is not None for scheme in model.temperatures):
        notes.append("queries grow with the position, which no figure here shows")
    if any(spec.second is not None for spec in model.distinct):
        notes.append("the members of a pair rotate by different angles; the figures show the first members")
    if any(spec.learned for spec in model.distinct):
        notes.append("a trained log-scale multiplies the frequencies; everything here is without it")
    if any(spec.coordinates == "real" for spec in model.distinct):
        notes.append("positions are real coordinates; whole ones are shown here")
    return notes


def _rotation(model: ModelRotary, spec: RotarySpec, layers: tuple[int, ...]) -> dict[str, Any]:
    return {
        "layers": len(layers),
        "where": f"layers {ranges(layers)}" if len(layers) > 1 else f"layer {layers[0]}",
        "kinds": sorted({model.layer_types[i] for i in layers}),
        "window": window_of(model, layers),
        "spec": spec_data(spec),
        "regimes": [_regime(spec, length) for length in lengths_of(model, spec)],
    }


def spec_data(spec: RotarySpec) -> dict[str, Any]:
    """A spec with the rung and the weights of every pair written out, where these are not those of one plain axis."""
    data = {key: value for key, value in spec.to_dict().items() if key not in ("axes", "second", "angles", "tables")}
    plain = isinstance(spec.axes, OneAxis)
    rungs = [list(rung) for rung in spec.axes.rung_of_pair(spec.pairs)]
    return {
        **data,
        "rungs": None if rungs == [[i, spec.pairs] for i in range(spec.pairs)] else rungs,
        "weights": None if plain else [list(row) for row in spec.axes.weights(spec.pairs)],
    }


def lengths_of(model: ModelRotary, spec: RotarySpec) -> list[int | None]:
    """The lengths of sequences whose steps are written down: inside the trained length, and the declared one."""
    if not spec.length_dependent:
        return [None]
    far = max(model.max_position or 0, 2 * ((spec.scaling and spec.scaling.trained_length) or 1))
    return [None, min(far, LONGEST)]


def _regime(spec: RotarySpec, length: int | None) -> dict[str, Any]:
    """Steps as 16 hexadecimal digits each, the frequencies of the model's own code as 8 digits of a float32 each."""
    own = spec.replace(angles="float32").inv_freq(length).tolist()
    return {
        "length": length,
        "steps": ["".join(f"{step % 2**64:016x}" for step in axis) for axis in axis_steps(spec, length)],
        "float32": "".join(struct.pack(">f", value).hex() for value in own),
        "attention_factor": spec.attention_factor(length),
    }


def _served(model: ModelRotary, source: Any) -> dict[str, Any]:
    """Memory and settings, or why there are none."""
    try:
        config = load_config(source)
        if config.path != model.part:
            raise ValueError(
                f"engines serve the text model, {config.path or 'the top level'}, and this is another part"
            )
        return {
            "memory": memory_groups(config),
            "settings": [_settings(p) for p in _all_plans(config)],
            "why": "",
        }
    except (ValueError, KeyError) as error:
        return {"memory": [], "settings": [], "why": str(error)}


def memory_groups(config: EngineConfig) -> list[dict[str, Any]]:
    """What one sequence keeps, with the engines that keep it so."""
    groups: dict[str, dict[str, Any]] = {}
    for engine in ENGINES:
        kept = [_store(store) for store in stores(config, engine)]
        groups.setdefault(repr(kept), {"engines": [], "stores": kept})["engines"].append(engine)
    return list(groups.values())


def _store(store: Any) -> dict[str, Any]:
    return {
        "kind": store.kind,
        "layers": store.layers - store.shared,
        "per_token": store.per_token,
        "window": store.window,
        "state": store.state,
        "beside": [{"values": one.values, "every": one.every, "size": one.size} for one in store.beside],
    }


def _all_plans(config: EngineConfig) -> list[Plan]:
    """The plans of all engines at several lengths; those that cannot be made are left out."""
    plans: list[Plan] = []
    if (declared := config.model.max_position) is None:
        return plans
    for stretch in STRETCHES:
        for engine in ENGINES:
            try:
                plans.append(plan(config.data, length=min(stretch * declared, LONGEST), engine=engine))
            except ValueError:
                continue
    return plans


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "engine": plan.engine,
        "version": plan.version,
        "length": plan.length,
        "verdict": plan.verdict,
        "why": list(plan.why),
        "lines": plan.setting_lines(),
        "refused": plan.refused,
    }
