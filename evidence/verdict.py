"""Which outcomes are argued, and how many of each kind there are."""

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .experiment import Outcome

FILE = Path(__file__).with_name("argued.json")
JUDGED = ("equal", "differs", "not read", "not seen")  # of a model that was built


@cache
def reasons() -> dict[str, dict[str, str]]:
    """Model type -> what differs, or the kind of an outcome -> why it is right that it does."""
    data: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def argued(outcome: Outcome) -> bool:
    """Whether all in which an outcome differs has a reason in the file."""
    known = reasons().get(outcome.model_type, {})
    return outcome.kind in known or (bool(outcome.why) and all(what in known for what in outcome.why))


class Tally:
    """Outcomes by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.types: set[str] = set()

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for one in outcomes:
            self.types.add(one.model_type)
            self.counts["argued" if one.kind in JUDGED[1:] and argued(one) else one.kind] += 1

    def __str__(self) -> str:
        judged = sum(self.counts[kind] for kind in (*JUDGED, "argued"))
        share = 100 * self.counts["equal"] / judged if judged else 0.0
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.counts.most_common())
        total = f"{len(self.types)} types, {self.counts.total()} configs: {kinds}"
        return f"{total}; {share:.1f} % of {judged} that were judged are equal"
