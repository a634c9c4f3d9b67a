"""A scaling put into a dictionary of rope parameters, under the names that the family's code knows."""

from typing import Any

from ...rotary.scaling import Scaling
from .keys import Keys
from .schemes import ORIGINAL, OWN_SPELLING, SCHEMES, TYPES, scheme_for
from .spec_fields import Reader

FRACTION = "partial_rotary_factor"
MORE = ("long_mscale", "short_mscale")  # keys of schemes that are not in their entries


def put_scaling(
    reader: Reader, rope: dict[str, Any], top: dict[str, Any], old: Scaling | None, new: Scaling | None
) -> None:
    """Make the dictionary ``rope``, from which ``old`` was read, say ``new``; ``top`` may state the original length.

    Keys that say so already stay. ``factor`` is stated in any case: it may have followed from a length that changes.
    """
    (_, was), (name, scheme) = scheme_for(old), scheme_for(new)
    before, after = was.write(old), scheme.write(new)
    if scheme is not was:
        stale = {entry.key for each in SCHEMES.values() for entry in each.entries}.union(MORE) - {FRACTION, *before}
        for key in stale:
            rope.pop(key, None)
    for key in {**before, **after}:
        stated = rope.get(key) is not None or (key == ORIGINAL and top.get(key) is not None)
        if before.get(key) == after.get(key) and (stated or key != "factor") and scheme is was:
            continue
        if key not in after:
            rope.pop(key, None)
            continue
        if key == ORIGINAL and top.get(key) is not None:
            top[key] = after[key]
            if rope.get(key) is None:
                continue
        rope[key] = after[key]
    if scheme is not was:
        word = _word(reader, rope, name)
        for key in [key for key in TYPES if key in rope] or TYPES[:1]:
            rope[key] = word


def _word(reader: Reader, rope: dict[str, Any], name: str) -> str:
    """The family's word for a scheme."""
    spelled = reader.facts.spelled
    for word in (name, *spelled):
        meant = spelled.get(word, "" if word in OWN_SPELLING else word)
        if name == (meant(Keys([("", rope)], {})) if callable(meant) else meant):
            return word
    raise ValueError(f"the code of {reader.model_type} has no scaling {name!r}")
