"""The eye on every model of the zoo: it says the truth, or that it was not shown."""

import pytest

from eye.law import contradictions, look, unread
from eye.truth import Turn
from eye.zoo import ZOO

# Models that turn, and in which the eye does not see all that does.
# Keys of a window that reaches before the first token are padding in some windows and none in others.
NOT_SHOWN = {"window by unfold"}
# Others of the zoo turn by the same operations, or lie in the same way.
LATER = {
    "attention in every second layer", "autocast", "checkpointed", "complex list of layers", "einops",
    "even and odd concatenated", "four apart in the code", "frequencies of zero", "heads one by one",
    "in place token by token", "inlined", "keys doubled", "keys of the token before", "linear attention that turns",
    "llama from position 1", "llama on a batch of two", "ntk base", "one key head", "queries scaled before",
    "retention", "returns a tuple", "rotate_half by matmul", "stacked queries and keys", "table as an attribute",
    "tables in float64", "turned, then hadamard", "two by two by einsum", "two by two by matmul",
    "whole matrix by bmm", "xpos of a wide range",
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LATER)) for n in ZOO])
def test_what_the_eye_says_is_so_and_what_turns_is_shown_but_for_those_that_are_listed(name):
    case, view = ZOO[name], look(ZOO[name])
    assert contradictions(case, view) == []
    turns = {f"{s.where}.{part}" for s in case.truth.sites for part in "qkv" if isinstance(getattr(s, part), Turn)}
    assert bool(turns & set(unread(case, view))) is (name in NOT_SHOWN)
