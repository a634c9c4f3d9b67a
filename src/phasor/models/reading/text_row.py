"""What a row of `phasor.models.families` says about the code of one model type, as far as its configs do not say it."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from ...rotary.scaling import Scaling
from ...rotary.spec import Angles, Tables
from ...rotary.temperature import Temperature
from .axes import AxesRule, one_axis
from .heads import HeadsRule
from .keys import Keys
from .layers import Layers, Turns, attends
from .model_row import Row
from .non_rotary import Switch

if TYPE_CHECKING:
    from .model import ModelRotary
    from .spec_fields import Reader

Sizes = tuple[int | None, int | None, int | None, int | None, int | None, int | None]


@dataclass(frozen=True)
class Names:
    """The keys under which a family's configs hold their sizes; several are synonyms that must agree."""

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
    """

    base: float | None
    more: Mapping[str, Any] = field(default_factory=dict)
    top: tuple[str, ...] = ("rope_theta",)
    flat: tuple[str, ...] = ()
    bare: float | None = None


@dataclass(frozen=True)
class Facts(Row):
    """The code of one model type: its config class with its defaults, the keys that it reads, and what it does.

    The config
      - ``config``: the class's name; ``sizes``: its defaults ``(hidden_size, num_attention_heads,
        num_key_value_heads, num_hidden_layers, head_dim, max_position_embeddings)``, which matter because nested
        configs leave out what equals the default; ``names``: the keys of these sizes.
      - ``rope``: the default base, or `Rope`, or one `Rope` per kind of layer where parameters stand under the kind
        (None: these layers do not rotate by default); ``dicts``: the names of the dictionary; ``rope_key``: the kind
        of a layer as the dictionary names it; ``beside``: keys that its code drops beside those kinds.
        ``fills``: kinds stand in ``rope_parameters`` alone, one that is null is filled with defaults, and a flat
        ``rope_scaling`` says ``rope_type``.
      - ``shares``, ``widths``: keys beside the dictionary with the share, or the number, of channels that turn;
        ``base_factor``: a key with a factor on the base; ``bases``: a key that lists one base per layer.
      - ``spelled``: names of schemes that only this family has -> the scheme, or how its keys tell it;
        ``scaled``: False where its code has none.
      - ``reads``: further keys of the code -> what they do, where that is nothing to the rotation.

    The layers
      - ``layers``: which kinds there are, and where; ``turns``: which of them rotate.

    The rotation
      - ``partial``: default share of the channels that turn; None: all turn, whatever the config says. ``width``: a
        default number instead; ``odd``: an odd number is made even after the exponents are divided by it.
      - ``mla``: default (unrotated, rotated) channels of latent attention; the rotated ones come last.
        ``interleave_key``: its code reads ``rope_interleave``.
      - ``interleaved``, ``trailing``, ``permuted``, ``blocks``, ``reverse``, ``learned``, ``tables``, ``angles``: as in
        `RotarySpec`, where ``angles`` are the model's own.
      - ``axes``: how the axes of a position lie on the pairs; ``targets``: what is rotated.
      - ``kv_heads``: the number of key heads, where it is found otherwise; ``heads``: the width of the heads of each
        layer, where layers differ; ``wide``: attention works on so many hidden states side by side; ``rounded_down``:
        hidden_size / num_attention_heads need not come out even.

    Odd functions
      - ``switches``: keys that turn the rotation off. ``before``: sees the keys first;
        may refuse the config, or change the row.
      - ``scale``: changes the scaling; ``temperature``: reads what the rope parameters say about the queries.
      - ``after``: changes what was read.
      - ``write``: puts what ``before``, ``scale``, ``temperature`` and ``after`` read into a config.

    What else is known
      - ``notes``: what the model does beyond the rotation.
    """

    config: str
    rope: float | Rope | Mapping[str, Rope | None]
    sizes: Sizes = (None,) * 6
    _: KW_ONLY
    names: Names = Names()
    dicts: tuple[str, ...] = ("rope_scaling", "rope_parameters")
    rope_key: Callable[[str], str] | None = None
    beside: tuple[str, ...] = ()
    fills: bool = False
    shares: tuple[str, ...] = ("partial_rotary_factor",)
    widths: tuple[str, ...] = ()
    base_factor: str = ""
    bases: str = ""
    spelled: Mapping[str, str | Callable[[Keys], str]] = field(default_factory=dict)
    scaled: bool = True
    reads: Mapping[str, str] = field(default_factory=dict)
    layers: Layers = Layers()  # noqa: RUF009 (frozen)
    turns: Turns = attends
    partial: float | None = None
    width: int | None = None
    odd: bool = False
    mla: tuple[int, int] | None = None
    interleave_key: bool = False
    interleaved: bool = False
    trailing: bool = False
    permuted: bool = False
    blocks: int = 1
    reverse: bool = False
    learned: bool = False
    tables: Tables = "activation"
    angles: Angles = "float32"
    axes: AxesRule = one_axis
    targets: tuple[str, ...] = ("q", "k")
    kv_heads: Callable[[Keys, int], int] | None = None
    wide: int = 1
    rounded_down: bool = False
    heads: HeadsRule | None = None
    switches: tuple[Switch, ...] = ()
    before: Callable[["Facts", Keys], "Facts"] | None = None
    scale: Callable[["Reader", Scaling | None], Scaling | None] | None = None
    temperature: Callable[[Keys], Temperature | None] | None = None
    after: Callable[["ModelRotary", Keys], "ModelRotary"] | None = None
    write: Callable[["ModelRotary", dict[str, Any]], None] | None = None
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> Mapping[str, Rope | None]:
        """The kinds of layers that have parameters of their own; empty if all share one dictionary."""
        return self.rope if isinstance(self.rope, Mapping) else {}

    def defaults(self, kind: str) -> Rope | None:
        """The class's default parameters of one kind of layer; None: those layers do not rotate by default."""
        rope = self.rope.get(kind) if isinstance(self.rope, Mapping) else self.rope
        return rope if rope is None or isinstance(rope, Rope) else Rope(rope)
