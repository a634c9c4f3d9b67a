"""`convert_in_place`: the few tensors that move are written where they are, behind a journal of their bytes.

The journal is one file in the folder of the weights: eight bytes of length, a JSON object, the original bytes of every
tensor that moves. It has its name only when it is whole. Until then nothing was touched; from then on the conversion is
done again from it, however far it came.
"""

import json
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...support.lock import alone
from ...support.regular_files import opened
from ...support.whole_files import remove_partial, sync_folder, write_whole
from .formats.safetensors_file import read_header
from .formats.transformers import CONFIG, mark_file
from .opening import parse_json, read_at
from .output import Tell, as_json, check_room, copy, load_meanwhile, settle, write_all
from .permutation import INT64
from .plan import ConversionPlan, make_plan
from .qk_tensors import Move, find_qk_tensors
from .source import IN_PLACE_JOURNAL, MARK, PROOF
from .stored import Stored, Tensor
from .tokens import check_tokens

ASIDE = f"{CONFIG}.phasor-in-place"  # without its config no program takes the folder for a whole model


class Change(NamedTuple):
    """A tensor in the weights, its original bytes in the journal, and how they are to lie."""

    here: Stored
    before: Stored
    move: Move


def write_journal(folder: Path, about: dict[str, Any], moved: Mapping[str, tuple[Stored, Move]], tell: Tell) -> None:
    """Keep the original bytes of tensors and what a later run must know; on the disk when this returns."""
    orders: dict[bytes, int] = {}
    entries = [
        {
            "tensor": name, "file": tensor.file.name, "dtype": tensor.dtype, "shape": tensor.shape,
            "offset": tensor.offset, "size": tensor.size, "axis": move.axis, "what": move.what,
            "order": orders.setdefault(move.order.tobytes(), len(orders)),
        }
        for name, (tensor, move) in moved.items()
    ]  # fmt: skip
    listed = [array(INT64, order).tolist() for order in orders]
    head = json.dumps({**about, "entries": entries, "orders": listed}).encode()
    partial = folder / f"{IN_PLACE_JOURNAL}.partial"
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(fd, len(head).to_bytes(8, "little") + head, lambda done: None)
        for tensor, _ in moved.values():
            with opened(tensor.file) as source:
                copy(source, tensor.offset, fd, tensor.size, tensor.file, tell)
        os.fsync(fd)
    except BaseException:
        partial.unlink()
        raise
    finally:
        os.close(fd)
    os.rename(partial, folder / IN_PLACE_JOURNAL)
    sync_folder(folder)


def read_journal(folder: Path) -> tuple[dict[str, Any], dict[str, Change]]:
    """What `write_journal` kept."""
    path = folder / IN_PLACE_JOURNAL
    with opened(path) as fd:
        size = int.from_bytes(read_at(fd, 0, 8, path), "little")
        about = parse_json(read_at(fd, 8, min(size, os.fstat(fd).st_size), path), path)
    at, changes = 8 + size, {}
    orders = [array(INT64, order) for order in about["orders"]]
    for e in about["entries"]:
        shape = tuple(e["shape"])
        changes[e["tensor"]] = Change(
            Stored(e["dtype"], shape, folder / e["file"], e["offset"], e["size"]),
            Stored(e["dtype"], shape, path, at, e["size"]),
            Move(e["axis"], orders[e["order"]], e["what"]),
        )
        at += e["size"]
    return about, changes


def apply(changes: Mapping[str, Change], tell: Tell, *, back: bool = False) -> None:
    """Write every tensor from its original bytes, reordered, or as it was; on the disk when this returns."""
    files = sorted({change.here.file for change in changes.values()})
    settle((_written(changes, file, tell, back), None) for file in files)


def _written(changes: Mapping[str, Change], file: Path, tell: Tell, back: bool) -> int:
    """The file, open, with its tensors written and nothing synced."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for change in (c for c in changes.values() if c.here.file == file):
            os.lseek(fd, change.here.offset, os.SEEK_SET)
            if back:
                with opened(change.before.file) as journal:
                    copy(journal, change.before.offset, fd, change.before.size, file, tell)
            else:
                from .reordering import blocks

                for block in blocks(change.before, change.move):
                    write_all(fd, block.data, tell)
    except BaseException:
        os.close(fd)
        raise
    return fd


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
        if (folder / IN_PLACE_JOURNAL).exists():
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
        load_meanwhile("proof" if proof else "reordering")
        _keep(plan, to, tell)
        return _finish(folder, proof, token_ids, tell)


def _check(plan: ConversionPlan) -> None:
    if plan.format != "transformers" or plan.source.format != "transformers" or not plan.source.keep["safe"]:
        raise ValueError(f"{plan.source.path}: only safetensors of transformers are converted in place; name a DST")
    for path in (*plan.source.files, plan.source.path / CONFIG):
        if path.is_symlink() or path.stat().st_nlink > 1:
            raise ValueError(f"{path}: is a link or has several names, and is never written through; name a DST")
        if not os.access(path, os.W_OK):
            raise ValueError(f"{path}: must be writable to be converted in place; name a DST")
    check_room(plan.source.path, sum(plan.source.tensors[name].size for name in plan.moves))


def _keep(plan: ConversionPlan, to: str, tell: Tell) -> None:
    """The journal of a plan."""
    moved = {name: (plan.source.tensors[name], move) for name, move in plan.moves.items()}
    config = next(output for output in plan.outputs if output.name == CONFIG).segments[0]
    before = (plan.source.path / CONFIG).read_bytes()
    about = {
        "to": to, "part": plan.qk.rotary.part, "layouts": plan.layouts, "mark": plan.mark,
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
        (folder / IN_PLACE_JOURNAL).unlink()
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
    (folder / IN_PLACE_JOURNAL).unlink()
    sync_folder(folder)
    return report


def _proved(
    folder: Path, about: dict[str, Any], changes: dict[str, Change], token_ids: list[int] | None
) -> dict[str, Any]:
    """Scores, and logits if asked, through the bytes in the journal and through those in the files."""
    from .proof import compared

    after: dict[str, Tensor] = {}
    for name in about["files"]:
        after |= read_header(folder / name).tensors
    before = after | {name: change.before for name, change in changes.items()}
    config, layouts = about["source_config"], about["layouts"]
    qk = find_qk_tensors(folder, config, after, about["part"])
    return compared(qk, config, layouts, before, after, folder, token_ids)
