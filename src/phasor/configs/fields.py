"""The fields of one spec: base and rotated width, each from its keys or from the family."""

from dataclasses import dataclass
from typing import Any

from ..scaling import Scaling, SteppedNTK
from .family import Family
from .keys import Keys, agreed, is_dict

BASES = ("rope_theta", "rotary_emb_base")
_GEMMA: dict[str, tuple[str, ...]] = {"full_attention": ("rope_theta",), "sliding_attention": ("rope_local_base_freq",)}
_MODERNBERT: dict[str, tuple[str, ...]] = {
    "full_attention": ("global_rope_theta",),
    "sliding_attention": ("local_rope_theta",),
}
BASES_BY_KIND: dict[str, dict[str, tuple[str, ...]]] = {  # keys at the top with the base of one kind of layer
    "gemma3_text": _GEMMA,
    "gemma3n_text": _GEMMA,
    "t5gemma2_text": _GEMMA,
    "t5gemma2_decoder": _GEMMA,
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "mimo_v2_flash": {"full_attention": ("rope_theta",), "sliding_attention": ("swa_rope_theta",)},
    "dots3_note_text": {
        "indexed_attention": ("rope_theta",),
        "full_attention": ("rope_theta",),
        "sliding_attention": ("swa_rope_theta",),
    },
    "deepseek_v4": {"main": ("rope_theta",), "compress": ("compress_rope_theta",)},
}
SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage")
ODD_WIDTH = ("glm4_moe",)  # an odd number of channels is made even after the exponents are divided by it
READS_INTERLEAVE = ("axk1", "deepseek_v3", "glm4_moe_lite", "youtu", "mistral4")


@dataclass(frozen=True)
class Reader:
    """What is known while one config is being read."""

    model_type: str
    family: Family
    keys: Keys
    path: str
    max_position: int | None
    length_key: str  # the key that says max_position, or would

    @property
    def sources(self) -> dict[str, str]:
        return self.keys.sources

    def default(self, key: str, meaning: str) -> None:
        """Record that the config leaves this to its class."""
        self.sources[f"{self.path}{key}"] = f"not in config: {self.family.config}'s default, {meaning}"

    def base_names(self, kind: str) -> tuple[str, ...]:
        """The keys at the top that may hold the base of this kind of layer."""
        by_kind = BASES_BY_KIND.get(self.model_type)
        return BASES if by_kind is None else by_kind.get(kind, ())


@dataclass(frozen=True)
class Width:
    rotary_dim: int
    head_dim: int
    trailing: bool
    interleaved: bool
    permuted: bool = False
    exponent_dim: int | None = None


@dataclass(frozen=True)
class Head:
    """The channels of a layer's heads; ``turned``: how many of them turn, where latent attention says so."""

    channels: int
    turned: int | None = None


def read_base(reader: Reader, kind: str, rope: Keys, default: float | None, own: tuple[float, float] | None) -> float:
    """The base, inside the rope parameters or at the top under one of its names."""
    top = reader.keys
    if own is not None:
        rope.became("no effect: every layer has its own base", "rope_theta")
        if isinstance(top.get("rope_theta"), int | float):
            top.became("no effect: every layer has its own base", "rope_theta")
        return own[0]
    names = reader.base_names(kind)
    found = [*rope.found("rope_theta"), *top.found(*names), *_dbrx_base(reader)]
    base = agreed(found, _above_one)
    if base is None and default is None:
        raise ValueError(f"{reader.path}rope_theta is missing, and {reader.model_type} has no base of its own; add it")
    if base is None:
        base = default
        reader.default(names[0], f"base {base:.10g}")
    for path, _ in found:
        reader.sources[path] = f"base {base:.10g}"
    if reader.model_type == "chatglm" and (ratio := top.number("rope_ratio", above=0)) is not None:
        base *= ratio
        top.became(f"base times {ratio:.10g}: {base:.10g}", "rope_ratio")
    return float(base)


def _above_one(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < float("inf"):
        raise ValueError(f"{path} must be a finite number above 1 (the base of the frequencies), got {value!r}")


def _dbrx_base(reader: Reader) -> list[tuple[str, Any]]:
    """DBRX keeps its base in ``attn_config``; transformers' own reader loses it there."""
    if reader.model_type != "dbrx":
        return []
    inner = reader.keys.get("attn_config", check=is_dict) or {}
    return Keys([(f"{reader.path}attn_config.", inner)], reader.sources).found("rope_theta")


def stepped(reader: Reader, scaling: Scaling | None) -> Scaling | None:
    """Qwen-1's dynamic NTK, whose trained length is ``seq_length`` and not ``max_position_embeddings``."""
    if reader.model_type != "qwen":
        return scaling
    if not reader.keys.flag("use_dynamic_ntk"):
        reader.keys.became("no dynamic NTK", "use_dynamic_ntk")
        return scaling
    length = reader.keys.whole("seq_length")
    if length is None:
        raise ValueError(f"{reader.path}seq_length is missing: use_dynamic_ntk counts from it; add it")
    reader.keys.became("stepped NTK scaling", "use_dynamic_ntk")
    reader.keys.became(f"original_max_position {length}", "seq_length")
    return SteppedNTK(length)


def read_width(reader: Reader, scheme: str, rope: Keys, head: Head, own: tuple[float, float] | None) -> Width:
    """Which channels turn: a share or a number of channels, in as many spellings as there are."""
    family, keys, head_dim = reader.family, reader.keys, head.channels
    if head.turned is not None:
        return _latent_width(reader, rope, head_dim, head.turned)
    shares = keys.found(*SHARES)
    if scheme != "proportional":  # there it is the share of pairs that turn, inside the full width
        shares = [*rope.found("partial_rotary_factor"), *shares]
    for path, value in shares:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ValueError(f"{path} must be a share of the head above 0 and at most 1, got {value!r}")
    stated = [(path, int(head_dim * share)) for path, share in shares]
    if own is not None and own[1] != 1:
        stated.append(("partial_rotary_factors", int(head_dim * own[1])))
    direct = "qk_rope_head_dim" if reader.model_type == "deepseek_v4" else "rotary_dim"
    if keys.whole(direct, at_least=2) is not None:
        stated += keys.found(direct)
    width = agreed(stated)
    if width is None:
        width = head_dim if scheme == "proportional" or own is not None else _default_width(reader, head_dim)
    if family.partial is None and width != head_dim:
        raise ValueError(
            f"{stated[0][0]} makes {width} of {head_dim} channels turn, but the code of {reader.model_type} turns all "
            "of them; remove the key, or describe the encoding with RotarySpec yourself"
        )
    for path, _ in stated:
        reader.sources[path] = f"rotary_dim {width}"
    if width % 2 and reader.model_type in ODD_WIDTH and scheme == "default":
        return Width(width + 1, head_dim, False, family.interleaved, exponent_dim=width)
    return Width(width, head_dim, reader.model_type == "deepseek_v4", family.interleaved)


def _default_width(reader: Reader, head_dim: int) -> int:
    if reader.model_type in ("gptj", "codegen"):
        reader.default("rotary_dim", "64")
        return 64
    share = reader.family.partial
    if share not in (None, 1.0):
        reader.default("partial_rotary_factor", f"{share}")
    return int(head_dim * (1.0 if share is None else share))


def _latent_width(reader: Reader, rope: Keys, head_dim: int, width: int) -> Width:
    """Latent attention: the last ``qk_rope_head_dim`` channels of ``qk_nope_head_dim + qk_rope_head_dim`` turn."""
    family, keys = reader.family, reader.keys
    for level in (rope, keys):
        level.became(f"no effect: qk_rope_head_dim says {width}", "partial_rotary_factor")
    interleaved, flag = family.interleaved, keys.flag("rope_interleave")
    if flag is not None:
        if reader.model_type not in READS_INTERLEAVE and flag != interleaved:
            raise ValueError(
                f"rope_interleave is {flag}, but the code of {reader.model_type} does not read it; remove the key"
            )
        interleaved = flag
        keys.became("interleaved pairs" if flag else "halves", "rope_interleave")
    return Width(width, head_dim, True, interleaved, permuted=interleaved and family.permuted)
