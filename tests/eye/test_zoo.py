"""The eye on every model of the zoo: it says the truth, or that it was not shown."""

from functools import cache

import pytest

from eye.law import View, contradictions, look, unread
from eye.truth import Turn
from eye.zoo import ZOO

# Models that turn, and in which the eye does not see all that does.
# Keys of a window that reaches before the first token are padding in some windows and none in others.
NOT_SHOWN = {"window by unfold"}


@cache
def view(name: str) -> View:
    return look(ZOO[name])


@pytest.mark.parametrize("name", ZOO)
def test_what_the_eye_says_is_so(name):
    assert contradictions(ZOO[name], view(name)) == []


@pytest.mark.parametrize("name", [name for name, case in ZOO.items() if case.truth.turns])
def test_what_turns_is_shown_but_for_those_that_are_listed(name):
    turns = {f"{s.where}.{part}" for s in ZOO[name].truth.sites for part in "qkv" if isinstance(getattr(s, part), Turn)}
    assert bool(turns & set(unread(ZOO[name], view(name)))) is (name in NOT_SHOWN)
