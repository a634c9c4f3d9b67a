"""What is said of faults in some ways of calling: one check a cause, with the kind of call that it is limited to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...support.findings import Difference, span
from .against_config.causes import way_out
from .deviation import Deviation
from .report import Check
from .ways import AND_ON, AUTOCAST, DOCUMENTS, EMBEDDED, LATER, MOST, STATIC, TRAINING, Met

RESTART = "positions restart with the cache"
SWITCH = "length of the switch"
STATE = "state of a longer call"


def without_fault(blank: Check, unseen: Sequence[tuple[str, str]]) -> Check:
    """Right where all was compared. ``unseen``: the places that were not, each with the reason."""
    if not unseen:
        return replace(blank, verdict="right")
    return replace(blank, where=span(list(dict.fromkeys(place for place, _ in unseen))), reason=unseen[0][1])


def wrong_in_calls(found: Sequence[tuple[Met, Deviation]], what: str) -> Iterator[Check]:
    """One check of ``what`` for each cause, whatever the ways that it shows in."""
    state = any(one.way.name == LATER for one, _ in found) and all(_later(one, why) for one, why in found)
    for cause in dict.fromkeys(why.cause for _, why in found):
        of_it = [(one, why) for one, why in found if why.cause == cause]
        one, why = of_it[0]
        names = list(dict.fromkeys(o.way.name for o, _ in of_it))
        sides = sorted({o.name for o, _ in of_it}, reverse=True)
        more = f"; also {', '.join(names[1:])}" if names[1:] else ""
        at = one.positions[min(why.rows, default=0), why.token]
        yield Check(
            where=span(list(dict.fromkeys(one.where for one, _ in of_it))),
            what=f"{what} {names[0]}",
            against="itself",
            verdict="wrong",
            cause=STATE if state else _limited(cause, of_it),
            reason=f"{'' if sides == [what] else ' and '.join(sides) + ': '}{why.says}{more}",
            way_out=way_out(cause),
            difference=Difference(of=what, position=float(at), pair=why.pair),
        )


def _later(one: Met, why: Deviation) -> bool:
    """Whether what is wrong came after a long call, and with it."""
    behind = one.call > 0 if one.name == "q" else min(why.tokens, default=0) >= one.way.pieces[0].tokens.shape[1]
    return one.way.name == LATER or (one.way.name.endswith(AND_ON) and behind)


def _limited(cause: str, found: Sequence[tuple[Met, Deviation]]) -> str:
    """The cause with the kind of call that it is limited to; one plain call does not show it."""
    if cause in (RESTART, SWITCH):
        return cause
    if all(one.way.autocast for one, _ in found) and any(len(one.way.pieces) == 1 for one, _ in found):
        return f"{cause}, only {AUTOCAST}"
    names = {one.way.name for one, _ in found}
    if names <= {TRAINING, STATIC, EMBEDDED, DOCUMENTS} and len(names) == 1:
        return f"{cause}, only {names.pop()}"
    cached = [(one, why) for one, why in found if len(one.way.pieces) > 1]
    if len(cached) == len(found):
        return _in_a_cache(cause, cached)
    if names <= {LATER} or {LATER, TRAINING} <= names:  # the last ones, or all but the first one
        return STATE
    if all(one.way.last >= MOST for one, _ in found):
        return f"{cause}, only in long calls"
    rows = {row for _, why in found for row in why.rows}
    if all(one.way.rows > 1 for one, _ in found):
        if len(rows) == max(one.way.rows for one, _ in found):
            return f"{cause}, only in large batches"
        return f"{cause}, only in {'one row of a batch' if len(rows) == 1 else 'some rows of a batch'}"
    return f"{cause}, only in some calls"


def _in_a_cache(cause: str, found: Sequence[tuple[Met, Deviation]]) -> str:
    """By the calls in which the wrong tokens were given, and in which they are wrong."""
    fresh = {(one.way, one.call) for one, why in found if one.fresh(why.tokens)}
    if not fresh:
        return f"{cause}, only in keys that were kept"
    lengths = {way.pieces[call].tokens.shape[1] for way, call in fresh}
    if first := [way.last for way, call in fresh if call == 0]:  # before anything was kept
        return f"{cause}, only in {'long' if min(first) > MOST else 'some'} calls"
    if lengths == {1}:
        return f"{cause}, only in decoding"
    if 1 not in lengths:
        return f"{cause}, only in chunks"
    return f"{cause}, only through a cache"
