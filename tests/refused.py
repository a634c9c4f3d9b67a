"""Tables of errors: on each line a call, ``=>``, and what its message says, in this order, parts between ``…``.

A line that begins with spaces goes on with the one above it, and one that begins with ``#`` says what follows is about.
"""

import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest


def rows(table: str) -> Iterator[tuple[str, list[str]]]:
    """Each call, and the parts of its message."""
    lines = [line for line in table.strip().splitlines() if not line.startswith("#")]
    for row in re.sub(r"\n +", " ", "\n".join(lines)).splitlines():
        call, arrow, says = row.partition(" => ")
        assert arrow and says, f"no call and message: {row}"
        yield call, says.split(" … ")


def wrong(call: Callable[[], object], says: list[str]) -> str:
    """What is wrong with a call that must raise a ``ValueError`` of one line, which begins with what it is about."""
    try:
        call()
    except ValueError as error:
        message, at = str(error), 0
        for part in says:
            at = message.find(part, at) + len(part)
            if at < len(part):
                return f"does not say {part!r} in its place: {message}"
        begins = message[:1].islower() or message.startswith(("NTK", "LongRoPE"))
        return "" if begins and "\n" not in message else f"no line that begins with what it is about: {message!r}"
    return "not refused"


def refused(table: str, names: dict[str, Any], way: str = "{}", of: tuple[ModuleType, ...] = ()) -> Callable[..., None]:
    """A test for each row, in the ``names`` of its module and what the packages of ``of`` make public.

    ``way``: the call into which the rows are put.
    """

    @pytest.mark.parametrize("call, says", list(rows(table)))
    def test_refused(call: str, says: list[str]) -> None:
        public = {name: getattr(package, name) for package in of for name in package.__all__}
        assert not (found := wrong(lambda: eval(way.format(call), public | names), says)), f"{call}: {found}"

    return test_refused
