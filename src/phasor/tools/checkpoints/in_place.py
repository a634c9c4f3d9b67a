"""`convert_in_place`: the few tensors that move are written where they are, behind a journal of their bytes."""

import os
from pathlib import Path
from typing import Any

from ...support.lock import alone
from ...support.whole_files import remove_partial, sync_folder, write_whole
from .disk import check_room
from .formats.safetensors_file import read_header
from .formats.transformers import CONFIG, mark_file
from .output import as_json
from .plan import Plan, make_plan
from .proof import check_tokens, compared
from .qk_tensors import following
from .source import MARK, PROOF
from .stored import Stored, Tensor
from .stream import Tell
from .undo import JOURNAL, Change, apply, read_journal, write_journal

ASIDE = f"{CONFIG}.phasor-in-place"  # without its config no program takes the folder for a whole model


def convert_in_place(
    source: str | Path,
    *,
    to: str,
    source_layout: str | None = None,
    part: str | None = None,
    proof: bool = True,
    token_ids: list[int] | None = None,
    tell: Tell = lambda done: None,
) -> dict[str, Any]:
    """Move the pairs of a transformers checkpoint to another layout in its own safetensors files. Returns the proof.

    The original bytes of what moves are first kept in a journal in the folder, which needs that much room; then they
    are written in their new order, attention scores are compared in float64, and the journal is removed. A run that was
    killed is finished by the next one. Meanwhile ``config.json`` has another name, so that nothing loads a model that
    is half of each. ``token_ids``: also compare the logits, with models that transformers builds.

    Raises ``ValueError`` for other formats and for files that are links or have several names (a hub's cache), which
    others may share, and if the scores differ; then every byte is put back.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise ValueError(f"{folder}: must be a folder of transformers to be converted in place")
    with alone(folder):
        if (folder / JOURNAL).exists():
            about, _ = read_journal(folder)
            if to != about["to"]:
                raise ValueError(
                    f"{folder}: a conversion to {about['to']!r} was interrupted here; finish it first: --in-place --to "
                    f"{about['to']}"
                )
            check_tokens(about["source_config"], token_ids, proof)
            return _finish(folder, proof, token_ids, tell)
        plan = make_plan(folder, to, source_layout=source_layout, part=part)
        _check(plan)
        check_tokens(plan.source.config, token_ids, proof)
        _keep(plan, to, tell)
        return _finish(folder, proof, token_ids, tell)


def _check(plan: Plan) -> None:
    if plan.format != "transformers" or plan.source.format != "transformers" or not plan.source.keep["safe"]:
        raise ValueError(f"{plan.source.path}: only safetensors of transformers are converted in place; name a DST")
    for path in (*plan.source.files, plan.source.path / CONFIG):
        if path.is_symlink() or path.stat().st_nlink > 1:
            raise ValueError(f"{path}: is a link or has several names, and is never written through; name a DST")
        if not os.access(path, os.W_OK):
            raise ValueError(f"{path}: must be writable to be converted in place; name a DST")
    check_room(plan.source.path, sum(plan.source.tensors[name].size for name in plan.moves))


def _keep(plan: Plan, to: str, tell: Tell) -> None:
    """The journal of a plan."""
    moved = {name: (plan.source.tensors[name], move) for name, move in plan.moves.items()}
    config = next(output for output in plan.outputs if output.name == CONFIG).segments[0]
    before = (plan.source.path / CONFIG).read_bytes()
    about = {
        "to": to, "part": plan.found.rotary.part, "layouts": plan.layouts, "mark": plan.mark,
        "files": [path.name for path in plan.source.files], "source_config": plan.source.config,
        "config": (config if isinstance(config, bytes) else before).decode(),
    }  # fmt: skip
    stored = {name: (tensor, move) for name, (tensor, move) in moved.items() if isinstance(tensor, Stored)}
    assert len(stored) == len(moved)
    write_journal(plan.source.path, about, stored, tell)


def _finish(folder: Path, proof: bool, token_ids: list[int] | None, tell: Tell) -> dict[str, Any]:
    """All that is left to do once the journal is whole; may be called again and again."""
    about, changes = read_journal(folder)
    remove_partial(folder, MARK, PROOF, CONFIG)
    if not (folder / ASIDE).exists():
        os.rename(folder / CONFIG, folder / ASIDE)
        sync_folder(folder)
    apply(changes, tell)
    try:
        proved = _proved(folder, about, changes, token_ids) if proof else {}
    except ValueError:
        apply(changes, tell, back=True)
        os.rename(folder / ASIDE, folder / CONFIG)
        (folder / JOURNAL).unlink()
        raise
    if about["mark"]:
        write_whole(folder / MARK, mark_file(about["mark"]))
    else:
        (folder / MARK).unlink(missing_ok=True)
    report = {"in_place": True, "layouts": about["layouts"], "moved": sorted(changes), **proved}
    if proof:
        write_whole(folder / PROOF, as_json(report))
    else:  # one of an earlier conversion would be of other weights
        (folder / PROOF).unlink(missing_ok=True)
    write_whole(folder / CONFIG, about["config"].encode())
    (folder / ASIDE).unlink(missing_ok=True)
    (folder / JOURNAL).unlink()
    sync_folder(folder)
    return report


def _proved(
    folder: Path, about: dict[str, Any], changes: dict[str, Change], token_ids: list[int] | None
) -> dict[str, Any]:
    """Scores, and logits if asked, through the bytes in the journal and through those in the files."""
    after: dict[str, Tensor] = {}
    for name in about["files"]:
        after |= read_header(folder / name).tensors
    before = after | {name: change.before for name, change in changes.items()}
    config, layouts = about["source_config"], about["layouts"]
    found = following(folder, config, after, about["part"])
    return compared(found, config, layouts, before, after, folder, token_ids)
