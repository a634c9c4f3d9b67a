"""The row of a text model: what its code does, as far as its configs do not say it."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import Tables
from .axes import AxesRule, one_axis
from .keys import Keys, Reading
from .layers import HeadsRule, Layers, Rotates, attends
from .row import RotaryFlag, Row

SpecFields = dict[str, Any]


@dataclass(frozen=True)
class Names:
    """The keys under which a family's configs hold their sizes; several are synonyms that must agree.

    >>> Names(heads=("n_heads", "num_heads")).layers
    ('num_hidden_layers',)
    """

    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    head_dim: tuple[str, ...] = ("head_dim",)
    length: tuple[str, ...] = ("max_position_embeddings",)


ANY_NAMES = Names(
    hidden=("hidden_size", "n_embd", "d_model", "dim"),
    heads=("num_attention_heads", "n_head", "n_heads", "num_heads"),
    kv_heads=("num_key_value_heads", "n_kv_heads", "n_head_kv"),
    layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    length=("max_position_embeddings", "n_positions", "max_seq_len"),
)


@dataclass(frozen=True)
class Rope:
    """Default rope parameters of one kind of layer, and where else a config may state its base.

    - ``base``: the class's default; None: the config must say it. ``more``: further default parameters.
    - ``bare``: the base of a dictionary that states none, where it is another.
    - ``top``: keys beside the dictionary that may hold the base.
    - ``flat``: names of dictionaries that hold for these layers though they do not name them.
    - ``layer_types``: the layers it holds for, where its name in the dictionary is not their type.

    >>> Rope(10_000.0, top=("rotary_emb_base",)).top
    ('rotary_emb_base',)
    """

    base: float | None
    more: Mapping[str, Any] = field(default_factory=dict)
    top: tuple[str, ...] = ("rope_theta",)
    flat: tuple[str, ...] = ()
    bare: float | None = None
    layer_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextRow(Row):
    """The fields of a `TextModel`, which describes them, without its reader."""

    config: str
    _: KW_ONLY
    base: float | None = None
    rope: Rope | Mapping[str, Rope | None] | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | Callable[[Keys, int], int] | None = None
    layers: int | None = None
    head_dim: int | Callable[[int, int], float] | None = None
    length: int | None = None
    names: Names = Names()
    dicts: tuple[str, ...] = ("rope_scaling", "rope_parameters")
    fills_defaults: bool = False
    shares: tuple[str, ...] = ("partial_rotary_factor",)
    widths: tuple[str, ...] = ()
    width: int | None = None
    bases: str = ""
    scheme_names: Mapping[str, str | Callable[[Keys], str]] = field(default_factory=dict)
    scaled: bool = True
    reads: Mapping[str, str] = field(default_factory=dict)
    layer_types: Layers = Layers()  # noqa: RUF009 (frozen)
    rotates: Rotates = attends
    head_widths: HeadsRule | None = None
    partial: float | None = None
    mla: tuple[int, int] | None = None
    interleave_key: bool = False
    interleaved: bool = False
    permuted: bool = False
    tables: Tables = "activation"
    spec: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ("q", "k")
    axes: AxesRule = one_axis
    rotary_flags: tuple[RotaryFlag, ...] = ()
    before: Callable[["TextRow", Keys], "TextRow"] | None = None
    adjust: Callable[[Reading, Keys, SpecFields], SpecFields] | None = None
    after: Callable[[ModelRotary, Keys], ModelRotary] | None = None
    write: Callable[[ModelRotary, dict[str, Any]], None] | None = None
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> Mapping[str, Rope | None]:
        """The kinds of layers that have parameters of their own; empty if all share one dictionary."""
        return self.rope if isinstance(self.rope, Mapping) else {}

    def kind_of(self, layer_type: str) -> str:
        """The kind under which the rope parameters of a layer stand; ``""`` where all share them."""
        names = [kind for kind, rope in self.kinds.items() if rope is not None and layer_type in rope.layer_types]
        return (names or [layer_type if self.kinds else ""])[0]

    def defaults(self, kind: str) -> Rope | None:
        """The class's default parameters of one kind of layer; None: those layers do not rotate by default."""
        if isinstance(self.rope, Mapping):
            return self.rope.get(kind)
        return Rope(self.base) if self.rope is None else self.rope


@dataclass(frozen=True)
class TextReading(Reading):
    """What is known while one text config is being read by its row."""

    row: TextRow = field(kw_only=True)
