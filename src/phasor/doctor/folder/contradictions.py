"""Keys of a config that say the same thing twice, and differently."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from ...configs import read_parts
from .finding import NOT_UNDERSTOOD, Finding
from .frequencies import fitting

CAUSE = "config contradicts itself"
SINCE = 5  # transformers saves rope_parameters, and none of the keys beside it, since this version
OF_BASE = ("rope_theta", "partial_rotary_factor")
Level = dict[str, Any]


class Side(NamedTuple):
    """One of two things that a config says: in words, and the keys of its level if this alone stands (None: gone)."""

    words: str
    keys: Level


class Contradiction(NamedTuple):
    """``inner`` is what rope_parameters says, ``outer`` what the keys beside it say."""

    what: str
    inner: Side
    outer: Side


def settle(config: Level, stored: Mapping[str, Tensor]) -> tuple[Level, list[Finding]]:
    """The config with every contradiction decided that can be, and what was found.

    Frequencies that are stored with the weights decide; else the transformers that saved the file, which writes only
    one of the two. Nothing else does.
    """
    settled = copy.deepcopy(config)
    findings = []
    for path, level in _levels(settled):
        for found in _contradictions(path, level):
            side, why = _decided(config, settled, level, found, stored)
            if side is not None:
                _put(level, side)
                findings.append(Finding("config.json", found.what, CAUSE, f"{side.words} stands, {why}"))
            else:
                findings.append(Finding("config.json", found.what, CAUSE, way_out=why))
    if all(f.mended for f in findings):  # else the reader would say the same again
        for part, read in read_parts(settled).items():
            if isinstance(read, str) and read.startswith("not read"):
                where = f"config.json: {part}" if part else "config.json"
                findings.append(Finding(where, read, NOT_UNDERSTOOD, way_out="change that key by hand"))
    return settled, findings


def _levels(data: Level, path: str = "") -> Iterator[tuple[str, Level]]:
    yield path, data
    for key, value in data.items():
        if isinstance(value, dict) and key.endswith("_config"):
            yield from _levels(value, f"{path}{key}.")


def _contradictions(path: str, level: Level) -> Iterator[Contradiction]:
    inner = level.get("rope_parameters")
    if not isinstance(inner, dict):
        return
    for key in OF_BASE:
        outer, own = level.get(key), inner.get(key)
        if outer is not None and own is not None and outer != own:
            what = f"{path}rope_parameters.{key} is {own}, and {path}{key} is {outer}"
            moved = {key: None, "rope_parameters": {**inner, key: outer}}
            yield Contradiction(what, Side(f"{key} {own}", {key: None}), Side(f"{key} {outer}", moved))
    scaling = level.get("rope_scaling")
    if isinstance(scaling, dict) and _scheme(scaling) != _scheme(inner):
        kinds = [_scheme(scheme)["rope_type"] for scheme in (inner, scaling)]
        what = f"{path}rope_parameters scales by {kinds[0]}, and {path}rope_scaling by {kinds[1]}, or by other numbers"
        base = {k: v for k, v in inner.items() if k in OF_BASE}
        moved = {"rope_scaling": None, "rope_parameters": {**base, **_scheme(scaling)}}
        yield Contradiction(what, Side("rope_parameters", {"rope_scaling": None}), Side("rope_scaling", moved))


def _scheme(data: Level) -> Level:
    """The scaling that a dictionary describes, with today's name of its kind."""
    named = {("rope_type" if k == "type" else k): v for k, v in data.items() if v is not None and k not in OF_BASE}
    return {"rope_type": "default", **named}


def _decided(
    config: Level, settled: Level, level: Level, found: Contradiction, stored: Mapping[str, Tensor]
) -> tuple[Side | None, str]:
    before = dict(level)
    fits = []
    for side in (found.inner, found.outer):
        _put(level, side)
        fits.append(fitting(settled, stored))
        level.clear()
        level.update(before)
    if fits[0] != fits[1]:
        return (
            found.inner if fits[0] > fits[1] else found.outer
        ), "as the frequencies that are stored with the weights"
    saved_by = str(config.get("transformers_version", ""))
    major = saved_by.partition(".")[0]
    if not stored and major.isdigit() and int(major) >= SINCE:
        return found.inner, f"as transformers {saved_by} saves no other"
    return None, "nothing in the folder says which one the weights were trained with; keep that one by hand"


def _put(level: Level, side: Side) -> None:
    for key, value in side.keys.items():
        if value is None:
            level.pop(key, None)
        else:
            level[key] = value
