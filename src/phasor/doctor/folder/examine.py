"""`examine`: everything in a folder that contradicts something else in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ...checkpoints.opening import read_json
from ..loading import built, file_of
from ..report import Check
from .contradictions import settle
from .finding import Finding
from .frequencies import check_frequencies, stored_frequencies
from .sizes import settle_sizes
from .weights import headers, tensors_in


@dataclass(frozen=True)
class Examined:
    """``config`` as it would be mended, None where it stays; ``tensors``: stored ones that get other values."""

    path: Path
    findings: tuple[Finding, ...]
    config: dict[str, Any] | None
    tensors: dict[str, Tensor]

    @property
    def mends(self) -> bool:
        """Whether anything can be mended."""
        return self.config is not None or bool(self.tensors)

    @property
    def checks(self) -> tuple[Check, ...]:
        """A row for each finding; one that is sound if there is none."""
        if self.findings:
            return tuple(finding.check() for finding in self.findings)
        return (Check(path="config.json", what="consistency", against="spec", verdict="sound"),)


def examine(path: Path) -> Examined:
    """Compare the config of a folder with itself, and with the shapes and the stored frequencies of its weights.

    Raises ``ValueError`` for a path that holds no config, and for files that are not what they are named.
    """
    folder, file = file_of(path)
    config = read_json(file)
    tensors = tensors_in(headers(folder)) if path.is_dir() else {}
    stored = stored_frequencies(tensors)
    settled, findings = settle(config, stored)
    if tensors:
        settled, more = settle_sizes(settled, {name: tensor.shape for name, tensor in tensors.items()})
        findings += more
    values: dict[str, Tensor] = {}
    if stored and all(f.mended for f in findings):  # else there is nothing to compare them with
        in_force = any(name.endswith("inv_freq") for name in built(settled).state_dict())
        more, values = check_frequencies(settled, stored, in_force)
        findings += more
    return Examined(path, tuple(findings), settled if settled != config else None, values)
