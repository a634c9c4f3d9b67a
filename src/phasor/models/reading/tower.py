"""Towers of vision and sound: on a grid of patches, as a sequence, or read by a function of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec, Tables
from .keys import Keys, Reading, agreed, is_base, is_dict, is_list, is_share, is_size
from .layers import LARGEST_HEAD, Usual
from .planes import Plane, plane
from .refusal import contradiction, unread
from .rope import EXCHANGED, FRACTION, rope_dicts
from .row import Row, SubModel
from .schemes import TYPES
from .text import TextModel

GridNames = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # hidden size, heads, layers
PLAIN: GridNames = (("hidden_size",), ("num_attention_heads",), ("num_hidden_layers",))
_LEARNED = "learned absolute positions next to the rotation"
_OTHERS = "no effect on the rotation: other positions use it"
_TRAINING = "no effect at inference: moves the coordinates in training"
HARMLESS = {  # keys of towers whose names speak of positions, with what they do
    **dict.fromkeys(("apply_vit_abs_pos_embed", "pos_emb_height", "pos_emb_time", "pos_emb_width"), _LEARNED),
    **dict.fromkeys(("init_pos_emb_height", "init_pos_emb_time", "init_pos_emb_width", "pos_emb_type"), _LEARNED),
    **dict.fromkeys(("posemb_grid_size", "use_absolute_position_embeddings"), _LEARNED),
    **dict.fromkeys(("left_max_position_embeddings", "right_max_position_embeddings"), _OTHERS),
    **dict.fromkeys(("max_source_positions", "t2u_max_position_embeddings"), _OTHERS),
    **dict.fromkeys(("num_conv_pos_embeddings", "num_conv_pos_embedding_groups"), _OTHERS),
    **dict.fromkeys(("pos_embed_jitter", "pos_embed_rescale", "pos_embed_shift"), _TRAINING),
    "enable_temporal_pos_encoding_for_object_pointers": _OTHERS,
    "memory_attention_rope_dropout": "no effect on the rotation: dropout of the attention",
    "memory_attention_rope_feat_sizes": "the grid of the positions",
    "memory_attention_rope_k_sizes": "the grid of the positions of memory keys",
}
PLAIN_TYPES = ("default", "axial", "mrope")


@dataclass(frozen=True)
class TowerConfig(Reading):
    """The config of one tower while it is being read; ``dicts``: where it may have rope parameters."""

    dicts: tuple[str, ...] = ("rope_parameters", "rope_scaling")

    def sizes(self, names: tuple[tuple[str, ...], ...], defaults: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.keys.size_or(d, *n) for n, d in zip(names, defaults, strict=True))

    def head_dim(self, name: str, hidden: int, heads: int) -> int:
        """Channels per head where the code divides ``hidden`` by ``heads``; a stated ``head_dim`` must agree."""
        first, second = f"{self.path}{name}", f"{self.path}num_attention_heads"
        if hidden % heads:
            raise contradiction(first, second, (hidden, heads), "the first must be a multiple of the second")
        self.keys.size("head_dim", most=LARGEST_HEAD)
        width: int = agreed([(f"{first} / number of heads", hidden // heads), *self.keys.entries("head_dim")])
        is_size(f"{first} / number of heads", width, LARGEST_HEAD)
        self.keys.explain(f"head_dim {width}", "head_dim")
        return width

    def base(self, default: float, names: tuple[str, ...] = (EXCHANGED,)) -> float:
        """The base, in the rope parameters or under one of ``names`` at the top; no names: the code has it."""
        entries = self.keys.entries(*names)
        for rope in rope_dicts(self.keys, self.dicts):
            entries += rope.entries(EXCHANGED)
            for path, word in rope.entries(*TYPES):
                if word not in PLAIN_TYPES:
                    raise unread(path, word, f"the code of {self.model_type} knows {', '.join(PLAIN_TYPES)} only")
                self.sources[path] = "no scaling"
            rope.entries(FRACTION)  # refused or read by `share`
            rope.refuse_unused(self.model_type)
        base = self.keys.settle(entries, "base {:.10g}", is_base)
        if base is None:
            self.keys.default((names or (EXCHANGED,))[0], f"base {default:.10g}")
        return float(default if base is None else base)

    def share(self, default: float, most: float = 1.0) -> float:
        """``partial_rotary_factor``, in the rope parameters or at the top."""
        told = "{:g} of the channels of a head rotate"
        share = self.keys.settle(self._shares(), told, lambda path, value: is_share(path, value, most))
        if share is None:
            self.keys.default(FRACTION, f"{default:g}")
        return float(default if share is None else share)

    def _shares(self) -> list[tuple[str, Any]]:
        return [pair for level in (self.keys, *rope_dicts(self.keys, self.dicts)) for pair in level.entries(FRACTION)]

    def whole_head(self) -> None:
        """Refuse a share of the head where the code rotates all of it."""
        if (share := self.share(1.0)) != 1.0:
            where, why = self._shares()[0][0], f"the code of {self.model_type} does not read it"
            raise unread(where, share, why, "write 1, or remove it")
        self.keys.explain("no effect: all channels of a head rotate", FRACTION)


@dataclass(frozen=True, kw_only=True)
class GridTower(Row):
    """A vision tower whose tokens lie on a grid of patches.

    - ``config``, ``code``: the config class, and the class that holds the rotation, in transformers 5.23.
    - ``hidden``, ``heads``, ``layers``: default sizes, which the config has under ``names``.
    - ``layout``: how the coordinates lie on the pairs; ``tables``: where the code rounds cos and sin; ``spec``: further
      fields of its `RotarySpec`.
    - ``base``, and the ``base_names`` under which it may stand at the top of the config; none: it stands in the code.
      ``dicts``: the dictionaries that may hold it.
    - ``kv_heads``: default number of key heads (None: one per query head); ``head_dim``: a default of its own.
    - ``prefix``, ``suffix``: tokens before and after the patches that are not rotated; ``registers``: the default of
      ``num_register_tokens``, which come before the patches too.
    - ``downsample``: a key by whose value the hidden size is divided first.
    - ``kinds``: the words of the layers, where they differ; ``"conv"`` does not rotate.
    - ``after(part, model)``: returns the changed model.
    """

    config: str
    code: str
    hidden: int
    heads: int
    layers: int
    names: GridNames = PLAIN
    layout: Plane = plane
    base: float = 10_000.0
    base_names: tuple[str, ...] = ("rope_theta",)
    dicts: tuple[str, ...] = ("rope_parameters", "rope_scaling")
    tables: Tables = "float32"
    spec: Mapping[str, Any] = field(default_factory=dict)
    kv_heads: int | None = None
    head_dim: int | None = None
    prefix: int = 0
    suffix: int = 0
    registers: int | None = None
    downsample: str = ""
    kinds: Usual | None = None
    after: Callable[[TowerConfig, ModelRotary], ModelRotary] | None = None
    notes: tuple[str, ...] = ()

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """The encoding of every layer, and the keys of the config."""
        keys = Keys([(path, data)], owner=self.config)
        part = TowerConfig(name, keys, dicts=self.dicts)
        hidden, heads, layers = part.sizes(self.names, (self.hidden, self.heads, self.layers))
        kv_heads = heads if self.kv_heads is None else keys.size_or(self.kv_heads, "num_key_value_heads")
        if self.downsample:
            hidden //= keys.size_or(1, self.downsample)
        if self.head_dim is None:
            head_dim = part.head_dim(self.names[0][0], hidden, heads)
        else:
            head_dim = keys.size_or(self.head_dim, "head_dim")
            keys.explain(f"head_dim {head_dim}", "head_dim")
        part.whole_head()
        base = part.base(self.base, self.base_names)
        spec = RotarySpec(head_dim=head_dim, base=base, tables=self.tables, **self.layout(head_dim), **self.spec)
        words, registers = _words(part, layers, self.kinds), 0
        if self.registers is not None:
            registers = keys.size_or(self.registers, "num_register_tokens", at_least=0)
        keys.explain("tokens before the patches that are not rotated", "num_register_tokens")
        centres = spec.coordinates == "real"  # of the patches, from -1 to 1 whatever their number
        model = of_one_spec(
            part, spec, words, heads, num_kv_heads=kv_heads, notes=self.notes, prefix_tokens=self.prefix + registers,
            suffix_tokens=self.suffix, grid={"row": 2.0, "column": 2.0} if centres else {},
        )  # fmt: skip
        return model if self.after is None else self.after(part, model), keys


def of_one_spec(part: TowerConfig, spec: RotarySpec, words: tuple[str, ...], heads: int, **more: Any) -> ModelRotary:
    """A tower whose layers all rotate by one spec; ``words``: the type of each layer, ``"conv"`` where none does."""
    for key, meaning in HARMLESS.items():
        part.keys.explain(meaning, key)
    return ModelRotary(
        model_type=part.model_type, layers=tuple(None if word == "conv" else spec for word in words), layer_types=words,
        num_heads=heads, part=part.path.rstrip("."), sources=part.sources, **more,
    )  # fmt: skip


@dataclass(frozen=True)
class CustomParser(Row):
    """A model whose config a function reads.

    ``config``, ``code``: the config class, and the class that holds the rotation, in transformers 5.23.
    """

    config: str
    code: str
    reader: Callable[[TowerConfig], ModelRotary]

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        keys = Keys([(path, data)], owner=self.config)
        return self.reader(TowerConfig(name, keys)), keys


@dataclass(frozen=True)
class NestedModel(SubModel):
    """A model with sizes of its own in the config of another, read by a row of its own."""

    row: Row

    def read_inside(self, name: str, data: dict[str, Any], path: str, outer: ModelRotary) -> tuple[ModelRotary, Keys]:
        return self.row.read(name, data, path)


@dataclass(frozen=True, kw_only=True)
class SequenceTower(TextModel):
    """A tower whose tokens are a sequence, with the keys of a text model, perhaps under other names.

    - ``code``: the class that rotates; ``renamed``: keys of this config -> the name they have in text models;
      ``nested``: an object inside it that may hold them.
    - ``rotated_heads``: only the first so many heads rotate.
    """

    code: str
    tower: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    nested: str = ""
    rotated_heads: int | None = None

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        model, keys = super().read(name, self.canonical(data, path), path)
        for key, meaning in HARMLESS.items():
            keys.explain(meaning, key)
        return replace(model, heads=self.rotated_heads), keys

    def canonical(self, data: dict[str, Any], path: str) -> dict[str, Any]:
        """The config under the names of text models; two spellings of one size must agree."""
        inner = data.get(self.nested) or {}
        is_dict(path + self.nested, inner)
        places = {key: [(path + key, value)] for key, value in data.items() if key not in (self.nested, *self.renamed)}
        for level, where in ((data, path), (inner, f"{path}{self.nested}.")):
            for key, name in self.renamed.items():
                if level.get(key) is not None:
                    places.setdefault(name, []).append((where + key, level[key]))
        return {name: agreed([pair for pair in pairs if pair[1] is not None]) for name, pairs in places.items()}


def _words(part: TowerConfig, count: int, kinds: Usual | None) -> tuple[str, ...]:
    """One word per layer: what the config says, else what its class makes of it."""
    usual = ["attention"] * count if kinds is None else kinds(part.keys, count)
    words = part.keys.get("layer_types", check=is_list)
    part.keys.explain("the types of the layers", "layer_types")
    if words is None and kinds is not None:
        part.keys.default("layer_types", f"{usual}")
    words = usual if words is None else words
    known = sorted({"full_attention", *usual})
    for i, word in enumerate(words):
        if word not in known:
            raise ValueError(f"{part.path}layer_types[{i}] must be one of {', '.join(known)}, got {word!r}")
    if len(words) != count:
        raise ValueError(f"{part.path}layer_types must have one word per layer, {count} here, got {len(words)}")
    return tuple(words)
