"""The rotary encoding of every layer from a model's own config, through the rows of `phasor.models.families`."""

import copy
import os
from dataclasses import replace
from typing import Any

from ..positions import Rule
from .families import ROWS
from .reading.composite import Composite
from .reading.keys import OTHER_POSITIONS, ROPE_WORDS, Keys, is_neutral, near
from .reading.leftovers import SETTINGS, account_for, refuse_inside
from .reading.load import load
from .reading.model import ModelRotary
from .reading.model_row import Row
from .reading.non_rotary import Frame, NoRotary
from .reading.numbering import read_numbering
from .reading.unknown import read_by_keys, row_by_keys
from .reading.write import first_difference, repeat_above, write_part

__all__ = ["ModelRotary", "NoRotary", "read_config", "read_parts", "read_rule", "write_config"]

FLAT = "its text keys stand at the top, where transformers may not look for them: it has a text_config"
Source = str | os.PathLike[str] | dict[str, Any] | Any


def read_config(source: Source, part: str | None = None) -> ModelRotary:
    """The rotary encoding of every layer, from a model's own config. Strict: every rope key is used or refused.

    ``source`` is the path of a ``config.json``, of a folder that holds one, a dictionary, or a transformers config
    (anything with ``to_dict``). ``part`` names one part of a composite config (``"text_config"``,
    ``"vision_config"``, ``"talker_config.text_config"``); without it the text model is read, or, where there is none,
    the first part that rotates (`read_parts` reads them all). Nothing is imported and nothing downloaded.

    A key that the family's code does not read is refused, unless its value asks for nothing (false, null, empty, 1.0,
    "default") or says what is so anyway; so are a contradiction, a missing size and a family that is not known: a
    ``ValueError`` names the key, the rule, the value and the way out, because a wrong rotary embedding never crashes:
    it makes the model a little worse with every token. Defaults come from the family's own code only, and
    ``ModelRotary.sources`` says which ones were used.

    >>> model = read_config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    ...                      "num_hidden_layers": 2, "rope_theta": 500000.0})
    >>> model.layers[0].describe()
    'all 16 channels, halves, base 500000, no scaling, one axis, exact angles'
    >>> model.sources["rope_theta"], model.sources["head_dim"]
    ('base 500000', 'not in config: hidden_size / num_attention_heads = 16')
    """
    config = _load(source)
    path = config.choose(part)
    try:
        return _read(config, path)
    except NoRotary as error:
        raise NoRotary(f"{error}{config.others_that_rotate(path)}") from None


def read_parts(source: Source) -> dict[str, ModelRotary | str]:
    """Every part of a config by its dotted path (``""``: the config itself): what it rotates, or why nothing is read.

    A sentence begins with ``no rotary`` where the part has none, and with ``not read`` where it could not be
    understood. ``source`` as in `read_config`; raises ``ValueError`` if it is no config at all.

    >>> toy = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "bert"}}
    >>> {path: type(found).__name__ for path, found in read_parts(toy).items()}
    {'': 'str', 'text_config': 'ModelRotary', 'vision_config': 'str'}
    >>> read_parts(toy)[""]
    'no rotary: this config only holds text_config, vision_config'
    """
    config = _load(source)
    return {path: _read_or_say_why(config, path) for path in ("", *config.paths)}


def read_rule(source: Source) -> Rule:
    """The rule by which a model numbers images, video and sound among its text, with the sizes its config states.

    ``source`` as in `read_config`: the config of the whole model, or of its thinker or talker (Qwen-Omni). A size that
    it leaves out is that of transformers' default config. Raises ``ValueError`` for a model without such a rule (its
    positions are plain text positions, or not known here) and for a key that is nearly one of those that are read.

    >>> read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}).rate
    2
    """
    return read_numbering(_load(source))


def _load(source: Source) -> Composite:
    return Composite(load(source), ROWS)


def write_config(model: ModelRotary, like: Source, part: str | None = None) -> dict[str, Any]:
    """The config ``like`` as a new dictionary that says the rotation of ``model``, in its own spelling.

    Base, scaling, rotated width, sections and declared length are changed where ``like`` states them; what it leaves to
    its class is added in its style (``rope_parameters`` where it has none). All other keys stay, in their order.
    ``like``: as ``source`` in `read_config`; it is not changed. ``part`` names the part of a composite config; without
    it ``model.part``, or the part that `read_config` chooses.

    The result is read back: ``read_config`` of it is equal to ``model``, notes and exact angles aside, which no config
    states.
    Where the family's code cannot say the model (another layout, another number of layers, one dictionary for layers
    that differ, a scheme that it has not), a ``ValueError`` says what, and the way out.

    >>> like = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
    ...         "rope_theta": 10000.0, "rope_scaling": None}
    >>> longer = read_config({**like, "rope_scaling": {"type": "linear", "factor": 4.0}})
    >>> write_config(longer, like)["rope_scaling"]
    {'rope_type': 'linear', 'factor': 4.0}
    """
    if not isinstance(model, ModelRotary):
        raise ValueError(f"model must be a ModelRotary, as read_config returns it, got {type(model).__name__}")
    config = _load(copy.deepcopy(load(like)))
    path = config.choose(part if part is not None else model.part if model.part in config.paths else None)
    old, new = _read(config, path).with_angles("exact"), model.with_angles("exact")
    differs, why = first_difference(old, new), ""
    if differs and path in config.inner:
        raise ValueError(
            f"part {path!r} has no keys of its own: {differs.what}; it follows the attention beside it, so write "
            f"part={config.inner[path]!r}"
        )
    if differs and len(old.layers) == len(new.layers) and new.distinct:
        try:
            _write(config, path, old, new)
            differs = first_difference(read_config(config.data, path).with_angles("exact"), new)
        except ValueError as error:
            why = f" ({error})"
    if differs:
        raise ValueError(f"like cannot say this model: {differs.what}{why}; {differs.out}")
    return config.data


def _write(config: Composite, path: str, old: ModelRotary, new: ModelRotary) -> None:
    data, around = config.config(path), config.part_of(path)
    row, before = config.row(path) or row_by_keys(config.name(path), data), copy.deepcopy(data)
    write_part(row, data, dict(around.defaults) if around else {}, old, new)
    if row.text:
        repeat_above(config.repeating(path), before, data)


def _read_or_say_why(config: Composite, path: str) -> ModelRotary | str:
    try:
        return _read(config, path)
    except NoRotary as error:
        return f"no rotary: {error}"
    except ValueError as error:
        return f"not read: {error}"


def _read(config: Composite, path: str) -> ModelRotary:
    if path in config.inner:
        return _read_inner(config, path)
    if held := config.held_by_frame(path):
        raise NoRotary(f"{path or 'this config'} only holds {', '.join(held)}")
    model, _ = _read_part(config, path)
    return replace(model, part=path, parts=config.paths)


def _read_inner(config: Composite, path: str) -> ModelRotary:
    owner, what = config.inner[path], path.rpartition(".")[2]
    row = config.row(owner)
    assert row is not None
    prefix, data, name = f"{owner}." if owner else "", config.config(owner), config.name(owner)
    outer, _ = _read_part(config, owner)
    model, _ = row.inner[what].read_inside(name, data, prefix, outer)
    return replace(model, part=path, parts=config.paths, model_type=outer.model_type)


def _read_part(config: Composite, path: str) -> tuple[ModelRotary, Keys]:
    name, data, prefix = config.name(path), config.config(path), f"{path}." if path else ""
    row, part = config.rows.get(name), config.part_of(path)
    defaults = {key: value for key, value in (part.defaults if part else {}).items() if data.get(key) is None}
    ropes = (data.get("rope_parameters"), data.get("rope_scaling"))
    if any(isinstance(rope, dict) and "rope_theta" in rope for rope in ropes):
        defaults.pop("rope_theta", None)
    if isinstance(row, Row):
        model, keys = row.read(name, {**defaults, **data}, prefix, config.above(path))
    else:
        if error := _refused(config, path, name):
            raise error
        model, keys = read_by_keys(name, data, path, config.rows)
    account_for(model, name, keys, [id(one) for one in config.parts.values()])
    if path and isinstance(row, Row) and row.text:
        _refuse_above(config, path, keys)
    if not path and isinstance(config.rows.get(str(data.get("model_type"))), Frame):
        model = replace(model, notes=(*model.notes, FLAT))
    for key, value in defaults.items():
        keys.sources[prefix + key] = f"not in config: what the class around it sets, {value!r}"
    return replace(model, model_type=str(data.get("model_type") or name), sources=keys.sources), keys


def _refused(config: Composite, path: str, name: str) -> ValueError | None:
    """Why a part of a name that is not known is not read, whatever its keys say."""
    where = f" of {path}" if path else ""
    if not name:
        return ValueError(
            f"model_type{where} is missing, and architectures {config.config(path).get('architectures')!r} is not "
            "known: pair layout and defaults cannot be guessed; add model_type, or describe the encoding with "
            "RotarySpec yourself"
        )
    if config.is_tower_key(path):
        return ValueError(
            f"model_type{where} {name!r} is not known: pair layout and axes cannot be guessed"
            f"{near(name, config.rows)}; describe the encoding with RotarySpec yourself"
        )
    return None


def _refuse_above(config: Composite, path: str, keys: Keys) -> None:
    """Keys above the text part must repeat what the part says, unless what stands above rotates itself."""
    inner, above, models = config.config(path), "", [id(one) for one in config.parts.values()]
    for step in path.split("."):
        level = config.data if not above else config.parts.get(above.rstrip("."), {})
        for key, value in level.items() if config.repeats(above.rstrip(".")) else ():
            if isinstance(value, dict) and key not in SETTINGS and id(value) not in models:
                refuse_inside(f"{above}{key}.", value, models)
            if not isinstance(key, str) or not ROPE_WORDS.search(key) or key in OTHER_POSITIONS or is_neutral(value):
                continue
            Keys([(above, {key: value})], {})  # is a plain word
            if key in inner and inner[key] != value:
                raise ValueError(
                    f"{above}{key} and {path}.{key} contradict each other: {value!r} and {inner[key]!r}; keep one"
                )
            if key not in inner:
                raise ValueError(f"{above}{key} stands outside {path}, which has no such key; move or remove it")
            keys.sources[f"{above}{key}"] = f"repeats {path}.{key}"
        above += f"{step}."
