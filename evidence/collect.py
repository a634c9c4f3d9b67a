"""All experiments of all types, on several processes; what was done is kept in a file, and is not done again."""

import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from phasor.support.transformers_log import quiet

from .changes import changes
from .experiment import Outcome, default_of, experiment

LONGEST = 200.0  # seconds of computing for the changes of one type; what is left then is told as not built
SAVED = "with all its defaults stated"
TASKS = 12  # types after which a process is made anew: the classes of transformers are never forgotten


def of_type(model_type: str) -> list[Outcome]:
    """The default config of a type, bare and as it is saved, and its changes where that was seen."""
    import torch

    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bare = default_of(model_type)
        outcomes = [experiment(bare)]
        if not outcomes[0].reads or outcomes[0].kind not in ("equal", "differs"):
            return outcomes
        whole = with_defaults(bare)
        for name, keys in ((SAVED, whole), *changes(whole, outcomes[0].reads)):
            if sum(one.seconds for one in outcomes) > LONGEST:
                outcomes.append(Outcome(model_type, name, "not built", {"error": f"more than {LONGEST:g} seconds"}))
            else:
                outcomes.append(experiment({**bare, **keys}, name))
    return outcomes


def with_defaults(bare: dict[str, Any]) -> dict[str, Any]:
    from phasor.eye.tiny.config import config_of

    told: dict[str, Any] = json.loads(json.dumps(config_of(bare).to_dict(), default=str))
    return told


def collect(names: Iterable[str], processes: int, kept: Path | None) -> Iterator[tuple[str, list[Outcome]]]:
    """Each type with its outcomes, as they come; ``kept``: a file with a line for each type that is done."""
    done = dict(_read(kept)) if kept is not None and kept.is_file() else {}
    todo = []
    for name in names:
        if name in done:
            yield name, done[name]
        else:
            todo.append(name)
    with get_context("spawn").Pool(processes, maxtasksperchild=TASKS) as pool:
        for outcomes in pool.imap_unordered(of_type, todo):
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([asdict(one) for one in outcomes]) + "\n")
            yield outcomes[0].model_type, outcomes


def _read(kept: Path) -> Iterator[tuple[str, list[Outcome]]]:
    for line in kept.read_text(encoding="utf-8").splitlines():
        outcomes = [Outcome(**one) for one in json.loads(line)]
        yield outcomes[0].model_type, outcomes
