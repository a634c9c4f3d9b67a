"""The table of the conformance suite: model type, cases, bit-exact, within tolerance, not covered and why."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from .suite import Row


@dataclass
class Line:
    """What the comparisons of one model type, or of one real config, came to."""

    name: str
    cases: int = 0
    exact: int = 0
    close: int = 0
    failed: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return bool(self.cases) and not self.failed and not self.not_covered

    def __str__(self) -> str:
        said = "; ".join([*(f"DIFFERS {w}" for w in self.failed), *self.not_covered])
        return f"{self.name:<44} {self.cases:>5} {self.exact:>9} {self.close:>16}  {said}".rstrip()


def line(name: str, rows: Iterable[Row]) -> Line:
    found = Line(name)
    for row in rows:
        where = f"{row.path or 'the model'}: " if row.path else ""
        if row.why:
            found.not_covered.append(where + row.why)
        elif row.outcome.difference is None:
            found.not_covered.append(f"{where}{row.what}: the model's code could not be called")
        else:
            found.cases += 1
            found.exact += row.outcome.exact
            found.close += row.outcome.close and not row.outcome.exact
            if not row.outcome.close:
                found.failed.append(f"{where}{row.what} by {row.outcome.difference:.2g}")
    if not found.cases and not found.not_covered:
        found.not_covered.append("no part of it is read as rotary")
    return found


def table(title: str, lines: Iterable[Line]) -> str:
    lines = list(lines)
    head = f"{title:<44} {'cases':>5} {'bit-exact':>9} {'within tolerance':>16}  not covered, and why"
    total = Line(
        f"{sum(one.complete for one in lines)} of {len(lines)} complete",
        *(sum(getattr(one, name) for one in lines) for name in ("cases", "exact", "close")),
    )
    return "\n".join([head, *map(str, lines), str(total)])
