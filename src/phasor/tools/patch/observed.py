"""`patch` for a model that no config describes: what turns its queries and keys is observed, then replaced.

Only the functions that rotate are replaced; tables are formed by the model's own code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

import torch
from torch import nn

from ...eye import observe
from ...eye.call import call_of
from ...eye.frequencies import Frequencies
from ...eye.inputs import made_up
from ...eye.layout import wider
from ...eye.observation import Observation
from ...eye.place import Where
from ...eye.sites import Side
from ...eye.spec import NoSpec, measured, sighting
from ...rotary.spec import RotarySpec
from .arguments import INLINE, MORE, ODD, Turned
from .equal_calls import Way, best_way, does
from .functions import Holder, holders
from .match import Match
from .report import LAST_BITS, SiteRow, agreement, compared
from .rotate_function import Rotating, RotatingModule
from .sites import PatchSite, replaced_on_instance
from .swap import owners


def observed_matches(model: nn.Module, inputs: Any, kernel: str) -> list[Match]:
    """What phasor does about every place in which something was seen to turn.

    Raises ``ValueError`` for a model that cannot be run, and for one in which nothing turns.
    """
    seen = observe(model, inputs)
    inner = seen.model
    sides = [(site.where, side) for site in seen.turning for side in site.sides if side.turns]
    if not sides:
        said = "; ".join(seen.missing)
        raise ValueError(
            f"model must rotate its queries and keys, and in this {seen.subject} nothing was seen to: {said}"
        )
    call = made_up(inner) if inputs is None else call_of(inner, inputs)
    codes = {code for _, side in sides for code in codes_of(side)}
    judge = Judge(seen, holders(call, codes), kernel)
    rows = {key: row for where, side in sides for key, row in judge.rows(where, side)}
    return list(judge.matches(rows))


class Judge:
    """Finds, for each side that turns, the function that can be replaced."""

    def __init__(self, seen: Observation, found: Sequence[Holder], kernel: str) -> None:
        self.seen, self.kernel, self.found = seen, kernel, found
        self.owners = owners(seen.model)
        self.paths = {id(owner): path for path, owner in self.owners.items()}
        weights = next((p.dtype for p in seen.model.parameters() if p.is_floating_point()), torch.float32)
        self.dtypes = tuple(dict.fromkeys((torch.float32, torch.bfloat16, weights)))
        self.ways: dict[Holder, Way] = {}
        self._rows: dict[Holder, SiteRow] = {}

    def rows(self, where: str, side: Side) -> Iterator[tuple[Any, SiteRow]]:
        """The row of the innermost function that can be replaced; else of the innermost one that was compared."""
        place = side.place
        if place is None:
            row = SiteRow(where=where, what=side.name, reason="no Python stands behind its rotation")
            yield (where, side.name), row
            return
        near = [h for code in codes_of(side) for h in self.found if h.code is code and self._near(h, where)]
        judged = [(holder, self._judged(holder, side, place)) for holder in near]
        told = [one for one in judged if INLINE not in one[1].reason]
        if told:
            yield min(told, key=lambda one: (not one[1].replaced, ODD in one[1].reason))
            return
        row = SiteRow(where=where, what=_short(place.function), reason=_inline(place))
        yield (where, place.code), replace(row, spec=self._spec(where, side)[1])

    def _near(self, holder: Holder, where: str) -> bool:
        path = self.paths[id(holder.owner)]
        return not path or not where or f"{where}.".startswith(f"{path}.") or path.startswith(f"{where}.")

    def _judged(self, holder: Holder, side: Side, place: Where) -> SiteRow:
        if holder not in self._rows:
            self._rows[holder] = self._judge(holder, side, place)
        return self._rows[holder]

    def _judge(self, holder: Holder, side: Side, place: Where) -> SiteRow:
        path = self.paths[id(holder.owner)]
        spec, described = self._spec(path, side)
        row = SiteRow(where=path, what=_short(holder.code.co_qualname), spec=described)
        if reason := replaced_on_instance(holder.owner, [holder.method]):
            return replace(row, reason=reason)
        if side.placed is None or side.operator is None or side.operator.second is not None:
            return replace(row, reason=side.seen.missing or "its pairs lie in no layout that is known here")
        turned = list(_turned(side, spec or _own_spec(side) if holder.pure else None))
        way = next((w for h, w in self.ways.items() if h.like(holder) and does(holder, w).exact), None)
        judged = (way, does(holder, way)) if way else best_way(holder, turned, self.dtypes, self.kernel)
        if isinstance(judged, str):
            return replace(row, reason=_inline(place) if judged == INLINE else f"{judged} (in {holder})")
        way, difference = judged
        if way is None or not difference.close:
            return replace(row, reason=f"{MORE} (in {holder})")
        row = compared(row, difference, f"{agreement(difference)}, by the model's own tables")
        if not difference.exact:
            return replace(row, reason=LAST_BITS)
        self.ways[holder] = way
        formed = way[0].spec is not None
        row = replace(row, kernel="apply_rotary")
        return replace(row, agreement=agreement(difference)) if formed else row

    def _spec(self, where: str, side: Side) -> tuple[RotarySpec | None, str]:
        """The spec of the layer at a path, and what turns there in words."""
        for site in self.seen.turning:
            list_of, index = site.layers
            if list_of in self.seen.parts and (site.where == where or where.startswith(f"{site.where}.")):
                spec = self.seen.parts[list_of].with_angles("float32").layers[index]
                if spec is not None:
                    return spec, spec.describe()
        return None, "-" if side.placed is None else side.placed.layout.describe()

    def matches(self, rows: dict[Any, SiteRow]) -> Iterator[Match]:
        for row in rows.values():
            yield Match(PatchSite(row.where, self.owners[row.where], "functions"), (row,))
        functions: dict[str, list[Rotating]] = {}
        for key, row in rows.items():
            if row.replaced and isinstance(key, Holder):
                given, function = self.ways[key]
                one = Rotating(key.name, key.kind, function, given, key.method)
                functions.setdefault(row.where, []).append(one)
        for path, several in functions.items():
            owner = self.owners[path]
            yield Match(PatchSite(path, owner, "functions"), (), ((owner, RotatingModule(tuple(several))),))


def _turned(side: Side, spec: RotarySpec | None) -> Iterator[Turned]:
    """What a side may be said to turn by: in the narrowest layout first."""
    found, seen = side.frequencies, side.operator
    assert seen is not None and side.placed is not None
    tokens, positions = slice(None), None
    if isinstance(found, Frequencies):
        tokens = slice(found.before, seen.cos.shape[-1] - found.after)
        positions = found.coordinates[0] if len(found.coordinates) == 1 else None
    for place in dict.fromkeys((side.placed, *wider(seen))):
        yield from Turned.of(seen, place, tokens, spec=spec, positions=positions).ways


def codes_of(side: Side) -> list[CodeType]:
    """The code that holds the rotation, then all in which a part of it ran, the innermost first."""
    operations = () if side.operator is None else side.operator.operations
    parts = (place.code for operation in operations for place in operation.stack)
    return list(dict.fromkeys((*((side.place.code,) if side.place else ()), *parts)))


def _own_spec(side: Side) -> RotarySpec | None:
    """The spec of one side alone, where it gives the bits that were seen."""
    try:
        found = sighting(measured(side), {}, {})
    except NoSpec:
        return None
    return found.spec if found.bits else None


def _short(function: str) -> str:
    return function.rpartition(".<locals>.")[2] if function.endswith(">") else function.rpartition(".")[2]


def _inline(place: Where) -> str:
    return f"{INLINE}, in {place}; call phasor.apply_rotary there"
