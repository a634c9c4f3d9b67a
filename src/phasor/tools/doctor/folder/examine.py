"""`examine`: everything in a folder that contradicts something else in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....models.reading.load import in_file
from ..model_folder import ModelConfig, ModelFolder
from ..report import Check
from .bounds import OUT, check_sizes
from .faults import NOT_UNDERSTOOD, fault
from .frequencies import check_frequencies, stored_frequencies
from .sizes import differing_sizes, unread_weights

CONTRADICTS = "config contradicts itself"
IMPOSSIBLE = re.compile(r" must be .*, got ")  # a rule for one value, and no word about the family


@dataclass(frozen=True)
class Examined:
    folder: ModelFolder
    findings: tuple[Check, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """The findings; one row that is right if there is none."""
        return self.findings or (Check(where="config.json", what="consistency", against="spec", verdict="right"),)


def examine(path: Path) -> Examined:
    """Compare the config of a folder with itself, and with the shapes and the stored frequencies of its weights.

    Raises ``ValueError`` for a path that holds no config, for files that are not what they are named, and for a config
    whose values no model can have.
    """
    folder = ModelFolder(path)
    try:
        with in_file(folder.file):
            return Examined(folder, tuple(_findings(folder)))
    except RecursionError:
        raise ValueError(f"{folder.file}: is nested too deeply to be a config") from None


def _findings(folder: ModelFolder) -> list[Check]:
    config, stored = folder.config, stored_frequencies(folder.tensors)
    check_sizes(config, folder.shapes, folder.file)
    findings = [*_not_understood(config), *differing_sizes(folder)]
    if all(finding.cause not in (NOT_UNDERSTOOD, CONTRADICTS) for finding in findings):
        findings += [*_no_base(config), *unread_weights(folder)]
    if stored and not findings:  # else there is nothing to compare them with
        in_force = any(name.endswith("inv_freq") for name in config.model.state_dict())
        findings += check_frequencies(config, stored, in_force)
    return findings


def _not_understood(config: ModelConfig) -> Iterator[Check]:
    """What `read_config` refuses. Raises ``ValueError`` for a value that the key cannot have in any model."""
    try:
        parts = config.parts.items()
    except ValueError as error:  # nan, which JSON does not have
        raise ValueError(f"{error}; {OUT}") from None
    for part, read in parts:
        if isinstance(read, str) and read.startswith("not read"):
            if IMPOSSIBLE.search(read):
                inside = f"{part}: " if part else ""
                raise ValueError(f"{inside}{read.removeprefix('not read: ')}; {OUT}")
            where = f"config.json: {part}" if part else "config.json"
            if "contradict each other" in read:
                yield fault(where, read, CONTRADICTS, "keep the one that the weights were trained with")
            else:
                yield fault(where, read, NOT_UNDERSTOOD, "change that key by hand")


def _no_base(config: ModelConfig) -> Iterator[Check]:
    """A scaling in ``rope_parameters``, where transformers always saves the base too, and no base anywhere."""
    for path, level in config.levels:
        rope = level.get("rope_parameters")
        if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
            continue
        scaled = (rope.get("rope_type") or rope.get("type") or "default") != "default"
        if scaled and rope.get("rope_theta") is None and level.get("rope_theta") is None:
            at = "".join(f"{key}." for key in path)
            what = f"{at}rope_parameters states a scaling and no rope_theta, so the base is the default of who reads it"
            way_out = f"add the rope_theta of the original model's config.json to {at}rope_parameters"
            yield fault("config.json", what, "base by default", way_out)
