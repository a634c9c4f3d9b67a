"""Towers whose tokens lie on a grid of patches: what a line of the vision table says, and how it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...rotary.spec import RotarySpec, Tables
from .keys import Keys, is_list
from .model import ModelRotary
from .model_row import Row
from .part import Part
from .planes import Plane, plane

GridNames = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # hidden size, heads, layers
PLAIN: GridNames = (("hidden_size",), ("num_attention_heads",), ("num_hidden_layers",))
SHORT: GridNames = (("hidden_size",), ("num_heads", "num_attention_heads"), ("depth", "num_hidden_layers"))
_LEARNED = "learned absolute positions beside the rotation"
_OTHERS = "no effect on the rotation: other positions use it"
_TRAINING = "no effect at inference: moves the coordinates in training"
HARMLESS = {  # keys of towers whose names speak of positions, with what they do
    **dict.fromkeys(("apply_vit_abs_pos_embed", "pos_emb_height", "pos_emb_time", "pos_emb_width"), _LEARNED),
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


@dataclass(frozen=True, kw_only=True)
class Grid(Row):
    """One vision tower: what its config class leaves out, and what its code does.

    - ``config``, ``code``: the config class, and the class that holds the rotation, in transformers 5.23.
    - ``harmless``: keys about positions that do not touch the rotation -> what they do.
    - ``sizes``: default hidden size, heads and layers, which the config has under ``names``.
    - ``layout``: how the coordinates lie on the pairs; ``tables``: where the code rounds cos and sin.
    - ``base``, and the ``base_names`` under which it may stand at the top of the config; none: it stands in the code.
      ``dicts``: the dictionaries that may hold it.
    - ``kv_heads``: default number of key heads (None: one per query head); ``head_dim``: a default of its own.
    - ``prefix``, ``suffix``: tokens before and after the patches that are not rotated; ``registers``: the default of
      ``num_register_tokens``, which come before the patches too.
    - ``downsample``: a key by whose value the hidden size is divided first.
    - ``kinds``: number of layers -> the words of these layers, where they differ; ``"conv"`` does not rotate.
    """

    config: str
    code: str
    sizes: tuple[int, int, int]
    names: GridNames = PLAIN
    layout: Plane = plane
    base: float = 10_000.0
    base_names: tuple[str, ...] = ("rope_theta",)
    dicts: tuple[str, ...] = ("rope_parameters", "rope_scaling")
    tables: Tables = "float32"
    kv_heads: int | None = None
    head_dim: int | None = None
    prefix: int = 0
    suffix: int = 0
    registers: int | None = None
    downsample: str = ""
    kinds: Callable[[int], list[str]] | None = None
    notes: tuple[str, ...] = ()
    harmless: Mapping[str, str] = field(default_factory=lambda: HARMLESS)

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """The encoding of every layer, and the keys of the config."""
        keys = Keys([(path, data)], {})
        return self.of(Part(name, self.config, keys, path, self.dicts)), keys

    def of(self, part: Part) -> ModelRotary:
        """The encoding of a part whose keys may be used otherwise, too."""
        hidden, heads, layers = part.sizes(self.names, self.sizes)
        kv_heads = heads if self.kv_heads is None else part.size(("num_key_value_heads",), self.kv_heads)
        head_dim = self._head_dim(part, hidden, heads)
        part.whole_head()
        base = part.base(self.base, self.base_names)
        spec = RotarySpec(head_dim=head_dim, base=base, tables=self.tables, **self.layout(head_dim))
        words = _words(part, layers, self.kinds)
        registers = 0 if self.registers is None else part.size(("num_register_tokens",), self.registers, at_least=0)
        part.keys.explain("tokens before the patches that are not rotated", "num_register_tokens")
        for key, meaning in self.harmless.items():
            part.keys.explain(meaning, key)
        return ModelRotary(
            model_type=part.model_type, layers=tuple(None if w == "conv" else spec for w in words), layer_types=words,
            num_heads=heads, num_kv_heads=kv_heads, part=part.path.rstrip("."), sources=part.keys.sources,
            notes=self.notes, prefix_tokens=self.prefix + registers, suffix_tokens=self.suffix,
        )  # fmt: skip

    def _head_dim(self, part: Part, hidden: int, heads: int) -> int:
        if self.downsample:
            hidden //= part.size((self.downsample,), 1)
        if self.head_dim is None:
            return part.head_dim(self.names[0][0], hidden, heads)
        width = part.size(("head_dim",), self.head_dim)
        part.keys.explain(f"head_dim {width}", "head_dim")
        return width


def _words(part: Part, count: int, kinds: Callable[[int], list[str]] | None) -> tuple[str, ...]:
    """One word per layer: what the config says, else what its class makes of it."""
    usual = ["attention"] * count if kinds is None else kinds(count)
    words = part.keys.get("layer_types", check=is_list)
    part.keys.explain("the types of the layers", "layer_types")
    if words is None and kinds is not None:
        part.default("layer_types", f"{usual}")
    words = usual if words is None else words
    known = sorted({"full_attention", *usual})
    for i, word in enumerate(words):
        if word not in known:
            raise ValueError(f"{part.path}layer_types[{i}] must be one of {', '.join(known)}, got {word!r}")
    if len(words) != count:
        raise ValueError(f"{part.path}layer_types must have one word per layer, {count} here, got {len(words)}")
    return tuple(words)
