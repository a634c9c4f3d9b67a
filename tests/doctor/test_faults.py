"""Kinds of fault, put into models of six families from outside: found, with its cause and its first position."""

import pytest

pytest.importorskip("transformers")

from phasor import diagnose

from .families import model_of
from .faults import FAULTS, cases, damaged, first_position

# Each family once or twice, and kinds that no other quick test names with their position.
QUICK = [
    ("llama", "garbage frequencies"),
    ("llama", "positions restart with the cache"),
    ("qwen3", "base of the class"),
    ("gemma3", "truncate flipped"),
    ("gemma3", "local and global bases swapped"),
    ("glm4", "layout swapped"),
    ("deepseek_v3", "k only"),
    ("qwen2_vl", "product in bfloat16"),
    ("qwen2_vl", "sections swapped"),
]


@pytest.mark.parametrize("family, kind", QUICK)
def test_a_fault_is_found_with_its_cause_and_its_place(family: str, kind: str) -> None:
    with damaged(family, kind) as model:
        found = diagnose(model)
    first, position = found.wrong[0], first_position(family, kind)
    assert found.exit_code == 1
    assert first.cause == FAULTS[kind].cause, str(first)
    assert position is None or first.position == position, str(first)


@pytest.mark.parametrize("family", ("gemma3", "deepseek_v3", "qwen2_vl"))
def test_a_healthy_model_is_sound(family: str) -> None:
    found = diagnose(model_of(family))
    assert found.sound and found.exit_code == 0, str(found)
    assert all(row.verdict != "not shown" for row in found.findings if not row.where.startswith("model.visual")), str(
        found
    )


@pytest.mark.slow
def test_every_fault_in_every_family() -> None:
    """The goal: 95 % found, 90 % with the right cause, the first position right wherever there is one."""
    told = {}
    for family, kind in cases():
        with damaged(family, kind) as model:
            found = diagnose(model)
        first = found.wrong[0] if found.wrong else None
        cause = first is not None and first.cause == FAULTS[kind].cause
        position = first_position(family, kind)
        place = first is not None and (position is None or first.position == position)
        told[family, kind] = (first is not None, cause, place)
        if not (cause and place):
            print(family, kind, str(first) if first else "not found")
    found_, causes, places = (sum(column) for column in zip(*told.values(), strict=True))
    print(f"\n{len(told)} faults: {found_} found, {causes} with the right cause, {places} at the right position")
    assert len(told) == 129
    assert found_ >= 0.95 * len(told) and causes >= 0.9 * len(told) and places == found_
