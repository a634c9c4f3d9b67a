"""One text config in Hugging Face's format -> the rotary encoding of its layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from ...rotary.temperature import Temperature
from ...support.checks import number
from .keys import Keys, is_list
from .layers import ATTENTION, Head, read_heads, read_windows
from .refusal import Reason, Refused, unread
from .rope import EXCHANGED, ListedBase, account_for_rest, class_default, read_base, read_width, rope_levels
from .row import no_rotary
from .schemes import TYPES, read_scaling, scheme_of
from .sizes import read_sizes
from .text_row import Rope, SpecFields, TextReading, TextRow


@dataclass(frozen=True, kw_only=True)
class TextModel(TextRow):
    """A row for a model of a sequence of tokens with the keys of a text model: its code, as far as no config says it.

    The config
      - ``config``: the class's name. ``base``: its default base of the frequencies; ``rope`` in its place where there
        is more to say: one `Rope`, or one per kind of layer if parameters are keyed by layer type (None: these layers
        do not rotate by default).
      - ``hidden``, ``heads``, ``kv_heads``, ``layers``, ``head_dim``, ``length``: the default sizes, which matter
        because nested configs leave out what equals the default. ``kv_heads`` left out: one per query head; a function
        reads it. ``head_dim`` left out: hidden / heads; a function of both may say otherwise.
      - ``names``: the keys of these sizes. ``dicts``: the names of the dictionary of rope parameters.
        ``fills_defaults``: only ``rope_parameters`` may be keyed by layer type; null entries get the class defaults.
      - ``shares``, ``widths``: keys beside the dictionary with the share, or the number, of rotated channels;
        ``width``: the default number. ``bases``: a key that lists one base per layer.
      - ``scheme_names``: names of scalings that only this family has -> the scheme, or how its keys tell it;
        ``scaled``: False where its code has no scaling.
      - ``reads``: further keys of the code -> what they do, where that is nothing to the rotation; one that stands
        next to the layer types in their dictionary as ``"rope_parameters.key"``.

    The layers
      - ``layer_types``: which kinds there are, and where; ``rotates``: which of them rotate; ``head_widths``: the
        channels of the heads of each layer, where layers differ.

    The rotation
      - ``partial``: default share of the channels that rotate; None: all, whatever the config says.
      - ``mla``: default (unrotated, rotated) channels of latent attention; the rotated ones come last. With a
        ``head_dim``, its code forms the share of them by itself, whatever the config says.
        ``interleave_key``: its code reads ``rope_interleave``.
      - ``interleaved``, ``permuted``, ``tables``, and more fields in ``spec``: as in `RotarySpec`. ``axes``: how the
        axes of a position lie on the pairs. ``targets``: as in `ModelRotary`.

    Functions, written beside the row, for what no field says
      - ``rotary_flags``: keys that disable the rotation.
      - ``before(row, keys)``: sees the keys first; may refuse the config, or return a changed row.
      - ``adjust(reading, rope, fields)``: returns the fields of the `RotarySpec` of one kind of layers, changed by what
        the config or its rope parameters say; a field ``temperature`` is the factor on the queries.
      - ``after(model, keys)``: returns the changed model.
      - ``write(model, data)``: puts what the other three read into a config.

    ``notes``: what the model does beyond the rotation.

    >>> row = TextModel("ToyConfig", base=10_000.0, hidden=64, heads=4, layers=2, interleaved=True)
    >>> model, _ = row.read("toy", {"rope_theta": 500.0}, "")
    >>> model.layers[0].describe()
    'all 16 channels, interleaved, base 500, no scaling, one axis, exact angles'
    """

    tower: bool = False
    text: ClassVar[bool] = True

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """The encoding of one config, and its keys for the final check that nothing was left out."""
        return read_text(name, self, data, path)


@dataclass(frozen=True)
class LayerRotary:
    """The rotation of one kind of layer; ``spec`` None: it does not rotate."""

    spec: RotarySpec | None
    softmax: float = 1.0
    temperature: Temperature | None = None


def read_text(model_type: str, row: TextRow, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
    """The encoding of one text config by what its row says, and its keys."""
    keys = Keys([(path, data)], owner=row.config)
    for flag in row.rotary_flags:
        flag.check(model_type, keys)
    if row.before is not None:
        row = row.before(row, keys)
    sizes = read_sizes(row, keys)
    reading = TextReading(model_type, keys, sizes.max_position, sizes.length_key, row=row)
    words = row.layer_types.read(keys, sizes.layers, model_type)
    bases = _listed_bases(row, keys, len(words))
    rotates = [r and (b is None or b.base > 0) for r, b in zip(row.rotates(keys, words), bases, strict=True)]
    heads = read_heads(keys, words, sizes.head, row.head_widths)
    kinds = [row.kind_of(word) for word in words]
    levels = rope_levels(reading, {kind for kind, rotating in zip(kinds, rotates, strict=True) if rotating})

    distinct: dict[Any, LayerRotary] = {}
    layers = []
    for key, rotating in zip(zip(kinds, heads, bases, strict=True), rotates, strict=True):
        if rotating and key not in distinct:
            distinct[key] = _read_kind(reading, levels, *key)
        layers.append(distinct[key] if rotating else LayerRotary(None))
    account_for_rest(reading, {kind for kind, _, _ in distinct})
    for name, meaning in row.reads.items():
        if "." not in name:  # `rope_levels` looks at those inside a dictionary
            keys.explain(meaning, name)
    for name, sub_model in row.sub_models.items():
        keys.explain(f"a matter of the {name}", *sub_model.reads)
    temperatures = tuple(layer.temperature for layer in layers)
    model = ModelRotary(
        model_type=model_type, layers=tuple(layer.spec for layer in layers), layer_types=words, num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads, max_position=sizes.max_position, part=path.rstrip("."), sources=keys.sources,
        softmax_factor=next((layer.softmax for layer in layers if layer.spec is not None), 1.0),
        temperatures=temperatures if any(temperatures) else (),
        targets=row.targets, notes=(*row.notes, *reading.notes), windows=read_windows(row.layer_types, keys, words),
    )  # fmt: skip
    if row.after is not None:
        model = row.after(model, keys)
    model = replace(model, notes=(*model.notes, *_general_notes(model)))
    if all(spec is None for spec in model.layers):
        raise no_rotary(model_type, f"rotates in none of its {sizes.layers} layers")
    return model, keys


def _general_notes(model: ModelRotary) -> Iterator[str]:
    yield from dict.fromkeys(s.scaling.caution for s in model.distinct if s.scaling and s.scaling.caution)
    if any(spec is None and word in ATTENTION for spec, word in zip(model.layers, model.layer_types, strict=True)):
        yield "some attention layers do not rotate (NoPE)"


def _listed_bases(row: TextRow, keys: Keys, count: int) -> list[ListedBase | None]:
    """The base and the share of each layer where the config lists them, else None."""
    entries = keys.entries(row.bases) if row.bases else []
    if not entries or (row.bases == EXCHANGED and isinstance(entries[0][1], int | float)):
        return [None] * count
    path, bases = entries[0]
    is_list(path, bases)
    shares = keys.get("partial_rotary_factors", check=is_list) or [1.0] * len(bases)
    for where, values in ((path, bases), ("partial_rotary_factors", shares)):
        if len(values) < count:
            raise ValueError(f"{where} must have one value per layer, {count} here, got {len(values)}")
        for i, value in enumerate(values):
            number(f"{where}[{i}]", value, at_least=0)
    keys.explain("base of each layer", row.bases)
    keys.explain("share of the head that rotates, of each layer", "partial_rotary_factors")
    return [ListedBase(float(b), float(s)) for b, s in zip(bases[:count], shares, strict=False)]


def _read_kind(
    reading: TextReading, levels: dict[str, Keys | None], kind: str, head: Head, listed: ListedBase | None
) -> LayerRotary:
    """The rotation of the layers of one kind."""
    row, name = reading.row, reading.model_type
    if kind not in levels:
        raise ValueError(f"{name} has a layer of type {kind!r}, and its rope parameters know only {', '.join(levels)}")
    rope, parameters = levels[kind], row.defaults(kind)
    if rope is None or (parameters is None and not rope.places):
        return LayerRotary(None)
    parameters = parameters or Rope(None)
    if not rope.places:
        rope = class_default(reading, dict(parameters.more))
    scheme = scheme_of(rope, reading)
    if scheme != "default" and not row.scaled:
        raise unread(rope.entries(*TYPES)[0][0], scheme, f"the code of {name} has no scaling")
    base, scaling = read_base(reading, parameters, rope, listed), read_scaling(scheme, rope, reading)
    width = read_width(reading, scheme, rope, head, listed)
    axes, second = row.axes(reading, rope, width["rotary_dim"] // 2)
    fields: SpecFields = {
        **width, "base": base, "scaling": scaling, "axes": axes, "second": second, "tables": row.tables, **row.spec,
    }  # fmt: skip
    if row.adjust is not None:
        fields = row.adjust(reading, rope, fields)
    rope.refuse_unused(f"{name} with {'no' if scheme == 'default' else scheme} scaling")
    temperature = fields.pop("temperature", None)
    try:
        spec = RotarySpec(**fields)
    except ValueError as error:
        layers = f"the {kind} layers of this" if kind else "this"
        raise Refused(f"{layers} {name} config: {error}", Reason.BEYOND) from None
    softmax = spec.scaling.softmax_factor() if spec.scaling and row.mla is not None else 1.0
    return LayerRotary(spec, softmax, temperature)
