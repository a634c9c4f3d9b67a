"""The eye on every model of the zoo: it says the truth, or that it was not shown."""

import pytest

from eye.law import contradictions, look, unread
from eye.truth import Turn
from eye.zoo import ZOO

# Models that turn, and in which the eye does not see all that does.
# Keys of a window that reaches before the first token are padding in some windows and none in others.
NOT_SHOWN = {"window by unfold"}


@pytest.mark.parametrize("name", ZOO)
def test_what_the_eye_says_is_so_and_what_turns_is_shown_but_for_those_that_are_listed(name):
    case, view = ZOO[name], look(ZOO[name])
    assert contradictions(case, view) == []
    turns = {f"{s.where}.{part}" for s in case.truth.sites for part in "qkv" if isinstance(getattr(s, part), Turn)}
    assert bool(turns & set(unread(case, view))) is (name in NOT_SHOWN)
