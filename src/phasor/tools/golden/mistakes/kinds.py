"""Layers of one kind that are rotated as those of another: by its base, its scaling and its factor."""

from collections.abc import Iterable, Iterator

from ..case import Mistake, with_fields
from ..layer_kinds import Kind


def of_kinds(kind: Kind, others: Iterable[Kind]) -> Iterator[Mistake]:
    """One for each of the ``others`` that rotates as many pairs in other layers; keys that move, as others move."""
    own = kind.exact
    for other in others:
        spec = other.exact
        if own is None or spec is None or other.moved != kind.moved or set(other.layers) & set(kind.layers):
            continue
        if spec.pairs == own.pairs:
            factor = spec.attention_factor(other.seq_len)
            text = f"the frequencies are those of the layers {other.name}, and must be those of {kind.name}"
            frequencies = spec.inv_freq(other.seq_len)
            change = with_fields(frequencies=frequencies, cos_factor=factor, sin_factor=factor)
            yield Mistake("layers", text, change)
