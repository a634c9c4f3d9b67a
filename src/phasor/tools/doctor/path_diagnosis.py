"""What `phasor doctor` does with a path: look at the folder, load its model, and look at that."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .examinations import examined
from .folder import NOT_UNDERSTOOD, Examined, check_layout, examine
from .loading import load
from .observation import Observation
from .report import Check, Diagnosis, Verdict
from .text import Ranking, by_text
from .text.tokens import tokens_of, words_of


@dataclass(frozen=True)
class PathDiagnosis:
    """The ``diagnosis`` of a ``path``, by the text too where one is given."""

    path: Path
    diagnosis: Diagnosis
    ranking: Ranking | None = None

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong, else 1."""
        return self.diagnosis.exit_code

    def __str__(self) -> str:
        return "\n\n".join(str(part) for part in (self.diagnosis, self.ranking) if part is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        ranking = {} if self.ranking is None else {"by_text": self.ranking.to_dict()}
        return {**self.diagnosis.to_dict(), "path": str(self.path), "exit_code": self.exit_code, **ranking}


def diagnose_path(path: Path, *, text: Path | None = None, meta: bool = False) -> PathDiagnosis:
    """Examine a folder and the model in it.

    Raises ``ValueError`` for what cannot be read or loaded, in one line.
    """
    if text is not None:  # what is cheap and certain comes first
        words_of(text)
    seen = examine(path)
    folder = seen.folder
    if text is not None:
        tokens_of(text, path, folder.config.data)
    try:
        model = load(folder, meta=meta or (text is None and not folder.has_weights))
    except ValueError as error:
        if all(finding.cause == NOT_UNDERSTOOD for finding in seen.findings):
            raise ValueError(_said(error, seen)) from None
        unloaded = Check(what="the model itself", against="itself", verdict="not shown", reason=str(error))
        return PathDiagnosis(path, Diagnosis(path.name, (*seen.checks, unloaded)))
    diagnosis = examined(Observation(model, bare=folder.config.model))
    of_weights = (check_layout(folder),) if folder.has_weights and not meta else ()
    ranking = None if text is None else by_text(model, text)
    diagnosis = replace(diagnosis, findings=(*seen.checks, *of_weights, *diagnosis.findings, *of_text(ranking)))
    return PathDiagnosis(path, diagnosis, ranking)


def _said(error: ValueError, seen: Examined) -> str:
    """Why a model is not loaded; what phasor's reader says comes first, for it names the key."""
    if not seen.findings:
        return str(error)
    first = seen.findings[0]
    place = seen.folder.path / first.where  # a file, or a tensor
    message = f"{place if place.exists() else first.where}: {first.reason.removeprefix('not read: ')}; {first.way_out}"
    return message if first.reason in str(error) else f"{message} ({error})"


def of_text(ranking: Ranking | None) -> tuple[Check, ...]:
    """What a text says of the stated encoding, as a check among the others: one verdict is about all of them."""
    if ranking is None:
        return ()
    verdicts: dict[str, Verdict] = {"as stated": "right", "cannot tell": "not shown", "another": "wrong"}
    check = Check(what="loss on the text", against="text", verdict=verdicts[ranking.verdict], reason=ranking.says())
    if check.verdict != "wrong":
        return (check,)
    way_out = "write that reading into the config"
    if len(ranking.tied) > 1:
        way_out = (
            "find out where the weights come from, or take a longer text: one of these is right, and none is shown"
        )
    return (replace(check, cause="weights of another encoding", way_out=way_out),)
