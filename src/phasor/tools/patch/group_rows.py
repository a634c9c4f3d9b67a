"""Rows of a report that say the same of equal layers, as one."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

R = TypeVar("R")  # a frozen dataclass with a ``path``


def merged(rows: Sequence[R]) -> list[R]:
    """Rows that differ in one number of their path only, as one: ``layers.0-3.attn``."""
    return [as_one(group) for group in grouped(rows)]


def grouped(rows: Sequence[R], **aside: Any) -> list[list[R]]:
    """Rows that differ in one number of their path only; fields named in ``aside`` may differ, too."""
    groups: dict[R, list[R]] = {}
    for row in rows:
        anywhere: dict[str, Any] = {"path": re.sub(r"\.\d+\.", ".#.", row.path, count=1)}  # type: ignore[attr-defined]
        groups.setdefault(replace(row, **anywhere, **aside), []).append(row)  # type: ignore[type-var]
    return list(groups.values())


def as_one(group: Sequence[R], **fields: Any) -> R:
    """The first row of a group, with the paths of all of them."""
    return replace(group[0], path=span([row.path for row in group]), **fields)  # type: ignore[type-var, attr-defined]


def span(paths: list[str]) -> str:
    """Paths that differ in one number only, as one.

    >>> span(["layers.0.attn", "layers.1.attn", "layers.4.attn"])
    'layers.0-1,4.attn'
    """
    if len(paths) == 1:
        return paths[0]
    numbers = [int(found.group(1)) for path in paths if (found := re.search(r"\.(\d+)\.", path))]
    if not numbers:
        return paths[0]
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    span = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return re.sub(r"\.\d+\.", f".{span}.", paths[0], count=1)
