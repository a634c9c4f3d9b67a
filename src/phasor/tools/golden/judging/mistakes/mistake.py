"""A mistake: a word, a sentence, and a change to the right way of rotating."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..case import Case


@dataclass(frozen=True)
class Mistake:
    """``cause`` is one word for programs, ``says`` a sentence for people; ``alone``: not looked for beside another."""

    cause: str
    says: str
    change: Callable[[Case], Case]
    alone: bool = False

    def of(self, case: Case) -> Case | None:
        """The case with this mistake; None where it makes no sense."""
        try:
            return self.change(case)
        except ValueError:
            return None


def with_spec(**changes: Any) -> Callable[[Case], Case]:
    """Another spec, and the attention factor that belongs to it if the scaling is another."""

    def change(case: Case) -> Case:
        spec = case.spec.replace(**changes)
        case = case.replace(spec=spec)
        if "scaling" in changes:
            factor = spec.attention_factor(case.seq_len)
            case = case.replace(cos_factor=factor, sin_factor=factor)
        return case

    return change


def with_fields(**changes: Any) -> Callable[[Case], Case]:
    return lambda case: case.replace(**changes)
