"""One text config in Hugging Face's format -> the rotary encoding of its layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...rotary.spec import RotarySpec
from ...rotary.temperature import Temperature
from ...support.checks import number
from .heads import Head, read_heads
from .keys import Keys, is_list
from .layers import ATTENTION
from .model import ModelRotary
from .non_rotary import no_rotary
from .rope import account_for_rest, class_default, rope_levels
from .schemes import read_scaling, scheme_of
from .sizes import read_sizes
from .spec_fields import OwnBase, Reader, read_base, read_width
from .text_row import Facts, Rope
from .windows import read_windows


@dataclass(frozen=True, kw_only=True)
class Text(Facts):
    """A model whose tokens stand in a line, with the keys of a text model: a row, and its reader."""

    tower: bool = False
    text: ClassVar[bool] = True

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """The encoding of one config, and its keys for the final check that nothing was left out."""
        return read_text(name, self, data, path)


@dataclass(frozen=True)
class Built:
    """What one kind of layer turned out to be; ``spec`` None: it does not rotate."""

    spec: RotarySpec | None
    softmax: float = 1.0
    temperature: Temperature | None = None


def read_text(model_type: str, facts: Facts, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
    """The encoding of one text config by what its row says, and its keys."""
    keys = Keys([(path, data)], {})
    for switch in facts.switches:
        switch.check(model_type, keys)
    if facts.before is not None:
        facts = facts.before(facts, keys)
    sizes = read_sizes(facts, keys)
    reader = Reader(model_type, facts, keys, path, sizes.max_position, sizes.length_key)
    words = facts.layers.read(keys, sizes.layers, model_type)
    own = _own_bases(facts, keys, len(words))
    turns = [t and (o is None or o.base > 0) for t, o in zip(facts.turns(keys, words), own, strict=True)]
    heads = read_heads(facts, keys, words, sizes.head_dim)
    kinds = [kind_of(facts, word) for word in words]
    levels = rope_levels(reader, {kind for kind, turn in zip(kinds, turns, strict=True) if turn})

    built: dict[Any, Built] = {}
    found = []
    for kind, head, base, turn in zip(kinds, heads, own, turns, strict=True):
        if turn and (kind, head, base) not in built:
            built[kind, head, base] = _build(reader, kind, levels, head, base)
        found.append(built[kind, head, base] if turn else Built(None))
    account_for_rest(reader, {kind for kind, _, _ in built})
    for key, meaning in facts.reads.items():
        keys.explain(meaning, key)
    for name, inner in facts.inner.items():
        keys.explain(f"a matter of the {name}", *inner.reads)
    temperatures = tuple(b.temperature for b in found)
    model = ModelRotary(
        model_type=model_type, layers=tuple(b.spec for b in found), layer_types=words, num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads, max_position=sizes.max_position, part=path.rstrip("."), sources=keys.sources,
        softmax_factor=next((b.softmax for b in found if b.spec is not None), 1.0), own_angles=facts.angles,
        temperatures=temperatures if any(temperatures) else (), targets=facts.targets,
        notes=(*facts.notes, *reader.notes), windows=read_windows(facts.layers, keys, words),
    )  # fmt: skip
    if facts.after is not None:
        model = facts.after(model, keys)
    model = replace(model, notes=(*model.notes, *_general_notes(model)))
    if all(spec is None for spec in model.layers):
        raise no_rotary(model_type, f"rotates in none of its {sizes.layers} layers")
    return model, keys


def _general_notes(model: ModelRotary) -> Iterator[str]:
    yield from dict.fromkeys(s.scaling.caution for s in model.distinct if s.scaling and s.scaling.caution)
    if any(spec is None and word in ATTENTION for spec, word in zip(model.layers, model.layer_types, strict=True)):
        yield "some attention layers do not rotate (NoPE)"


def kind_of(facts: Facts, word: str) -> str:
    """The kind of a layer under which its rope parameters stand; ``""`` where all share them."""
    if not facts.kinds:
        return ""
    return word if facts.rope_key is None else facts.rope_key(word)


def _own_bases(facts: Facts, keys: Keys, count: int) -> list[OwnBase | None]:
    """The base and the share of each layer where the config lists them, else None."""
    found = keys.found(facts.bases) if facts.bases else []
    if not found or not isinstance(found[0][1], list | tuple):
        return [None] * count
    path, bases = found[0]
    shares = keys.get("partial_rotary_factors", check=is_list) or [1.0] * len(bases)
    for where, values in ((path, bases), ("partial_rotary_factors", shares)):
        if len(values) < count:
            raise ValueError(f"{where} must have one value per layer, {count} here, got {len(values)}")
        for i, value in enumerate(values):
            number(f"{where}[{i}]", value, at_least=0)
    keys.explain("base of each layer", facts.bases)
    keys.explain("share of the head that turns, of each layer", "partial_rotary_factors")
    return [OwnBase(float(b), float(s)) for b, s in zip(bases[:count], shares, strict=False)]


def _build(reader: Reader, kind: str, levels: dict[str, Keys | None], head: Head, own: OwnBase | None) -> Built:
    """What the layers of one kind do."""
    facts = reader.facts
    if kind not in levels:
        raise ValueError(
            f"{reader.model_type} has a layer of type {kind!r}, and its rope parameters know only {', '.join(levels)}"
        )
    rope, parameters = levels[kind], facts.defaults(kind)
    if rope is None or (parameters is None and not rope.places):
        return Built(None)
    if parameters is None:
        parameters = Rope(None)
    if not rope.places:
        rope = class_default(reader, dict(parameters.more))
    scheme = scheme_of(rope, reader)
    if scheme != "default" and not facts.scaled:
        raise ValueError(f"the code of {reader.model_type} has no scaling, got {scheme!r}; remove the keys")
    base = read_base(reader, parameters, rope, own)
    scaling = read_scaling(scheme, rope, reader)
    if facts.scale is not None:
        scaling = facts.scale(reader, scaling)
    width = read_width(reader, scheme, rope, head, own)
    axes, second = facts.axes(reader, rope, width.rotary_dim // 2)
    temperature = facts.temperature(rope) if facts.temperature is not None else None
    rope.refuse_unused(f"{reader.model_type} with {'no' if scheme == 'default' else scheme} scaling")
    try:
        spec = RotarySpec(
            head_dim=width.head_dim, rotary_dim=width.rotary_dim, trailing=width.trailing,
            interleaved=width.interleaved, permuted=width.permuted, blocks=facts.blocks, reverse=facts.reverse,
            base=base, exponent_dim=width.exponent_dim, learned=facts.learned, scaling=scaling, axes=axes,
            second=second, tables=facts.tables,
        )  # fmt: skip
    except ValueError as error:
        layers = f"the {kind} layers of this" if kind else "this"
        raise ValueError(f"{layers} {reader.model_type} config: {error}") from None
    softmax = scaling.softmax_factor() if scaling and facts.mla is not None else 1.0
    return Built(spec, softmax, temperature)
