"""`examine`: everything in a folder that contradicts something else in it."""

from dataclasses import dataclass
from pathlib import Path

from ....models.reading.load import in_file
from ..model_folder import ModelConfig, ModelFolder
from ..report import Check
from .bounds import check_sizes
from .contradictions import no_base, not_understood, settle
from .finding import NOT_UNDERSTOOD, FolderFault
from .frequencies import check_frequencies, stored_frequencies
from .sizes import settle_sizes, unread_weights


@dataclass(frozen=True)
class Examined:
    folder: ModelFolder
    findings: tuple[FolderFault, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """A row for each finding; one that is sound if there is none."""
        if self.findings:
            return tuple(finding.check() for finding in self.findings)
        return (Check(where="config.json", what="consistency", against="spec", verdict="right"),)


def examine(path: Path) -> Examined:
    """Compare the config of a folder with itself, and with the shapes and the stored frequencies of its weights.

    Raises ``ValueError`` for a path that holds no config, for files that are not what they are named, and for a config
    whose values no model can have.
    """
    folder = ModelFolder(path)
    try:
        with in_file(folder.file):
            return _examined(folder)
    except RecursionError:
        raise ValueError(f"{folder.file}: is nested too deeply to be a config") from None


def _examined(folder: ModelFolder) -> Examined:
    check_sizes(folder.config, folder.shapes, folder.file)
    stored = stored_frequencies(folder.tensors)
    settled, findings = _settled(folder)
    if all(f.cause != NOT_UNDERSTOOD for f in findings):
        findings += [*no_base(settled), *unread_weights(folder, settled)]
    if stored and all(f.settled for f in findings):  # else there is nothing to compare them with
        in_force = any(name.endswith("inv_freq") for name in settled.model.state_dict())
        findings += check_frequencies(settled, stored, in_force)
    return Examined(folder, tuple(findings))


def _settled(folder: ModelFolder) -> tuple[ModelConfig, list[FolderFault]]:
    """Sizes first, for frequencies follow from them; but a config may have to be settled to be understood at all."""
    sized, of_sizes = settle_sizes(folder, folder.config) if folder.shapes else (folder.config, [])
    settled, findings = settle(sized)
    if any(f.cause == NOT_UNDERSTOOD for f in of_sizes):
        settled, of_sizes = settle_sizes(folder, settled)
    if all(f.settled for f in findings):  # else the reader would say the same again
        findings += not_understood(settled)
    return settled, findings + of_sizes
