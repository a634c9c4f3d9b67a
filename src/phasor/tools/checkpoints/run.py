"""`convert`: a plan carried out, proved and committed, or nothing."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ...support.lock import alone
from ...support.processes import Group, process_group
from ...support.whole_files import remove_partial, write_whole
from .disk import check_room
from .opening import read_json
from .output import as_json
from .permutation import WORDS
from .plan import Plan, make_plan, plain_word
from .proof import check_tokens, prove
from .source import OURS, PROOF
from .staging import Staging
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

    ``to``, ``source_layout``, ``part``, ``allow_pickle``, ``options``: as in `make_plan`, whose ``plan`` may be given
    and must then say the same. The files
    grow in ``target`` + ``".phasor-partial"``, are proved there, and become ``target`` in one rename; a run that was
    killed is taken up by the next one. An existing ``target`` is replaced only with ``force``, and only if it holds
    nothing that this conversion does not write. ``tell`` is told how many bytes were written. Under torchrun the files
    are shared among the processes; all return when the target is there, the first one with the proof. ``token_ids``:
    also compare the logits, with models that transformers builds.

    Raises ``ValueError`` for a source that is refused, for a plan of something else, and if the proof fails;
    ``OSError`` if a disk is full.
    """
    if plan is None:
        plan = make_plan(source, to, source_layout=source_layout, part=part, allow_pickle=allow_pickle, options=options)
    else:
        check_plan(plan, source, to, source_layout, part)
    check_tokens(plan.source.config, token_ids, proof)
    with process_group() as group, ExitStack() as held:
        staging = Staging(Path(target))
        with group.together():
            done = group.first and _begun(plan, staging, force, held)
        if group.total(torch.tensor(int(done))):
            return _left(staging) if group.first else {}
        with group.together():
            _write_share(staging, plan, group, tell)
        with group.together():
            return _ended(plan, staging, proof, token_ids) if group.first else {}


def _begun(plan: Plan, staging: Staging, force: bool, held: ExitStack) -> bool:
    """Whether all is committed already; else the folder is ready to be written, and locked until ``held`` ends."""
    check_target(plan, staging.target, force)
    staging.target.parent.mkdir(parents=True, exist_ok=True)
    held.enter_context(alone(staging.folder))
    if staging.prepare(plan.fingerprint()):
        return True
    check_room(staging.folder, sum(output.size for output in staging.missing(plan.outputs)))
    return False


def _left(staging: Staging) -> dict[str, Any]:
    """The proof of a run that was killed after its last step."""
    path = staging.target / PROOF
    staging.clear()
    return read_json(path) if path.exists() else {}


def _ended(plan: Plan, staging: Staging, proof: bool, token_ids: list[int] | None) -> dict[str, Any]:
    """All files are there: they are proved, and become the target."""
    if staging.missing(plan.outputs):
        raise ValueError(f"{staging.files}: lacks files that another process was to write; run it again")
    if plan.fingerprint() != staging.plan:  # a mixture would look whole
        raise ValueError(f"{plan.source.path}: changed while it was converted; run it again")
    try:
        report = prove(plan, staging.files, token_ids=token_ids) if proof else {}
    except ValueError:  # what is wrong must not be taken up by the next run
        staging.clear()
        raise
    remove_partial(staging.files, PROOF)  # all that is there becomes the target
    if report:
        write_whole(staging.files / PROOF, as_json(report))
    staging.commit()
    return report


def _write_share(staging: Staging, plan: Plan, group: Group, tell: Tell) -> None:
    """This process's share of the files: every ``size``-th, the largest first."""
    ordered = sorted(plan.outputs, key=lambda output: -output.size)
    staging.write(staging.missing(tuple(ordered[group.rank :: group.size])), tell)


def check_plan(plan: Plan, source: str | Path, to: str, source_layout: str | None, part: str | None) -> None:
    """Raises ``ValueError`` where a plan is not for these arguments; what it does not keep is not looked at."""
    before, after = plan.layouts
    if plan.source.format != plan.format or to not in WORDS:
        fitting = to == plan.format
    elif to == "native" and plan.format != "transformers":  # the layout of the format
        fitting = True
    else:
        fitting = plain_word(plan.found, to) == after
    for name, given, planned, fits in (
        ("source", str(source), str(plan.source.path), Path(source).resolve() == plan.source.path.resolve()),
        ("to", to, f"{plan.format}, {after}", fitting),
        ("source_layout", source_layout, before, plain_word(plan.found, source_layout or before) == before),
        ("part", part, plan.found.rotary.part, part in (None, plan.found.rotary.part)),
    ):
        if not fits:
            raise ValueError(
                f"{name} must be that of the plan, {planned!r}, got {given!r}; make a new plan, or give none"
            )


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
    foreign = held - {output.name for output in plan.outputs} - {*OURS}
    if foreign:
        raise ValueError(f"{target}: holds {min(foreign)}, which this conversion does not write; empty it yourself")
