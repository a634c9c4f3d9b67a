"""A config as a tree of models: which ones are inside, which row reads each, and what no row may leave unread."""

import re
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from .keys import COMMON, OTHER_POSITIONS, ROPE_WORDS, Keys, about_positions, is_neutral, is_slip, near, slip_of
from .observed import read_by_observing
from .refusal import Reason, Refused, contradiction, not_understood, unread
from .row import Alias, CompositeModel, NonRotary, NoRotary, PartOf, Row
from .text_row import ANY_NAMES

SHORT = ("text_config", "llm_config", "language_config")  # a text model whatever its config says of itself
TEXT_PARTS = (
    *SHORT, "thinker_config.text_config", "decoder", "thinker_config", "vlm_config.text_config", "global_config",
    "decoder_config",
)  # fmt: skip
MODELS = ("encoder", "decoder", "atom_encoder")  # keys of models that do not end in _config
NOT_TEXT = ("vision", "visual", "audio", "image")
ENDINGS = ("_vision", "_vision_encoder", "_vision_model", "_vit_model", "_audio", "_audio_encoder", "_encoder")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
SIZE_WORDS = re.compile(r"hidden_(size|layers)|(^|_)depth$|^num_layers$|^embed_dim$|^d_model$|^n_layers?$")
MOST_PARTS = 64
LONGEST_NAME = 200  # characters of a model type: a message says it
SETTINGS = (
    "quantization_config", "compression_config", "generation_config", "auto_map", "task_specific_params",
    "per_layer_config", "slice_config",
)  # fmt: skip
HEAD_DIMS = ("head_dim", "kv_channels", "attention_head_dim", "qk_head_dim", "global_head_dim")
BASES, WIDTHS = ("rope_theta", "rotary_emb_base", "rope_base"), ("rotary_dim",)
SHARES = ("partial_rotary_factor", "rotary_pct")
INTERLEAVED = ("rope_interleave", "rotary_interleaved", "rope_interleaved")
HALVES = ("rope_is_neox_style", "is_neox_style")
ROTARY_KINDS = ("rope", "rotary", "absolute")  # the last is what BERT's configs say where nobody asks
OTHER_NAMES = {name for group in vars(ANY_NAMES).values() for name in group}
ROTATES = ("use_rope", "rope", "use_rotary_pos_emb", "rotary", "use_rotary_embedding", "use_pos_enc")
CLAIMS = (*ROTATES, *BASES, *HEAD_DIMS, *WIDTHS, *SHARES, *INTERLEAVED, *HALVES)  # which false or 1 may contradict
TEXT_KEYS_AT_TOP = "its text keys stand at the top, where transformers may not look for them: it has a text_config"
RowTable = MutableMapping[str, Row | Alias]


class ConfigTree:
    """A config with the models inside it, as far as the rows know them.

    ``parts``: dotted path -> config of every model inside; ``sub_models``: dotted path -> path of the config that
    describes it, for parts that have no config of their own.
    """

    def __init__(self, data: dict[str, Any], rows: RowTable) -> None:
        self.data, self.rows = data, rows
        self.parts = dict(_parts(data, self._is_named))
        if len(self.parts) > MOST_PARTS:
            most = f"a composite config has at most {MOST_PARTS}"
            raise Refused(f"config holds {len(self.parts)} models; {most}", Reason.BEYOND)
        self.sub_models: dict[str, str] = {}
        for path in ("", *self.parts):
            if self.is_readable(path) and not self.only_holds(path):
                row = self.row(path)
                for name, model in row.sub_models.items() if row is not None else ():
                    if model.is_present(self.config(path)):
                        self.sub_models[f"{path}.{name}".lstrip(".")] = path

    def _is_named(self, key: str) -> bool:
        """Whether some row knows a part under this key."""
        return any(isinstance(row, Row) and key in row.parts for row in self.rows.values())

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.parts, *self.sub_models)

    def config(self, path: str) -> dict[str, Any]:
        return self.parts[path] if path else self.data

    def around(self, path: str) -> list[str]:
        """The paths of the configs around a part, the nearest last."""
        steps = path.split(".") if path else []
        return [p for i in range(len(steps)) if not (p := ".".join(steps[:i])) or p in self.parts]

    def above(self, path: str) -> dict[str, Any]:
        """The config of the part around a part."""
        return self.config(self.around(path)[-1]) if path else {}

    def repeating(self, path: str) -> list[str]:
        """The configs around a part whose keys about positions can only repeat what the part says."""
        return [each for each in self.around(path) if self.repeats(each)]

    def row(self, path: str) -> Row | None:
        row = self.rows.get(self.name(path))
        assert not isinstance(row, Alias)
        return row

    def _stated_row(self, path: str) -> Row | None:
        """The row that a config names as its own model_type."""
        row = self.rows.get(str(self.config(path).get("model_type"))) if path in self.parts or not path else None
        return row if isinstance(row, Row) else None

    def name(self, path: str) -> str:
        """The row of a part: its model_type, else its architecture, else what its parent makes of it."""
        data, key = self.config(path), path.rpartition(".")[2]
        if (tower := self._tower(path)) is not None:
            return tower
        stated = self.stated_name(data)
        if any(word in key for word in NOT_TEXT):
            return stated
        if stated:
            return self._text_name(stated, data)
        if (part := self.part_of(path)) is not None:
            return part.row
        if key in SHORT[:2]:
            return f"{self.stated_name(self.above(path))}_text"
        return key if isinstance(self.rows.get(key), NonRotary) else ""

    def part_of(self, path: str) -> PartOf | None:
        """What a config around this part says of it."""
        rows, key = map(self._stated_row, reversed(self.around(path))), path.rpartition(".")[2]
        return next((row.parts[key] for row in rows if row is not None and key in row.parts), None)

    def own_class(self, path: str) -> str:
        """The row of the class that a composite model has for its part, whatever the part calls itself; or ``""``.

        That is what the row of the composite says, else the one that is named after the composite.
        """
        around, _, key = path.rpartition(".")
        if not path or (around and around not in self.parts) or not self.config(path).get("model_type"):
            return ""
        row, outer = self._stated_row(around), self.config(around).get("model_type")
        if row is not None and key in row.parts:
            return row.parts[key].row if row.parts[key].fixed else ""
        endings = ("_text", "_text_model") if key == SHORT[0] else ENDINGS if key == "vision_config" else ()
        return next((name for ending in endings if (name := f"{outer}{ending}") in self.rows), "")

    def stated_name(self, data: dict[str, Any]) -> str:
        """What a config calls itself."""
        for value in (data.get("model_type"), data.get("model")):
            if isinstance(value, str) and not (value.isprintable() and len(value) <= LONGEST_NAME):
                raise ValueError(f"model_type must be a plain word, got {value!r:.80}")
            if isinstance(value, str) and value:
                return value
        names = data.get("architectures")
        known = (name for name in (names if isinstance(names, list) else ()) if isinstance(name, str))
        return next((name for name in known if name in self.rows), "")

    def _text_name(self, name: str, data: dict[str, Any]) -> str:
        row = self.rows.get(name)
        if isinstance(row, Alias):
            return row.row_of(name, data)
        flat = row is None or isinstance(row, CompositeModel)  # a composite model whose text keys stand at the top
        return f"{name}_text" if flat and f"{name}_text" in self.rows else name

    def _tower(self, path: str) -> str | None:
        """The row of a vision, audio or other tower; None if the part is none of those that are known.

        A config that calls itself by its model, or by nothing, is told by the key it stands under.
        """
        stated, key = self.config(path).get("model_type"), path.rpartition(".")[2]
        if isinstance(stated, str) and self._is_tower(stated):
            return stated
        if not stated and (part := self.part_of(path)) is not None and self._is_tower(part.row):
            return part.row
        above = stated or self.above(path).get("model_type")
        kinds = [word for word in ("vision", "audio", "encoder") if word in key]
        names = (f"{above}{ending}" for ending in ENDINGS if any(word in ending for word in kinds))
        return next((name for name in names if name in self.rows), None) if isinstance(above, str) else None

    def _is_text(self, name: str) -> bool:
        row = self.rows.get(name)
        return isinstance(row, Alias) or (row is not None and row.text and not getattr(row, "tower", False))

    def _is_tower(self, name: str) -> bool:
        row = self.rows.get(name)
        return isinstance(row, Row) and not isinstance(row, CompositeModel) and not self._is_text(name)

    def rotates(self, name: str) -> bool:
        """Whether the row of that name is of a family that rotates."""
        row = self.rows.get(name)
        return isinstance(row, Row) and row.readable

    def is_readable(self, path: str) -> bool:
        """Whether the part is of a family that rotates."""
        try:
            row = self.row(path)
        except ValueError:
            return False
        return row is not None and row.readable

    def says_something(self, path: str) -> bool:
        """Whether a config is by its own name one that has something to say, whatever parts it holds."""
        row = self._stated_row(path)
        return row is not None and not row.composite

    def repeats(self, path: str) -> bool:
        """Whether keys about positions beside the parts of a config can only repeat what the parts say."""
        row = self._stated_row(path)
        return not self.says_something(path) and not (isinstance(row, CompositeModel) and row.ignores_rope_keys)

    def only_holds(self, path: str) -> list[str]:
        """The parts inside a config that says nothing of its own; empty for any other."""
        data, prefix = self.config(path), f"{path}." if path else ""
        sized = any(name in data for name in SIZES) and not any(f"{prefix}{key}" in self.parts for key in SHORT)
        if self.says_something(path) or (sized and self.is_readable(path)):
            return []
        return [part for part in self.parts if part.startswith(prefix)]

    def choose(self, part: str | None) -> str:
        """The path of the part to read; ``""`` for the config itself."""
        if part is None:
            return self._text_part()
        if not self.paths and part != "":
            raise ValueError(f"part must be left out, because this config has no parts, got {part!r}")
        if not isinstance(part, str) or (part and part not in self.paths):
            raise ValueError(f"part must be one of {sorted(self.paths)}, got {part!r}{near(str(part), self.paths)}")
        return part

    def _text_part(self) -> str:
        """The text model; without one the config itself, or the first part that can be read."""
        readable = [p for p in self.parts if self.is_readable(p) and not self.only_holds(p)]
        texts = [path for path in TEXT_PARTS if path in self.parts]
        if texts:
            return next((path for path in texts if path in readable), texts[0])
        if self.is_readable("") or not readable:
            return ""
        return next((path for path in readable if self._is_text(self.name(path))), readable[0])

    def others_that_rotate(self, path: str) -> str:
        """For an error: what else could be read."""
        others = [p for p in ("", *self.parts) if p != path and self.is_readable(p) and not self.only_holds(p)]
        return f"; other parts may rotate: part={', part='.join(map(repr, others))}" if others else ""


def _parts(
    config: dict[str, Any], is_named: Callable[[str], bool], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """``(dotted path, config)`` of every model inside a composite config; ``is_named``: whether a row knows a key."""
    for key, value in config.items():
        if not isinstance(key, str) or not key.isprintable() or key in SETTINGS or depth > 8:
            continue
        if (prefix + key in TEXT_PARTS[:6] or key == SHORT[0]) and not isinstance(value, dict | None):
            what = "an object of keys, the config of the text model"
            raise ValueError(f"{prefix}{key} must be {what}, got {value!r:.80}")
        if not isinstance(value, dict):
            continue
        inside = list(_parts(value, is_named, f"{prefix}{key}.", depth + 1))
        if (key.endswith("_config") or key in MODELS) and (inside or _is_model(key, value) or is_named(key)):
            yield prefix + key, value
        yield from inside


def _is_model(key: str, value: dict[str, Any]) -> bool:
    named = key in SHORT or (key not in MODELS and any(word in key for word in NOT_TEXT))
    return named or bool(value.get("model_type")) or any(SIZE_WORDS.search(str(name)) for name in value)


def read_part(tree: ConfigTree, path: str) -> ModelRotary:
    """What one part rotates; raises `NoRotary`, or `Refused` with the reason."""
    try:
        if path in tree.sub_models:
            model = _read_inner(tree, path)
        elif parts := tree.only_holds(path):
            raise NoRotary(f"{path or 'this config'} only holds {', '.join(parts)}")
        else:
            model = _read_part(tree, path)
        return replace(model, part=path, parts=tree.paths)
    except (NoRotary, Refused):
        raise
    except ValueError as error:  # what the checks of single values raise
        raise Refused(str(error), Reason.VALUE) from None


def _read_inner(tree: ConfigTree, path: str) -> ModelRotary:
    owner, row = tree.sub_models[path], tree.row(tree.sub_models[path])
    assert row is not None
    outer, inner = _read_part(tree, owner), row.sub_models[path.rpartition(".")[2]]
    model, _ = inner.read_inside(tree.name(owner), tree.config(owner), f"{owner}." if owner else "", outer)
    return replace(model, model_type=outer.model_type)


def _read_part(tree: ConfigTree, path: str) -> ModelRotary:
    name, data, prefix = tree.name(path), tree.config(path), f"{path}." if path else ""
    row, part = tree.rows.get(name), tree.part_of(path)
    if (own := tree.own_class(path)) and name != own:
        where, around = f"{prefix}model_type", f"{path.rpartition('.')[0]}.model_type".lstrip(".")
        said = (data["model_type"], tree.above(path)["model_type"])
        raise contradiction(where, around, said, f"the code of the second makes {own!r} of this part; write that")
    defaults = {key: value for key, value in (part.defaults if part else {}).items() if data.get(key) is None}
    ropes = (data.get("rope_parameters"), data.get("rope_scaling"))
    if any(isinstance(rope, dict) and "rope_theta" in rope for rope in ropes):
        defaults.pop("rope_theta", None)
    if isinstance(row, CompositeModel) and (inside := [k for k, p in row.parts.items() if tree.rotates(p.row)]):
        says = f"{name} rotates in {', '.join(inside)}, and this config holds no part"
        raise Refused(f"{says}; give the whole config, as transformers saves it", Reason.VALUE, *inside)
    if isinstance(row, Row):
        model, keys = row.read(name, {**defaults, **data}, prefix)
    elif (observed := read_by_observing(name, data, path)) is not None:
        model, keys = observed
    else:
        raise _not_known(tree, path, name)
    models = {id(config) for config in tree.parts.values()}
    account_for(model, name, keys, models)
    for above in tree.repeating(path) if isinstance(row, Row) and row.text else ():
        _refuse_above(tree, path, above, keys, models)
    if not path and isinstance(tree.rows.get(str(data.get("model_type"))), CompositeModel):
        model = replace(model, notes=(*model.notes, TEXT_KEYS_AT_TOP))
    for key, value in defaults.items():
        keys.absent(key, f"what the class around it sets, {value!r}")
    return replace(model, model_type=str(data.get("model_type") or name), sources=keys.sources)


def _not_known(tree: ConfigTree, path: str, name: str) -> Refused:
    """The refusal of a type that has no row here, and no class in the transformers that is installed."""
    where = f"model_type{f' of {path}' if path else ''}"
    said = f"{where} {name!r} is not known"
    if not name:
        said = f"{where} is missing, and architectures {tree.config(path).get('architectures')!r} is not known"
    return Refused(
        f"{said}: pair layout and defaults cannot be guessed{near(name, tree.rows)}; observe the loaded model "
        "(phasor.observe), install a transformers that has its class, add a row (phasor.register_model), or describe "
        "it with RotarySpec yourself",
        Reason.AMBIGUOUS,
        f"{path}.model_type".lstrip("."),
    )


def _refuse_above(tree: ConfigTree, path: str, above: str, keys: Keys, models: Collection[int]) -> None:
    """Keys ``above`` the text part must repeat what the part says."""
    inner, prefix = tree.config(path), f"{above}." if above else ""
    for key, value in tree.config(above).items():
        if isinstance(value, dict) and key not in SETTINGS and id(value) not in models:
            refuse_inside(f"{prefix}{key}.", value, models)
        if not isinstance(key, str) or not ROPE_WORDS.search(key) or key in OTHER_POSITIONS or is_neutral(value):
            continue
        Keys([(prefix, {key: value})])  # is a plain word
        if key not in inner:
            raise unread(f"{prefix}{key}", value, f"{path}, of which the code reads it, has no such key", "move it")
        if inner[key] != value:
            raise unread(f"{prefix}{key}", value, f"the code reads {path}.{key}, {inner[key]!r}", "keep that")
        keys.sources[f"{prefix}{key}"] = f"repeats {path}.{key}"


def account_for(model: ModelRotary, name: str, keys: Keys, models: Collection[int]) -> None:
    """Every key about positions, in the config and in its settings, was read, or has no effect; else it is refused.

    ``models``: ids of the dictionaries that are parts of their own.
    """
    known = sorted(keys.used)
    for place, key, value in keys.unused():
        if isinstance(value, dict) and key not in SETTINGS and id(value) not in models:
            refuse_inside(f"{place}{key}.", value, models)
        slip = is_slip(key) or bool(slip_of(key, known) and key not in OTHER_NAMES)
        if not (slip or (value is not None and about_positions(key))) or id(value) in models:
            continue
        claim = _claim(key, value, model)
        neutral = is_neutral(value) and ("theta" not in key or value is None)  # 1.0 and false are no base
        if slip or not (claim or (claim is None and neutral)):
            hint = near(key, (*known, *COMMON)) if slip else ""
            refusal = unread(place + key, value, f"the code of {name} does not read it{hint}")
            refusal.reason = Reason.FOREIGN if key in COMMON else Reason.UNREAD
            raise refusal
        anyway = ", and does that anyway" if claim else ""
        keys.sources[place + key] = f"no effect: the code of {name} does not read it{anyway}"


def _claim(key: str, value: Any, model: ModelRotary) -> bool | None:
    """Whether what a key claims of the model is so; None: it claims nothing that can be told."""
    if key in ROTATES and isinstance(value, bool):
        return value
    if key == "position_embedding_type" and value in ROTARY_KINDS:
        return True
    if key == "layer_types" and isinstance(value, list):
        return all(word in ("full_attention", "attention") for word in value) or None
    so = next((so for names, so in SO.items() if key in names), None)
    if so is None or not isinstance(value, int | float):
        return None
    return {so(spec) for spec in model.distinct} == {value}


SO: dict[tuple[str, ...], Callable[[RotarySpec], float]] = {  # what keys claim, of every layer
    BASES: lambda spec: spec.base,
    HEAD_DIMS: lambda spec: spec.head_dim,
    WIDTHS: lambda spec: spec.rotary_dim,
    SHARES: lambda spec: spec.rotary_dim / spec.head_dim,
    INTERLEAVED: lambda spec: spec.interleaved,
    HALVES: lambda spec: not spec.interleaved,
}


def refuse_inside(path: str, data: dict[str, Any], models: Collection[int]) -> None:
    """Raise ``ValueError`` for a key about positions anywhere inside a dictionary that is no model of its own."""
    for key, value in data.items():
        if is_neutral(value) or id(value) in models:
            continue
        if isinstance(key, str) and ROPE_WORDS.search(key) and about_positions(key):
            name = key if key.isprintable() else repr(key)
            raise not_understood(f"{path}{name}", f"no code looks there for it, {value!r:.80}")
        if isinstance(value, dict):
            refuse_inside(f"{path}{key}.", value, models)
