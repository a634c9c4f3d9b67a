"""`convert`: a plan carried out, proved and committed, or nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..processes import Group, process_group
from .plan import Plan, make_plan
from .proof import PROOF, prove
from .staging import JOURNAL, Staging, check_room, write_file
from .stream import Tell


def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: str,
    source_layout: str | None = None,
    part: str | None = None,
    force: bool = False,
    allow_pickle: bool = False,
    proof: bool = True,
    token_ids: list[int] | None = None,
    options: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    tell: Tell = lambda done: None,
) -> dict[str, Any]:
    """Write the checkpoint ``source`` as ``target``, a new folder, in another layout or format. Returns the proof.

    ``to``, ``source_layout``, ``part``, ``allow_pickle``: as in `make_plan`, whose ``plan`` may be given. The files
    grow in ``target`` + ``".phasor-partial"``, are proved there, and become ``target`` in one rename; a run that was
    killed is taken up by the next one. An existing ``target`` is replaced only with ``force``, and only if it holds
    nothing that this conversion does not write. ``tell`` is told how many bytes were written. Under torchrun the files
    are shared among the processes. ``token_ids``: also compare the logits, with models that transformers builds.

    Raises ``ValueError`` for a source that is refused, and if the proof fails; ``OSError`` if a disk is full.
    """
    plan = plan or make_plan(
        source, to, source_layout=source_layout, part=part, allow_pickle=allow_pickle, options=options
    )
    at = Path(target)
    check_target(plan, at, force)
    with process_group() as group:
        staging = Staging(at)
        if group.rank:
            group.barrier()
            _write_share(staging, plan, group, tell)
            group.barrier()
            return {}
        at.parent.mkdir(parents=True, exist_ok=True)
        with staging.locked():
            if staging.prepare(plan.fingerprint()):
                done: dict[str, Any] = json.loads((at / PROOF).read_text()) if (at / PROOF).exists() else {}
                staging.clear()
                return done
            check_room(staging.folder, sum(output.size for output in staging.missing(plan.outputs)))
            group.barrier()
            _write_share(staging, plan, group, tell)
            group.barrier()
            if staging.missing(plan.outputs):
                raise ValueError(f"{staging.files}: lacks files that another process was to write; run it again")
            _check_unchanged(plan, staging)
            try:
                report = prove(plan, staging.files, token_ids=token_ids) if proof else {}
            except ValueError:  # what is wrong must not be taken up by the next run
                staging.clear()
                raise
            if report:
                write_file(staging.files / PROOF, (json.dumps(report, indent=1) + "\n").encode())
            staging.commit()
            return report


def _write_share(staging: Staging, plan: Plan, group: Group, tell: Tell) -> None:
    """This process's share of the files: every ``size``-th, the largest first."""
    ordered = sorted(plan.outputs, key=lambda output: -output.size)
    staging.write(staging.missing(tuple(ordered[group.rank :: group.size])), tell)


def _check_unchanged(plan: Plan, staging: Staging) -> None:
    """The source must be what it was when it was read: a mixture would look whole."""
    if plan.fingerprint() != json.loads((staging.folder / JOURNAL).read_text())["plan"]:
        raise ValueError(f"{plan.source.path}: changed while it was converted; run it again")


def check_target(plan: Plan, target: Path, force: bool) -> None:
    """Raises ``ValueError`` for a target that must not be written."""
    source = plan.source.path.resolve()
    there = target.resolve()
    if target.is_symlink():
        raise ValueError(f"{target}: is a link, which is never written through; name the folder itself")
    if there == source or source in there.parents or there in source.parents:
        raise ValueError(f"{target}: must not be the source, inside it or around it; name another folder")
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"{target}: must be a new folder, and is a file; name another")
    held = {str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir() or p.is_symlink()}
    if not held or Staging(target).committed(plan.fingerprint()):
        return
    if not force:
        raise ValueError(f"{target}: exists; choose another name, or replace it with --force (force=True)")
    foreign = held - {output.name for output in plan.outputs} - {PROOF, "phasor.json"}
    if foreign:
        raise ValueError(f"{target}: holds {min(foreign)}, which this conversion does not write; empty it yourself")
