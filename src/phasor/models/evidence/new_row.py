"""A row for a model type that has none, written from what was observed and from the defaults of its config class."""

import re
from collections.abc import Mapping
from typing import Any

from ...eye.tiny.config import config_of
from ...rotary.axes import InterleavedSections, Sections
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from ..reading.layers import ATTENTION, LATENT_KEYS
from ..reading.observed import large_as, seen_small
from ..rows import ROWS, as_data, made, stated
from .collect import SAVED, of_type
from .experiment import Outcome, default_of

SHARE = "partial_rotary_factor"
PLAIN = ("hidden", "heads", "kv_heads", "layers", "head_dim", "length")
SECTIONS: dict[type, str] = {Sections: "sections", InterleavedSections: "striped"}
LATENT = "kv_a_proj_with_mqa"


class NotUnderstood(ValueError):
    """Why no row in data says what was observed."""


def new_row(model_type: str, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Outcome]]:
    """The row as `rows.json` has it, and the experiments in which it reads what is observed.

    ``fields``: what the config class says of itself. Raises `NotUnderstood`.
    """
    row = _plain(as_data(made(_row(model_type, fields), {})))
    if model_type in stated():
        raise NotUnderstood("it has a row")
    ROWS[model_type] = made(row, {})
    try:
        outcomes = of_type(model_type)
    finally:
        del ROWS[model_type]
    wrong = [
        one
        for one in outcomes
        if one.kind in ("differs", "not read") or (one.kind != "equal" and one.change in ("", SAVED))
    ]
    if wrong:
        first = wrong[0]
        raise NotUnderstood(
            f"the row that is written is wrong with {first.change or 'the default config'}: {first.why}"
        )
    return row, outcomes


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _row(model_type: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    data = default_of(model_type)
    small = seen_small(data)
    rotary = small.observation.rotary
    if rotary is None:
        raise NotUnderstood("; ".join(small.observation.missing) or "nothing of it rotates")
    seen = large_as(small, data, rotary)
    spec, config = seen.distinct.popitem()[0], config_of(data)
    keys = [key.partition("weight")[0].rstrip(".") for key in small.observation.model.state_dict()]
    row: dict[str, Any] = {"is": "TextModel", "config": fields["config"]}
    row |= {key: fields[key] for key in PLAIN if key in fields and not (spec.trailing and key == "head_dim")}
    row |= _of_rope(fields) | _of_spec(spec) | _of_weights(keys, "layers.{}.self_attn")
    if "names" in fields:
        row["names"] = {"is": "Names"} | {size: [key] for size, key in fields["names"].items() if size in PLAIN}
    if spec.trailing:
        row["mla"] = [int(getattr(config, key)) for key in LATENT_KEYS]
        if hasattr(config, "rope_interleave"):
            row["interleave_key"] = True
    elif SHARE in fields.get("more", {}):
        row["partial"] = fields["more"][SHARE]
    elif spec.rotary_dim != spec.head_dim:
        row["partial"] = spec.rotary_dim / spec.head_dim
    if fields.get("kv_heads", seen.num_kv_heads) != seen.num_kv_heads == seen.num_heads:
        row["kv_heads"] = {"rule": "all_heads"}
    row |= _of_layers(fields.get("layer_types") or [], seen)
    for path, part in small.observation.parts.items():
        if "*" in path:
            row["sub_models"] = {"indexer": _indexer(part, path, keys, config)}
    return row


def _of_rope(fields: Mapping[str, Any]) -> dict[str, Any]:
    def rope(one: Mapping[str, Any]) -> dict[str, Any]:
        more = {key: value for key, value in one.get("more", {}).items() if key not in (SHARE, "mrope_section")}
        return {"is": "Rope", "base": one.get("base")} | ({"more": more} if more else {})

    if "rope" in fields:
        return {"rope": {kind: one and rope(one) for kind, one in fields["rope"].items()}}
    whole = rope(fields)
    return {"rope": whole} if "more" in whole else {"base": whole["base"]}


def _of_spec(spec: RotarySpec) -> dict[str, Any]:
    row: dict[str, Any] = {"interleaved": spec.interleaved, "permuted": spec.permuted, "tables": spec.tables}
    more = {
        name: value for name, value in (("reverse", spec.reverse), ("blocks", spec.blocks)) if value not in (False, 1)
    }
    if spec.axes.count > 1:
        rule = SECTIONS.get(type(spec.axes))
        if rule is None:
            raise NotUnderstood(f"its axes are {spec.axes}")
        row["axes"] = {"rule": rule, "default": list(spec.axes.sections)}  # type: ignore[attr-defined]
    return row | ({"spec": more} if more else {})


def _of_weights(keys: list[str], attention: str) -> dict[str, Any]:
    ends = {key.rpartition(".")[2] for key in keys}
    where = sorted(
        {re.sub(r"\d+", "{}", key.rpartition(".")[0], count=1) for key in keys if key.endswith(("q_proj", LATENT))}
    )
    if LATENT in ends:
        rows = [{"is": "Rows", "name": "q_b_proj|q_proj", "order": "q"}, {"is": "Rows", "name": LATENT, "order": "cr"}]
        return {"weights": {"is": "Weights", "attention": where, "rows": rows}}
    if {"q_proj", "k_proj"} <= ends:
        return {} if where == [attention] else {"weights": {"is": "Weights", "attention": where}}
    return {"weights": "its checkpoints were not looked at"}


def _of_layers(words: list[str], seen: ModelRotary) -> dict[str, Any]:
    if not words:
        return {}
    size = next(n for n in range(1, len(words) + 1) if all(w == words[i % n] for i, w in enumerate(words)))
    layers: dict[str, Any] = {"is": "Layers", "listed": {"layer_types": None}}
    layers["usual"] = {"rule": "pattern", "period": words[:size]}
    kinds = sorted({*words} - {"attention", "full_attention", "sliding_attention"})
    found: dict[str, set[bool]] = {}
    for word, spec in zip(words, seen.layers, strict=False):
        found.setdefault(word, set()).add(spec is not None)
    turning = {word: whether == {True} for word, whether in found.items() if word in ATTENTION}
    row: dict[str, Any] = {"layer_types": layers | ({"kinds": kinds} if kinds else {})}
    if not all(turning.values()):
        if {word for word, turns in turning.items() if not turns} != {"full_attention"}:
            raise NotUnderstood(f"which of its layers rotate: {turning}")
        row["rotates"] = {"rule": "full_does_not"}
    return row


def _indexer(part: ModelRotary, path: str, keys: list[str], config: Any) -> dict[str, Any]:
    """An indexer whose projections are called as DeepSeek's."""
    spec, name = part.distinct.popitem()[0], path.rpartition("*.")[2]
    inside = {key.rpartition(".")[2] for key in keys if f".{name}." in key}
    if not {"wq_b", "wk"} <= inside or not hasattr(config, "index_n_heads"):
        raise NotUnderstood(f"{path}: an indexer that is not DeepSeek's")
    rows = [{"is": "Rows", "name": "wq_b", "order": "q"}, {"is": "Rows", "name": "wk", "order": "k"}]
    return {
        "is": "Indexer", "head_dim": spec.head_dim, "heads": config.index_n_heads, "interleaved": spec.interleaved,
        "permuted": spec.permuted, "trailing": spec.trailing,
        "weights": {"is": "Weights", "attention": [f"layers.{{}}.{name}"], "rows": rows},
    }  # fmt: skip
