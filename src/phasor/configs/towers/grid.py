"""Towers whose tokens lie on a grid of patches: what a line of the vision table says, and how it is read."""

from collections.abc import Callable
from dataclasses import dataclass

from ...spec import RotarySpec, Tables
from ..keys import is_list
from ..model import ModelRotary
from .layouts import Layout, plane
from .part import Part

Names = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # hidden size, heads, layers
PLAIN: Names = (("hidden_size",), ("num_attention_heads",), ("num_hidden_layers",))
SHORT: Names = (("hidden_size",), ("num_heads", "num_attention_heads"), ("depth", "num_hidden_layers"))
MEMORY: Names = (
    ("memory_attention_hidden_size",),
    ("memory_attention_num_attention_heads",),
    ("memory_attention_num_layers",),
)


@dataclass(frozen=True)
class Grid:
    """One vision tower: what its config class leaves out, and what its code does.

    - ``config``, ``code``: the config class, and the class that holds the rotation, in transformers 5.23.
    - ``sizes``: default hidden size, heads and layers, which the config has under ``names``.
    - ``layout``: how the coordinates lie on the pairs; ``tables``: where the code rounds cos and sin.
    - ``base``, and the ``base_names`` under which it may stand at the top of the config.
    - ``kv_heads``: default number of key heads (None: one per query head); ``head_dim``: a default of its own.
    - ``prefix``, ``suffix``: tokens before and after the patches that are not rotated; ``registers``: the default of
      ``num_register_tokens``, which come before the patches too.
    - ``kinds``: number of layers -> the words of these layers, where they differ; ``"conv"`` does not rotate.
    """

    config: str
    code: str
    sizes: tuple[int, int, int]
    names: Names = PLAIN
    layout: Layout = plane
    base: float = 10_000.0
    base_names: tuple[str, ...] = ("rope_theta",)
    tables: Tables = "float32"
    kv_heads: int | None = None
    head_dim: int | None = None
    prefix: int = 0
    suffix: int = 0
    registers: int | None = None
    kinds: Callable[[int], list[str]] | None = None
    notes: tuple[str, ...] = ()

    def read(self, part: Part) -> ModelRotary:
        """The encoding of every layer."""
        hidden, heads, layers = part.sizes(self.names, self.sizes)
        kv_heads = heads if self.kv_heads is None else part.size(("num_key_value_heads",), self.kv_heads)
        head_dim = self._head_dim(part, hidden, heads)
        part.whole_head()
        base = part.base(self.base, *self.base_names)
        spec = RotarySpec(head_dim=head_dim, base=base, tables=self.tables, **self.layout(head_dim))
        words = _words(part, layers, self.kinds)
        registers = 0 if self.registers is None else part.size(("num_register_tokens",), self.registers, at_least=0)
        part.keys.became("tokens before the patches that are not rotated", "num_register_tokens")
        part.harmless()
        return ModelRotary(
            model_type=part.model_type, layers=tuple(None if w == "conv" else spec for w in words), layer_types=words,
            num_heads=heads, num_kv_heads=kv_heads, part=part.path.rstrip("."), sources=part.keys.sources,
            notes=self.notes, prefix_tokens=self.prefix + registers, suffix_tokens=self.suffix,
        )  # fmt: skip

    def _head_dim(self, part: Part, hidden: int, heads: int) -> int:
        if self.names is MEMORY:
            hidden //= part.size(("memory_attention_downsample_rate",), 1)
        if self.head_dim is None:
            return part.head_dim(self.names[0][0], hidden, heads)
        width = part.size(("head_dim",), self.head_dim)
        part.keys.became(f"head_dim {width}", "head_dim")
        return width


def convolutions(count: int) -> list[str]:
    """LFM3's tower: attention in layers 2, 4, 6, …

    >>> convolutions(4)
    ['conv', 'conv', 'full_attention', 'conv']
    """
    return ["conv" if i < 2 or i % 2 else "full_attention" for i in range(count)]


def windows(count: int) -> list[str]:
    """The Muse towers: windows, except in every fourth layer and in the last.

    >>> windows(6)[2:]
    ['window_attention', 'full_attention', 'window_attention', 'full_attention']
    """
    return ["window_attention" if (i + 1) % 4 and i + 1 < count else "full_attention" for i in range(count)]


def _words(part: Part, count: int, kinds: Callable[[int], list[str]] | None) -> tuple[str, ...]:
    """One word per layer: what the config says, else what its class makes of it."""
    usual = ["attention"] * count if kinds is None else kinds(count)
    words = part.keys.get("layer_types", check=is_list)
    part.keys.became("the types of the layers", "layer_types")
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
