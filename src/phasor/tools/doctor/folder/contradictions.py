"""Keys of a config that say the same thing twice, and differently."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from torch import Tensor

from ..model_folder import Level, ModelConfig
from .bounds import OUT
from .finding import NOT_UNDERSTOOD, FolderFault
from .frequencies import fitting

CAUSE = "config contradicts itself"
SINCE = 5  # transformers saves rope_parameters, and none of the keys beside it, since this version
OF_BASE = ("rope_theta", "partial_rotary_factor")
IMPOSSIBLE = re.compile(r" must be .*, got ")  # a rule for one value, and no word about the family
MOST = 8  # contradictions that are tried in every combination


class Side(NamedTuple):
    """One of two things that a config says: in words, and the keys of rope_parameters if it stands (None: as it is)."""

    words: str
    inner: Level | None


class Contradiction(NamedTuple):
    """``inner`` is what rope_parameters of the level at ``path`` says, ``outer`` what its key ``beside`` it says."""

    what: str
    path: tuple[str, ...]
    beside: str
    inner: Side
    outer: Side


def settle(config: ModelConfig, stored: Mapping[str, Tensor]) -> tuple[ModelConfig, list[FolderFault]]:
    """The config with every contradiction decided that can be, and what was found.

    Frequencies that are stored with the weights decide, all contradictions being tried together; else the transformers
    that saved the file, which writes only one of the two. Nothing else does.
    """
    contradictions = [fault for path, level in config.levels for fault in _contradictions(path, level)]
    saved_by = str(config.data.get("transformers_version", ""))
    major = saved_by.partition(".")[0]
    chosen: list[Side | None] = [None] * len(contradictions)
    decided, left = "", "nothing in the folder says which one the weights were trained with"
    if contradictions and stored:
        chosen, left = _by_weights(config, contradictions, stored)
        decided = "as the frequencies that are stored with the weights"
    elif major.isdigit() and int(major) >= SINCE:
        chosen, decided = [fault.inner for fault in contradictions], f"as transformers {saved_by} saves no other"
    findings = [
        FolderFault("config.json", fault.what, CAUSE, f"{side.words} stands, {decided}: take the other away", True)
        if side is not None
        else FolderFault("config.json", fault.what, CAUSE, f"{left}; keep that one")
        for fault, side in zip(contradictions, chosen, strict=True)
    ]
    return config.changed(_with(config.data, contradictions, chosen)), findings


def not_understood(config: ModelConfig) -> Iterator[FolderFault]:
    """What `read_config` refuses. Raises ``ValueError`` for a value that the key cannot have in any model."""
    try:
        parts = config.parts.items()
    except ValueError as error:  # nan, which JSON does not have
        raise ValueError(f"{error}; {OUT}") from None
    for part, read in parts:
        if isinstance(read, str) and read.startswith("not read"):
            where = f"config.json: {part}" if part else "config.json"
            if IMPOSSIBLE.search(read):
                inside = f"{part}: " if part else ""
                raise ValueError(f"{inside}{read.removeprefix('not read: ')}; {OUT}")
            yield FolderFault(where, read, NOT_UNDERSTOOD, "change that key by hand")


def no_base(config: ModelConfig) -> Iterator[FolderFault]:
    """A scaling in ``rope_parameters``, where transformers always saves the base too, and no base anywhere."""
    for path, level in config.levels:
        rope = level.get("rope_parameters")
        if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
            continue
        scaled = _scheme(rope)["rope_type"] != "default"
        if scaled and rope.get("rope_theta") is None and level.get("rope_theta") is None:
            at = "".join(f"{key}." for key in path)
            what = f"{at}rope_parameters states a scaling and no rope_theta, so the base is the default of who reads it"
            way_out = f"add the rope_theta of the original model's config.json to {at}rope_parameters"
            yield FolderFault("config.json", what, "base by default", way_out)


def _contradictions(path: tuple[str, ...], level: Level) -> Iterator[Contradiction]:
    inner, at = level.get("rope_parameters"), "".join(f"{key}." for key in path)
    if not isinstance(inner, dict):
        return
    for key in OF_BASE:
        outer, own = level.get(key), inner.get(key)
        if outer is not None and own is not None and outer != own:
            what = f"{at}rope_parameters.{key} is {own}, and {at}{key} is {outer}"
            yield Contradiction(what, path, key, Side(f"{key} {own}", None), Side(f"{key} {outer}", {key: outer}))
    scaling = level.get("rope_scaling")
    if isinstance(scaling, dict) and _scheme(scaling) != _scheme(inner):
        kinds = [_scheme(scheme)["rope_type"] for scheme in (inner, scaling)]
        what = f"{at}rope_parameters scales by {kinds[0]}, and {at}rope_scaling by {kinds[1]}, or by other numbers"
        sides = Side("rope_parameters", None), Side("rope_scaling", _scheme(scaling))
        yield Contradiction(what, path, "rope_scaling", *sides)


def _scheme(data: Level) -> Level:
    """The scaling that a dictionary describes, with today's name of its kind."""
    named = {("rope_type" if k == "type" else k): v for k, v in data.items() if v is not None and k not in OF_BASE}
    return {"rope_type": "default", **named}


def _by_weights(
    config: ModelConfig, contradictions: Sequence[Contradiction], stored: Mapping[str, Tensor]
) -> tuple[list[Side | None], str]:
    """The side of each contradiction in all combinations that fit the stored frequencies best; and why not, if none."""
    if len(contradictions) > MOST:
        return [None] * len(contradictions), f"more than {MOST} contradictions are too many to try together"
    tried = list(product(*((fault.inner, fault.outer) for fault in contradictions)))
    fits = [fitting(config.changed(_with(config.data, contradictions, sides)), stored) for sides in tried]
    if not max(fits):
        words = f"none of the {len(tried)} ways to read the config gives"
        return [None] * len(contradictions), f"{words} the frequencies that are stored with the weights"
    best = [sides for sides, fit in zip(tried, fits, strict=True) if fit == max(fits)]
    shared = [own[0] if all(side == own[0] for side in own) else None for own in zip(*best, strict=True)]
    return shared, "both give the frequencies that are stored with the weights"


def _with(config: Level, contradictions: Sequence[Contradiction], sides: Sequence[Side | None]) -> Level:
    """The config with one side of each contradiction; both stay where there is None."""
    changed = copy.deepcopy(config)
    for fault, side in zip(contradictions, sides, strict=True):
        if side is None:
            continue
        level = changed
        for key in fault.path:
            level = level[key]
        del level[fault.beside]
        if side.inner is not None:
            rope = level["rope_parameters"]
            kept = {k: v for k, v in rope.items() if k in OF_BASE} if fault.beside == "rope_scaling" else rope
            level["rope_parameters"] = {**kept, **side.inner}
    return changed
