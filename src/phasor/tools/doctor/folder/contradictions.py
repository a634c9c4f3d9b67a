"""Keys of a config that say the same thing twice, and differently."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..model_folder import Level, ModelConfig
from .bounds import OUT
from .finding import NOT_UNDERSTOOD, FolderFault

CAUSE = "config contradicts itself"
SINCE = 5  # transformers saves rope_parameters, and none of the keys beside it, since this version
OF_BASE = ("rope_theta", "partial_rotary_factor")
IMPOSSIBLE = re.compile(r" must be .*, got ")  # a rule for one value, and no word about the family


class Contradiction(NamedTuple):
    """Of the level at ``path`` its rope_parameters, which say ``inner``, and its key ``beside`` them."""

    what: str
    path: tuple[str, ...]
    beside: str
    inner: str


def settle(config: ModelConfig) -> tuple[ModelConfig, list[FolderFault]]:
    """The config without its contradictions, where they can be decided, and what was found.

    The transformers that saved the file decides, which writes only one of the two. Nothing else does.
    """
    contradictions = [fault for path, level in config.levels for fault in _contradictions(path, level)]
    saved_by = str(config.data.get("transformers_version", ""))
    major = saved_by.partition(".")[0]
    decided = major.isdigit() and int(major) >= SINCE
    findings = []
    for fault in contradictions:
        way_out = "keep the one that the weights were trained with; --text FILE may tell"
        if decided:
            way_out = f"{fault.inner} stands, as transformers {saved_by} saves no other: take {fault.beside} away"
        findings.append(FolderFault("config.json", fault.what, CAUSE, way_out, settled=decided))
    return config.changed(_without(config.data, contradictions)) if decided else config, findings


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
            yield Contradiction(what, path, key, f"{key} {own}")
    scaling = level.get("rope_scaling")
    if isinstance(scaling, dict) and _scheme(scaling) != _scheme(inner):
        kinds = [_scheme(scheme)["rope_type"] for scheme in (inner, scaling)]
        what = f"{at}rope_parameters scales by {kinds[0]}, and {at}rope_scaling by {kinds[1]}, or by other numbers"
        yield Contradiction(what, path, "rope_scaling", "rope_parameters")


def _scheme(data: Level) -> Level:
    """The scaling that a dictionary describes, with today's name of its kind."""
    named = {("rope_type" if k == "type" else k): v for k, v in data.items() if v is not None and k not in OF_BASE}
    return {"rope_type": "default", **named}


def _without(config: Level, contradictions: Sequence[Contradiction]) -> Level:
    """The config without what stands beside rope_parameters and contradicts them."""
    changed = copy.deepcopy(config)
    for fault in contradictions:
        level = changed
        for key in fault.path:
            level = level[key]
        del level[fault.beside]
    return changed
