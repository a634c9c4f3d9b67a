"""One text config in Hugging Face's format -> the rotary encoding of its layers."""

from dataclasses import dataclass
from typing import Any

from ..axes import Axes, InterleavedSections, OneAxis, Sections
from ..checks import whole
from ..scaling import Scaling, SteppedNTK, YaRN
from ..scaling.yarn import magnitude
from ..spec import RotarySpec
from .family import Family
from .keys import Keys, agreed, is_dict
from .layers import layer_types, rotating
from .model import ModelRotary
from .quirks import checked_position_type, head_widths, layer_bases, notes_of, temperature, unscaled
from .scalings import Setting, read_scaling, scaling_type
from .sizes import read_sizes

# layer label of the rope parameters, where it is not the layer's type
LABELS = {"deepseek_v4": lambda word: "main" if word == "sliding_attention" else "compress"}
# keys at the top that hold the base of one label; every other label reads rope_theta
BASE_KEYS = {
    "sliding_attention": ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta"),
    "full_attention": ("rope_theta", "global_rope_theta"),
    "main": ("rope_theta",),
    "compress": ("compress_rope_theta",),
}
BASES = ("rope_theta", "rotary_emb_base")
WIDTHS = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage")
BOTH_SCALED = ("modernbert", "modernbert-decoder")  # a legacy rope_scaling holds for full attention only elsewhere
READS_INTERLEAVE = ("axk1", "deepseek_v3", "glm4_moe_lite", "youtu", "mistral4")


@dataclass
class Reader:
    """What is known while one config is being read."""

    model_type: str
    family: Family
    keys: Keys
    path: str
    head_dim: int
    max_position: int | None

    @property
    def sources(self) -> dict[str, str]:
        return self.keys.sources

    def default(self, key: str, meaning: str) -> None:
        self.sources[f"{self.path}{key}"] = f"not in config: {self.family.config}'s default, {meaning}"


def read_text_config(model_type: str, family: Family, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
    """The encoding of one text config, and its keys for the final check that nothing was left out."""
    keys = Keys([(path, data)], {})
    checked_position_type(model_type, keys)
    sizes = read_sizes(family, keys, path)
    reader = Reader(model_type, family, keys, path, sizes.head_dim, sizes.max_position)
    words = layer_types(model_type, keys, sizes.layers)
    turns = rotating(model_type, keys, words)
    if not any(turns):
        raise ValueError(f"{model_type} rotates in none of its {sizes.layers} layers; it has no rotary embedding to read")
    rope = _rope_places(reader, words)
    heads = head_widths(model_type, keys, words, sizes.head_dim)
    bases = layer_bases(model_type, keys, words)
    plain = unscaled(model_type, keys, sizes.layers)
    turns = tuple(t and (own is None or own[0] > 0) for t, own in zip(turns, bases, strict=True))
    built: dict[Any, tuple[RotarySpec | None, float]] = {}
    layers: list[RotarySpec | None] = []
    label_of = LABELS.get(model_type, lambda word: word)
    for i, word in enumerate(words):
        key = (label_of(word), heads[i], bases[i])
        if turns[i] and key not in built:
            built[key] = _spec(reader, key[0], rope, heads[i], bases[i])
        spec = built[key][0] if turns[i] else None
        layers.append(spec.replace(scaling=None) if spec is not None and plain[i] else spec)
    if all(spec is None for spec in layers):
        raise ValueError(f"{model_type} rotates in none of its layers; it has no rotary embedding to read")
    _without_effect(reader, rope, {label for label, _, _ in built})
    softmax = {factor for spec, factor in built.values() if spec is not None}
    model = ModelRotary(
        model_type=model_type, layers=tuple(layers), layer_types=words, num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads, max_position=sizes.max_position, part=path.rstrip("."), sources=keys.sources,
        softmax_factor=softmax.pop(), notes=notes_of(model_type, keys, layers),
    )  # fmt: skip
    return model, keys


def _rope_places(reader: Reader, words: tuple[str, ...]) -> dict[str, Keys | None] | Keys:
    """The rope parameters: one level for all layers, or one per label (None: that label does not rotate)."""
    keys, family = reader.keys, reader.family
    found = keys.found("rope_scaling", "rope_parameters", "rope")
    for path, value in found:
        is_dict(path, value)
    places = [(f"{path}.", value) for path, value in found if value]
    labelled = not isinstance(family.rope, float) and _labels(family.rope)
    if reader.model_type == "step3p5":
        labelled = ("full_attention", "sliding_attention")
    if not labelled:
        return Keys(places, keys.sources)
    levels: dict[str, Keys | None] = {}
    for label in labelled:
        inside = [(p, d[label]) for p, d in places if label in d]
        for p, value in inside:
            if value is not None:
                is_dict(p + label, value)
        if inside and all(value is None for _, value in inside):
            keys.sources[inside[0][0] + label] = "no rotation in these layers"
            levels[label] = None
            continue
        own = [(f"{p}{label}.", value) for p, value in inside if value is not None]
        levels[label] = Keys(own, keys.sources)
    for p, d in places:
        nested = [label for label in labelled if label in d]
        outer = {k: v for k, v in d.items() if k not in labelled}
        if not outer:
            continue
        level = Keys([(p, outer)], keys.sources)
        if nested and set(outer) - {"rope_type", "type"}:
            level.refuse_unused(f"{reader.model_type}, whose parameters stand per layer type,")
        if nested:
            continue
        scaled = labelled if reader.model_type in BOTH_SCALED else [n for n in labelled if n in ("full_attention", "compress")]
        for label in scaled:
            levels[label] = level
    return levels


def _without_effect(reader: Reader, rope: dict[str, Keys | None] | Keys, labels: set[str]) -> None:
    """Account for keys that speak of what this model does not have."""
    keys = reader.keys
    if isinstance(rope, dict):
        for label in set(rope) - labels:
            keys.became(f"no effect: no layer is of type {label}", *BASE_KEYS.get(label, ()))
    name = "original_max_position_embeddings"
    for path, value in keys.found(name):
        whole(path, value)
        keys.sources.setdefault(path, "no effect without a scaling that needs it")


def _labels(rope: Any) -> tuple[str, ...]:
    nested = isinstance(rope, dict) and all(v is None or isinstance(v, dict) for v in rope.values())
    return tuple(rope) if nested else ()


def _spec(
    reader: Reader, label: str, places: dict[str, Keys | None] | Keys, head_dim: int, layer_base: tuple[float, float] | None
) -> tuple[RotarySpec | None, float]:
    """The spec of the layers under one label, and the factor on their softmax scale."""
    family, top = reader.family, reader.keys
    defaults: Any = family.rope
    if isinstance(places, dict):
        if label not in places:
            raise ValueError(f"{reader.model_type} has layers of type {label!r} without rope parameters; known: {list(places)}")
        rope, defaults = places[label], family.rope[label] if isinstance(family.rope, dict) and label in family.rope else None
        if rope is None or (not rope.places and defaults is None and reader.model_type != "step3p5"):
            return None, 1.0
    else:
        rope = places
    if not isinstance(defaults, dict):
        defaults = {} if defaults is None else {"rope_theta": defaults}
    if not rope.places:
        rest = {k: v for k, v in defaults.items() if k not in ("rope_theta", "partial_rotary_factor")}
        if rest:
            reader.default("rope_parameters", str(rest))
        rope = Keys([(f"{family.config}'s default ", {k: v for k, v in defaults.items() if k != "rope_theta"})], {})
    name = scaling_type(rope, Setting(reader.model_type, top, reader.max_position))
    base = _base(reader, label, rope, defaults.get("rope_theta"), layer_base)
    setting = Setting(reader.model_type, top, reader.max_position)
    scaling = read_scaling(name, rope, setting)
    if reader.model_type == "qwen" and top.flag("use_dynamic_ntk") is not None:
        scaling = _stepped(reader, scaling)
    if reader.model_type == "deepseek_v4" and isinstance(scaling, YaRN) and scaling.attention is None:
        scaling = YaRN(**{**vars(scaling), "attention": 1.0})  # its code scales neither cos and sin nor the softmax
    width, head_dim, trailing, interleaved = _width(reader, name, rope, head_dim, layer_base)
    axes = _axes(reader, rope, width)
    temperature(reader.model_type, rope, top)
    rope.refuse_unused(f"{reader.model_type} with {'no' if name == 'default' else name} scaling")
    try:
        spec = RotarySpec(
            head_dim=head_dim, rotary_dim=width, base=base, interleaved=interleaved, trailing=trailing,
            scaling=scaling, axes=axes, tables=family.tables,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"the {label} layers of this {reader.model_type} config: {error}") from None
    return spec, _softmax_factor(family, scaling)


def _base(reader: Reader, label: str, rope: Keys, default: float | None, layer_base: tuple[float, float] | None) -> float:
    """The base, inside the rope parameters or at the top under one of its names."""
    top = reader.keys
    if layer_base is not None:
        rope.became("no effect: every layer has its own base", "rope_theta")
        if isinstance(top.get("rope_theta"), int | float):
            top.became("no effect: every layer has its own base", "rope_theta")
        return layer_base[0]
    per_label = not isinstance(reader.family.rope, float) and bool(_labels(reader.family.rope))
    names = BASES
    if per_label and label in BASE_KEYS:
        names = BASE_KEYS[label] if reader.model_type not in ("olmo3", "ultrabert") else BASES
    found = [*rope.found("rope_theta"), *top.found(*names), *_nested_base(reader)]
    base = agreed(found, lambda p, v: _above_one(p, v))
    if base is None:
        if default is None:
            raise ValueError(f"{reader.path}rope_theta is missing, and {reader.model_type} has no base of its own; add it")
        base = default
        reader.default(names[0] if len(names) > 0 else "rope_theta", f"base {base:.10g}")
    for path, _ in found:
        reader.sources[path] = f"base {base:.10g}"
    if reader.model_type == "chatglm" and (ratio := top.number("rope_ratio", above=0)) is not None:
        base *= ratio
        top.became(f"base times {ratio:.10g}: {base:.10g}", "rope_ratio")
    return float(base)


def _stepped(reader: Reader, scaling: Scaling | None) -> Scaling | None:
    """Qwen-1's dynamic NTK, whose trained length is ``seq_length`` and not ``max_position_embeddings``."""
    if not reader.keys.flag("use_dynamic_ntk"):
        reader.keys.became("no dynamic NTK", "use_dynamic_ntk")
        return scaling
    length = reader.keys.whole("seq_length")
    if length is None:
        raise ValueError(f"{reader.path}seq_length is missing: use_dynamic_ntk counts from it; add it")
    reader.keys.became("stepped NTK scaling", "use_dynamic_ntk")
    reader.keys.became(f"original_max_position {length}", "seq_length")
    return SteppedNTK(length)


def _above_one(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < float("inf"):
        raise ValueError(f"{path} must be a finite number above 1 (the base of the frequencies), got {value!r}")


def _nested_base(reader: Reader) -> list[tuple[str, Any]]:
    """DBRX keeps its base in ``attn_config``; transformers' own reader loses it there."""
    if reader.model_type != "dbrx":
        return []
    inner = reader.keys.get("attn_config", check=is_dict) or {}
    return Keys([(f"{reader.path}attn_config.", inner)], reader.sources).found("rope_theta")


def _width(
    reader: Reader, name: str, rope: Keys, head_dim: int, layer_base: tuple[float, float] | None
) -> tuple[int, int, bool, bool]:
    """``(rotary_dim, head_dim, trailing, interleaved)``."""
    family, keys = reader.family, reader.keys
    if family.mla is not None:
        return _latent_width(reader, rope)
    found = [*([] if name == "proportional" else rope.found("partial_rotary_factor")), *keys.found(*WIDTHS)]
    for path, value in found:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ValueError(f"{path} must be a share of the head above 0 and at most 1, got {value!r}")
    widths: list[tuple[str, Any]] = [] if name == "proportional" else [(p, int(head_dim * v)) for p, v in found]
    if layer_base is not None and layer_base[1] != 1:
        widths.append(("partial_rotary_factors", int(head_dim * layer_base[1])))
    dim = keys.whole("rotary_dim" if reader.model_type != "deepseek_v4" else "qk_rope_head_dim", at_least=2)
    if dim is not None:
        widths += [(p, v) for p, v in keys.found("rotary_dim", "qk_rope_head_dim")]
    width = agreed(widths)
    if width is None and name == "proportional":
        width = head_dim
    if width is None:
        if family.partial not in (None, 1.0) and layer_base is None:
            reader.default("partial_rotary_factor", f"{family.partial}")
        width = int(head_dim * (family.partial or 1.0))
        if reader.model_type in ("gptj", "codegen"):
            width = 64
            reader.default("rotary_dim", "64")
    if family.partial is None and width != head_dim:
        path = widths[0][0]
        raise ValueError(
            f"{path} makes {width} of {head_dim} channels turn, but the code of {reader.model_type} turns all of "
            "them; remove the key, or describe the encoding with RotarySpec yourself"
        )
    for path, _ in widths:
        reader.sources[path] = f"rotary_dim {width}"
    return width, head_dim, reader.model_type == "deepseek_v4", family.interleaved


def _latent_width(reader: Reader, rope: Keys) -> tuple[int, int, bool, bool]:
    """Latent attention: the last ``qk_rope_head_dim`` channels of ``qk_nope_head_dim + qk_rope_head_dim`` turn."""
    family, keys = reader.family, reader.keys
    assert family.mla is not None
    sizes = []
    for name, default in zip(("qk_nope_head_dim", "qk_rope_head_dim"), family.mla, strict=True):
        size = keys.whole(name)
        if size is None:
            reader.default(name, str(default))
        sizes.append(default if size is None else size)
    nope, width = sizes
    keys.became(f"head_dim {nope + width}, the last {width} channels turn", "qk_nope_head_dim", "qk_rope_head_dim")
    if (total := keys.whole("qk_head_dim")) is not None:
        agreed([("qk_nope_head_dim + qk_rope_head_dim", nope + width), *keys.found("qk_head_dim")])
        keys.became(f"head_dim {total}", "qk_head_dim")
    keys.became("no effect: latent attention has its own widths", "head_dim")
    for path, _ in [*rope.found("partial_rotary_factor"), *keys.found("partial_rotary_factor")]:
        reader.sources[path] = f"no effect: qk_rope_head_dim says {width}"
    interleaved = family.interleaved
    if (flag := keys.flag("rope_interleave")) is not None:
        if reader.model_type not in READS_INTERLEAVE and flag != interleaved:
            raise ValueError(f"rope_interleave is {flag}, but the code of {reader.model_type} does not read it; remove it")
        interleaved = flag
        keys.became("interleaved pairs" if flag else "halves", "rope_interleave")
    return width, nope + width, True, interleaved


def _axes(reader: Reader, rope: Keys, width: int) -> Axes:
    family = reader.family
    sections = rope.wholes("mrope_section")
    striped = rope.flag("mrope_interleaved", "interleaved")
    default = family.striped or family.sections
    scheme = InterleavedSections if family.striped else Sections
    if sections is None and default is None:
        if striped is not None:
            raise ValueError(f"{rope.found('mrope_interleaved', 'interleaved')[0][0]} has no mrope_section beside it; add it")
        return OneAxis()
    if default is None and reader.model_type != "llama":
        raise ValueError(
            f"{rope.found('mrope_section')[0][0]} is given, but {reader.model_type} has positions with one axis; "
            "describe the encoding with RotarySpec yourself"
        )
    if striped is not None and striped != bool(family.striped):
        raise ValueError(
            f"{rope.found('mrope_interleaved', 'interleaved')[0][0]} is {striped}, but {reader.model_type}'s code has "
            f"{'interleaved' if family.striped else 'contiguous'} sections only"
        )
    rope.became("sections take turns" if striped else "contiguous sections", "mrope_interleaved", "interleaved")
    if sections is None:
        assert default is not None
        reader.sources[f"{reader.path}mrope_section"] = f"not in config: the code of {reader.model_type} uses {list(default)}"
    rope.became(f"M-RoPE sections {sections}", "mrope_section")
    return scheme(tuple(sections or default or ()))


def _softmax_factor(family: Family, scaling: Scaling | None) -> float:
    """DeepSeek multiplies the softmax scale by ``magnitude(factor, mscale_all_dim) ** 2``."""
    if family.mla is None or not isinstance(scaling, YaRN) or not scaling.mscale_all_dim:
        return 1.0
    return magnitude(scaling.factor, scaling.mscale_all_dim) ** 2
