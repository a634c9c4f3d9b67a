"""Every rotation of a config and of its parts, compared with the model's own code."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from phasor.models.configs import ModelRotary, read_parts

from .operators import NOTHING, Case, Outcome, cases, compare
from .walk import places, quiet, rotates

DTYPES = (torch.float32, torch.bfloat16)
_done: dict[Any, Outcome] = {}  # composite models share their parts


class Row(NamedTuple):
    """One comparison, or why there is none."""

    path: str
    what: str
    outcome: Outcome
    why: str = ""


def rows(config: Any, source: Any = None) -> Iterator[Row]:
    """Every comparison of a config. ``source``: what phasor reads, if not the config object itself."""
    for path, found in parts(config, source):
        if isinstance(found, str):
            yield Row(path, "", NOTHING, found)
            continue
        for dtype in DTYPES:
            key = (type(found.config).__name__, repr(found.config), found.spec, found.word, found.model.heads, dtype)
            if key not in _done:
                _done[key] = compare(found, dtype)
            yield Row(path, f"{found.word}, {str(dtype)[6:]}", _done[key])


def parts(config: Any, source: Any = None) -> Iterator[tuple[str, Case | str]]:
    """Path -> a case, or the sentence that refuses to read a config whose model rotates by its own code."""
    with quiet():
        inside = {place.path: place.config for place in places(config)}
        turning = [path for path, one in inside.items() if rotates(one)]
        read = dict(read_parts(config if source is None else source))
        for path in turning:
            if path not in read:  # derived when asked (mimi.encoder_config), so it does not stand in the config
                read[path] = read_parts(inside[path]).get("", "not among the parts that are read")
    for path, model in read.items():
        if isinstance(model, ModelRotary):
            owner = path if path in inside else path.rpartition(".")[0]
            if owner == "" and "text_config" in inside:  # a flat composite config, whose text keys stand at the top
                owner = "text_config"
            if owner not in inside:
                yield path, f"the config object of transformers has no {owner}"
                continue
            for case in cases(model, inside[owner]):
                yield path, case
        elif path in turning and not any(other != path and other.startswith(path) for other in turning):
            yield path, model
