"""`convert`: a plan carried out, proved and committed, or nothing."""

import errno
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...support.lock import LOCK, alone
from ...support.processes import Group, process_group
from ...support.whole_files import check_folder_target, keep_access, remove_partial, sync_folder, write_whole
from .opening import read_json
from .output import Output, Tell, as_json, check_room, going_to_the_disk, load_meanwhile, settle, write_segment
from .permutation import WORDS
from .plan import ConversionPlan, make_plan, pair_word
from .source import OURS, PROOF
from .tokens import check_tokens

SUFFIX = ".phasor-partial"
JOURNAL, FILES, OLD = "journal.json", "files", "replaced"


class Staging:
    """The folder beside ``target`` in which it grows, ``DST.phasor-partial``; nothing there looks whole too early.

    It holds a journal (which plan this is), ``files/``, and, for a moment, what is replaced. A file stands there under
    its name only when all its bytes are on the disk. The last step renames ``files/`` to ``target``.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(target.name + SUFFIX)
        self.files, self.old = self.folder / FILES, self.folder / OLD

    @property
    def plan(self) -> str | None:
        """The fingerprint of the plan that the journal was written for."""
        journal = self.folder / JOURNAL
        return read_json(journal).get("plan") if journal.exists() else None

    def committed(self, fingerprint: str) -> bool:
        """Whether a run of the same plan was killed after its last step, before it removed its journal."""
        return not self.files.exists() and self.target.exists() and self.plan == fingerprint

    def prepare(self, fingerprint: str) -> bool:
        """Take up what an earlier run of the same plan left, or begin anew. Returns whether all is committed already.

        Raises ``ValueError`` for a folder of this name that no conversion made.
        """
        remove_partial(self.folder, JOURNAL)
        foreign = {entry.name for entry in self.folder.iterdir()} - {JOURNAL, FILES, OLD, LOCK}
        if foreign or any(path.exists() and not path.is_dir() for path in (self.files, self.old)):
            raise ValueError(f"{self.folder}: is in the way, and not what a conversion left; move it elsewhere")
        if self.old.exists() and not self.target.exists():  # killed between the two renames
            os.rename(self.old, self.target)
        elif self.old.exists():  # killed after them
            shutil.rmtree(self.old)
        if self.committed(fingerprint):
            return True
        if self.files.exists() and self.plan == fingerprint:
            return False
        journal = self.folder / JOURNAL
        journal.unlink(missing_ok=True)
        if self.files.exists():
            shutil.rmtree(self.files)
        self.files.mkdir()
        write_whole(journal, json.dumps({"plan": fingerprint, "target": str(self.target)}).encode())
        return False

    def missing(self, outputs: tuple[Output, ...]) -> list[Output]:
        """The files that are not complete yet."""
        return [o for o in outputs if not ((at := self.files / o.name).is_file() and at.stat().st_size == o.size)]

    def write(self, outputs: list[Output], tell: Tell) -> None:
        """Write files, each to a temporary name until it is on the disk."""
        settle(self._written(output, tell) for output in outputs)

    def _written(self, output: Output, tell: Tell) -> tuple[int, Path]:
        """The file, open and whole, with nothing synced."""
        path = self.files / output.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(f"{path}.partial", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            with going_to_the_disk(fd):
                for segment in output.segments:
                    write_segment(fd, segment, tell)
            if output.finish is not None:
                output.finish(fd)
            if (size := os.fstat(fd).st_size) != output.size:
                raise ValueError(f"{path}: must have {output.size} bytes, got {size}; a file changed meanwhile")
        except BaseException as error:
            os.close(fd)
            os.unlink(f"{path}.partial")
            raise self._disk_error(error, path) from error
        return fd, path

    def _disk_error(self, error: BaseException, path: Path) -> BaseException:
        """A full disk in words, with the way out."""
        if not isinstance(error, OSError):
            return error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        out = f"; make room and run it again to go on, or remove {self.folder}" if full else ""
        return OSError(error.errno, f"cannot write ({error.strerror}); {self.target} is untouched{out}", str(path))

    def commit(self) -> None:
        """The files become the target, in one rename, and the journal goes."""
        for folder, _, _ in os.walk(self.files):
            sync_folder(Path(folder))
        if self.target.exists():
            keep_access(self.target, self.files)
            os.rename(self.target, self.old)
        os.rename(self.files, self.target)
        sync_folder(self.target.parent)
        self.clear()

    def clear(self) -> None:
        """Remove the journal's folder, with what was replaced."""
        shutil.rmtree(self.folder)


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
    plan: ConversionPlan | None = None,
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
        if group.any(done):
            return _left(staging) if group.first else {}
        load_meanwhile("proof" if proof and group.first else "reordering")
        with group.together():
            _write_share(staging, plan, group, tell)
        with group.together():
            return _ended(plan, staging, proof, token_ids) if group.first else {}


def _begun(plan: ConversionPlan, staging: Staging, force: bool, held: ExitStack) -> bool:
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


def _ended(plan: ConversionPlan, staging: Staging, proof: bool, token_ids: list[int] | None) -> dict[str, Any]:
    """All files are there: they are proved, and become the target."""
    if staging.missing(plan.outputs):
        raise ValueError(f"{staging.files}: lacks files that another process was to write; run it again")
    if plan.fingerprint() != staging.plan:  # a mixture would look whole
        raise ValueError(f"{plan.source.path}: changed while it was converted; run it again")
    from .proof import prove

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


def _write_share(staging: Staging, plan: ConversionPlan, group: Group, tell: Tell) -> None:
    """This process's share of the files: every ``size``-th, the largest first."""
    ordered = sorted(plan.outputs, key=lambda output: -output.size)
    staging.write(staging.missing(tuple(ordered[group.rank :: group.size])), tell)


def check_plan(plan: ConversionPlan, source: str | Path, to: str, source_layout: str | None, part: str | None) -> None:
    """Raises ``ValueError`` where a plan is not for these arguments; what it does not keep is not looked at."""
    before, after = plan.layouts
    if plan.source.format != plan.format or to not in WORDS:
        fitting = to == plan.format
    elif to == "native" and plan.format != "transformers":  # the layout of the format
        fitting = True
    else:
        fitting = pair_word(plan.qk, to) == after
    for name, given, planned, fits in (
        ("source", str(source), str(plan.source.path), Path(source).resolve() == plan.source.path.resolve()),
        ("to", to, f"{plan.format}, {after}", fitting),
        ("source_layout", source_layout, before, pair_word(plan.qk, source_layout or before) == before),
        ("part", part, plan.qk.rotary.part, part in (None, plan.qk.rotary.part)),
    ):
        if not fits:
            raise ValueError(
                f"{name} must be that of the plan, {planned!r}, got {given!r}; make a new plan, or give none"
            )


def check_target(plan: ConversionPlan, target: Path, force: bool) -> None:
    """Raises ``ValueError`` for a target that must not be written."""
    source = plan.source.path.resolve()
    there = target.resolve()
    if target.is_symlink():
        raise ValueError(f"{target}: is a link, which is never written through; name the folder itself")
    if there == source or source in there.parents or there in source.parents:
        raise ValueError(f"{target}: must not be the source, inside it or around it; name another folder")
    if (partial := Staging(target).folder).exists() and not partial.is_dir():
        raise ValueError(f"{partial}: is in the way, and not what a conversion left; move it elsewhere")
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"{target}: must be a new folder, and is a file; name another")
    check_folder_target("target", target, whole=True)
    held = {str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir() or p.is_symlink()}
    if not held or Staging(target).committed(plan.fingerprint()):
        return
    if not force:
        raise ValueError(f"{target}: exists; choose another name, or replace it with --force (force=True)")
    files = {name for name in held if (target / name).is_file() or (target / name).is_symlink()}  # no pipes, no devices
    foreign = held - (files & {*OURS, *(output.name for output in plan.outputs)})
    if foreign:
        raise ValueError(f"{target}: holds {min(foreign)}, which this conversion does not write; empty it yourself")
