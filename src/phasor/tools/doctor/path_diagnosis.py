"""What `phasor doctor` does with a path: look at the folder, mend it where asked, load its model, and look at that."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .differences import Curve, curves
from .examinations import examined
from .folder import NOT_UNDERSTOOD, Examined, check_layout, examine, write
from .loading import load
from .observation import Observation
from .page import page
from .report import Check, Diagnosis, Verdict
from .text import Ranking, by_text
from .text.tokens import tokens_of, words_of


@dataclass(frozen=True)
class PathDiagnosis:
    """``diagnosis`` is of what stands in ``path`` after the repair, by the text too where one is given.

    ``mended``: what was repaired before.
    """

    path: Path
    diagnosis: Diagnosis
    curves: tuple[Curve, ...]
    mended: tuple[str, ...] = ()
    ranking: Ranking | None = None

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong, else 1."""
        return self.diagnosis.exit_code

    def __str__(self) -> str:
        blocks = [page(self.diagnosis, self.curves)]
        for title, text in (("repaired", "\n".join(self.mended)), ("by text", str(self.ranking or ""))):
            if not text:
                continue
            lines = text.splitlines()
            blocks.append("\n".join(f"{title if i == 0 else '':<13}{line}".rstrip() for i, line in enumerate(lines)))
        return "\n\n".join(blocks)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        ranking = {} if self.ranking is None else {"by_text": self.ranking.to_dict()}
        differences = [curve.to_dict() for curve in self.curves]
        data = {**self.diagnosis.to_dict(), "path": str(self.path), "exit_code": self.exit_code}
        return {**data, "repaired": list(self.mended), "differences": differences, **ranking}


def diagnose_path(
    path: Path, *, text: Path | None = None, repair: Path | None = None, meta: bool = False
) -> PathDiagnosis:
    """Examine a folder and the model in it, repaired into the folder ``repair`` where it can be.

    Raises ``ValueError`` for what cannot be read, loaded or written, in one line.
    """
    if text is not None:  # what is cheap and certain comes first
        words_of(text)
    seen = examine(path)
    folder = seen.folder
    if text is not None:
        tokens_of(text, path, seen.config or folder.config.data)
    mended: tuple[str, ...] = ()
    if repair is not None:
        if folder.has_weights and not meta:  # nothing is written where they cannot be loaded
            _ = folder.weight_files
        seen, mended = _repaired(seen, repair)
        folder, path = seen.folder, seen.folder.path
    try:
        model = load(folder, meta=meta or (text is None and not folder.has_weights))
    except ValueError as error:
        if path == repair and not seen.findings:
            raise ValueError(f"{error} ({mended[-1]})") from None
        if all(finding.cause == NOT_UNDERSTOOD for finding in seen.findings):
            raise ValueError(_said(error, seen)) from None
        unloaded = Check(what="the model itself", against="itself", verdict="not shown", reason=str(error))
        return PathDiagnosis(path, Diagnosis(path.name, (*seen.checks, unloaded)), (), mended)
    observed = Observation(model, bare=folder.config.model)
    diagnosis = examined(observed)
    of_weights = (check_layout(folder),) if folder.has_weights and not meta else ()
    ranking = None if text is None else by_text(model, text)
    diagnosis = replace(diagnosis, findings=(*seen.checks, *of_weights, *diagnosis.findings, *of_text(ranking)))
    return PathDiagnosis(path, diagnosis, curves(observed), mended, ranking)


def _said(error: ValueError, seen: Examined) -> str:
    """Why a model is not loaded; what phasor's reader says comes first, for it names the key."""
    if not seen.findings:
        return str(error)
    first = seen.findings[0]
    place = seen.folder.path / first.place  # a file, or a tensor
    message = f"{place if place.exists() else first.place}: {first.what.removeprefix('not read: ')}; {first.way_out}"
    return message if first.what in str(error) else f"{message} ({error})"


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


def _repaired(seen: Examined, target: Path) -> tuple[Examined, tuple[str, ...]]:
    if not seen.folder.path.is_dir():
        raise ValueError(f"--repair writes a whole folder anew; name the folder of {str(seen.folder.path)!r}")
    lines = tuple(finding.line() for finding in seen.findings)
    if not seen.mends:
        told = lines or ("nothing in the folder contradicts anything",)
        return seen, (*told, f"{target} is not written")
    names = write(seen, target)
    return examine(target), (*lines, f"written: {target}, with other {', '.join(names)}")
