"""The mended folder: config and stored frequencies new, all other files copied, all of it or nothing."""

import json
import os
from pathlib import Path

from torch import Tensor

from ....support.whole_files import whole_folder
from ...checkpoints.formats.safetensors_file import SafetensorsFile, write_header
from ...checkpoints.output import Output, Range, Segment, check_room, merged, whole_file, write_output
from ...checkpoints.torch_types import WORDS
from .examine import Examined


def write(examined: Examined, target: Path) -> list[str]:
    """Write what `examine` can mend into ``target``, a new folder; the names of the files that are not as they were.

    Everything is written beside ``target``, synced, and then given its name. Hidden files are left out; of links,
    also those to folders, the content is copied. The source is only read. Raises ``ValueError`` where ``target`` exists
    or is inside the folder or around it, and for a link to nothing or to a folder around it; ``OSError`` where it does
    not fit.
    """
    source = examined.folder.path
    _check(source, target)
    files = {file.path.name: file for file in examined.folder.files}
    changed = {
        n: _rewritten(f, examined.tensors) for n, f in files.items() if f.tensors.keys() & examined.tensors.keys()
    }
    if examined.config is not None:
        text = (
            json.dumps(examined.config, indent=2, ensure_ascii=False) + "\n"
        )  # Infinity too, which some configs state
        changed["config.json"] = Output("config.json", (text.encode(),))
    outputs = [changed.get(name) or Output(name, (whole_file(source / name),)) for name in _names(source)]
    target.parent.mkdir(parents=True, exist_ok=True)
    check_room(target.parent, sum(output.size for output in outputs))
    with whole_folder(target) as scratch:
        for output in outputs:
            write_output(scratch / output.name, output, lambda done: None)
    return sorted(changed)


def _check(source: Path, target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise ValueError(f"--repair must be a new folder, and {str(target)!r} is there already; name another")
    here, there = source.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise ValueError(f"--repair must not be inside the source or around it, got {str(target)!r}; name another")


def _names(source: Path) -> list[str]:
    """Everything in a folder but folders, by relative names, hidden things left out. Links around it are refused."""
    paths = []
    for at, folders, names in os.walk(source, followlinks=True):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for link in (Path(at) / f for f in folders if (Path(at) / f).is_symlink()):
            if link.resolve() in (Path(at).resolve(), *Path(at).resolve().parents, *source.resolve().parents):
                raise ValueError(f"{link}: links to a folder around it, so a copy has no end; take the link away")
        paths += [str((Path(at) / name).relative_to(source)) for name in sorted(names) if not name.startswith(".")]
    return paths


def _rewritten(file: SafetensorsFile, new: dict[str, Tensor]) -> Output:
    """A safetensors file with other values, and where need be another dtype, for some tensors."""
    entries: list[tuple[str, str, tuple[int, ...], int]] = []
    segments: list[Segment] = []
    for name, stored in file.tensors.items():
        if name in new:
            data = new[name].contiguous().numpy().tobytes()
            entries.append((name, WORDS[new[name].dtype], tuple(new[name].shape), len(data)))
            segments.append(data)
        else:
            entries.append((name, stored.dtype, stored.shape, stored.size))
            segments.append(Range(stored.file, stored.offset, stored.size))
    return Output(file.path.name, (write_header(entries, file.metadata), *merged(segments)))
