"""Indexers of sparse attention: small attentions that choose the keys of the main one, with rotations of their own.

They use the main attention's frequencies on heads of another width, and often in another layout.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from .keys import Keys, agreed, is_size
from .layers import LARGEST_HEAD
from .row import SubModel, no_rotary


@dataclass(frozen=True)
class Indexer(SubModel):
    """The indexer of one family: default width and number of heads, layout, and the kind of layers that have one.

    ``names``: the keys of its width and heads; ``nested``: an object that may hold them, under the names ``inside``.
    ``every``: where no key says which layers have one of their own, the first has, and each so-many-th from the second.
    """

    reads: ClassVar[tuple[str, ...]] = ("indexer_rope_interleave",)

    head_dim: int | None
    heads: int | None
    interleaved: bool = False
    permuted: bool = False
    trailing: bool = False
    word: str = "indexed_attention"
    names: tuple[str, str] = ("index_head_dim", "index_n_heads")
    nested: str = ""
    inside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    every: int = 1

    def is_present(self, data: dict[str, Any]) -> bool:
        return self.head_dim is not None or data.get(self.names[0]) is not None

    def read_inside(self, name: str, data: dict[str, Any], path: str, outer: ModelRotary) -> tuple[ModelRotary, Keys]:
        """The indexer of the attention ``outer``, which was read from the same config."""
        keys, count, kind_key = Keys([(path, data)]), len(outer.layers), "indexer_types"
        head_dim, heads = self._sizes(name, keys)
        flag = keys.flag(*self.reads)
        agreed([(f"the code of {name}", self.interleaved), *keys.entries(*self.reads)])
        keys.explain("interleaved pairs" if flag else "halves", *self.reads)
        usual = ["full" if not i or (i - 1) % self.every == 0 else "shared" for i in range(count)]
        kinds = keys.get(kind_key) or usual
        if not isinstance(kinds, list | tuple) or len(kinds) < count:
            raise ValueError(f"{path}{kind_key} must have one word per layer, {count} here, got {kinds!r:.80}")
        keys.explain("which layers have an indexer of their own", kind_key)
        layers = tuple(
            None if spec is None or word != self.word or kind == "shared" else self._spec(spec, head_dim)
            for spec, word, kind in zip(outer.layers, outer.layer_types, kinds, strict=False)
        )
        if not any(layers):
            raise no_rotary(name, f"has an indexer in none of its {count} layers")
        model = replace(
            outer, layers=layers, num_heads=heads, num_kv_heads=1, targets=("q", "k"), softmax_factor=1.0,
            sources={**outer.sources, **keys.sources}, notes=self.notes,
        )  # fmt: skip
        return model, keys

    def _sizes(self, name: str, keys: Keys) -> list[int]:
        """Width and number of heads, under their names or in the object that may hold them."""
        nested = keys.inside(self.nested) if self.nested else Keys([])
        sizes = []
        for key, default, inside in zip(
            self.names, (self.head_dim, self.heads), self.inside or self.names, strict=True
        ):
            size = agreed([*keys.entries(key), *nested.entries(inside)], lambda p, v: is_size(p, v, LARGEST_HEAD))
            if size is None and default is None:
                raise ValueError(f"{keys.path}{key} is missing: the indexer of {name} needs it; add it")
            keys.sources[keys.path + key] = (
                f"{key} {size}" if size else f"not in config: its class's default, {default}"
            )
            sizes.append(size or default or 0)
        return sizes

    def _spec(self, spec: RotarySpec, head_dim: int) -> RotarySpec:
        return spec.replace(
            head_dim=head_dim, rotary_dim=spec.rotary_dim, interleaved=self.interleaved, permuted=self.permuted,
            trailing=self.trailing,
        )  # fmt: skip
