"""`convert`: a plan carried out, proved and committed, or nothing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...support.lock import LOCK, alone
from ...support.whole_files import check_folder_target, put_in_place
from .output import Output, Tell, as_json, check_room, write_output
from .plan import ConversionPlan, make_plan
from .source import OURS, PROOF

SUFFIX = ".phasor-partial"
NEW, OLD = "new", "replaced"


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
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the checkpoint ``source`` as ``target``, a new folder, in another layout or format. Returns the proof.

    ``to``, ``source_layout``, ``part``, ``allow_pickle``, ``options``: as in `make_plan`; the rest as in `carry_out`.
    """
    plan = make_plan(source, to, source_layout=source_layout, part=part, allow_pickle=allow_pickle, options=options)
    return carry_out(plan, target, force=force, proof=proof)


def carry_out(
    plan: ConversionPlan,
    target: str | Path,
    *,
    force: bool = False,
    proof: bool = True,
    tell: Tell = lambda done: None,
) -> dict[str, Any]:
    """Write what a plan says as ``target``, a new folder. Returns the proof.

    The files grow in ``target`` + ``".phasor-partial"``, are proved there, and become ``target`` in one rename; what a
    run that was killed left there is removed by the next. An existing ``target`` is replaced only with ``force``, and
    only if it holds nothing that this conversion does not write. ``tell`` is told how many bytes were written.

    Raises ``ValueError`` for a target that must not be written, and if the proof fails; ``OSError`` if a disk is full.
    """
    target = Path(target)
    check_target(plan, target, force)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(target)
    with alone(partial):
        if _put_back(partial, target):
            check_target(plan, target, force)
        shutil.rmtree(partial / NEW, ignore_errors=True)
        (partial / NEW).mkdir()
        try:
            report = _written(plan, partial / NEW, proof, tell)
            put_in_place(partial / NEW, target, partial / OLD)
        except OSError as error:
            said = f"cannot write ({error.strerror}); {target} is untouched"
            raise OSError(error.errno, said, error.filename) from error
        finally:
            shutil.rmtree(partial)
    return report


def partial_of(target: Path) -> Path:
    """The folder beside ``target`` in which it grows."""
    return target.with_name(target.name + SUFFIX)


def _put_back(partial: Path, target: Path) -> bool:
    """Whether a run was killed between its two renames: what it was replacing has its name again."""
    if foreign := {entry.name for entry in partial.iterdir()} - {NEW, OLD, LOCK}:
        raise ValueError(f"{partial}: holds {min(foreign)}, which no conversion left there; move it elsewhere")
    if not (partial / OLD).exists():
        return False
    if target.exists():  # killed after them
        shutil.rmtree(partial / OLD)
        return False
    os.rename(partial / OLD, target)
    return True


def _written(plan: ConversionPlan, folder: Path, proof: bool, tell: Tell) -> dict[str, Any]:
    """The files of a plan in ``folder``, all on the disk, and their proof."""
    check_room(folder, plan.size)
    before = plan.state()
    for output in plan.outputs:
        write_output(folder / output.name, output, tell)
    if plan.state() != before:  # a mixture would look whole
        raise ValueError(f"{plan.source.path}: changed while it was converted; run it again")
    if not proof:
        return {}
    from .proof import prove

    report = prove(plan, folder)
    write_output(folder / PROOF, Output(PROOF, (as_json(report),)), tell)
    return report


def check_target(plan: ConversionPlan, target: Path, force: bool) -> None:
    """Raises ``ValueError`` for a target that must not be written."""
    source = plan.source.path.resolve()
    there = target.resolve()
    if target.is_symlink():
        raise ValueError(f"{target}: is a link, which is never written through; name the folder itself")
    if there == source or source in there.parents or there in source.parents:
        raise ValueError(f"{target}: must not be the source, inside it or around it; name another folder")
    if (partial := partial_of(target)).exists() and not partial.is_dir():
        raise ValueError(f"{partial}: is in the way, and not what a conversion left; move it elsewhere")
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"{target}: must be a new folder, and is a file; name another")
    check_folder_target("target", target, whole=True)
    held = {str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir() or p.is_symlink()}
    if not held:
        return
    if not force:
        raise ValueError(f"{target}: exists; choose another name, or replace it with --force (force=True)")
    files = {name for name in held if (target / name).is_file() or (target / name).is_symlink()}  # no pipes, no devices
    foreign = held - (files & {*OURS, *(output.name for output in plan.outputs)})
    if foreign:
        raise ValueError(f"{target}: holds {min(foreign)}, which this conversion does not write; empty it yourself")
