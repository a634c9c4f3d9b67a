"""The one way to write a file: it is whole or absent, whenever the process or the machine stops, and never takes the
place of a device, a pipe or a folder."""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"
LONGEST = 255 - len(f".journal.4194304{PARTIAL}")  # what a name may grow by while its file is made


def check_file_target(name: str, path: Path, *, ordinary: bool = False) -> None:
    """Raise ``ValueError`` where a file could not be written to ``path``; call it before the work that makes the file.

    ``name`` is the argument that holds the path. A link is followed. A terminal, a null device or a pipe may be written
    to, unless the file must be ``ordinary``, since it names others beside it.
    """
    target = followed(path)
    if target.is_dir():
        raise ValueError(f"{name} must be a file that can be written, and {str(path)!r} is a folder; name another")
    if _is_stream(target) and not ordinary:
        return
    if ordinary and (_is_stream(target) or os.fsencode(target).decode(errors="ignore") != str(target)):
        raise ValueError(
            f"{name} must be an ordinary file with a path in UTF-8, as others may stand beside it, got {str(path)!r}; "
            "name another"
        )
    if not (path.parent.is_dir() and target.parent.is_dir()):  # to the system there is no "missing/.."
        raise ValueError(f"{name} must be a file in a folder that exists, got {str(path)!r}; make the folder first")
    _check_place(name, path, target)


def check_folder_target(name: str, path: Path, *, whole: bool = False) -> None:
    """Raise ``ValueError`` where files could not be written into the folder ``path``, which need not exist yet.

    ``whole``: a new folder will take its place (`whole_folder`).
    """
    target = followed(path)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{name} must be a folder, and {str(path)!r} is none; name another")
    nearest = path
    while not nearest.exists() and nearest.parent != nearest:
        if nearest.is_symlink() or nearest.name == "..":
            raise ValueError(f"{name} must be a folder, and {nearest} of {str(path)!r} leads to nothing; name another")
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ValueError(f"{name} must be a folder, and {str(path)!r} lies below {nearest}, a file; name another")
    _check_writable(name, path, nearest)
    if whole and target in ((here := Path.cwd()), *here.parents):
        raise ValueError(f"{name} must not be the folder you are in or around it, got {str(path)!r}; name one below it")
    if whole:
        _check_place(name, path, target)


def write_whole(path: Path, data: bytes) -> None:
    """``path`` holds either what it held before or all of ``data``, whenever the process or the machine stops.

    Makes its folder if that is absent. A link is followed: the file that it leads to is replaced, the link stays. A
    terminal, a null device or a pipe is written to. Raises ``OSError`` (disk full, no permission, a folder), and leaves
    ``path`` as it was. A process that is killed here leaves a file beside it, for `remove_partial`.
    """
    write_together({path: data})


def write_together(files: Mapping[Path, bytes | Path]) -> None:
    """`write_whole` for files that belong together: none has its name before all are on the disk.

    In place of its data a file may be there already, under another name of the same disk, which it loses.
    """
    partials: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in files.items():
            target = followed(path)
            if target.is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if _is_stream(target):
                number = _descriptor(target)
                with open(target if number is None else number, "wb", closefd=number is None) as stream:
                    stream.write(data.read_bytes() if isinstance(data, Path) else data)
            elif isinstance(data, Path):
                partials[target] = data
                keep_access(target, data)
                with open(data, "r+b") as file:
                    os.fsync(file.fileno())
            else:
                partials[target] = _written_beside(target, data)
        for path, partial in partials.items():
            os.replace(partial, path)
    except OSError as error:
        kept = "" if _is_stream(path) else "; what was there before is untouched"
        raise OSError(error.errno, f"cannot write ({error.strerror or error}){kept}", str(path)) from error
    finally:
        for partial in partials.values():
            _remove(partial)
    for folder in {target.parent for target in partials}:
        sync_folder(folder)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A scratch folder beside ``path``, which takes its name and its place when the block ends without an error.

    So there is all of a folder or nothing. What stood there before is removed after the new one has its place. Its
    files are written by `write_whole`, or synced by whoever writes them.
    """
    path = followed(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    new, old = beside / "new", beside / "old"
    try:
        new.mkdir()
        yield new
        put_in_place(new, path, old)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def put_in_place(new: Path, path: Path, old: Path) -> None:
    """A folder whose files are on the disk becomes ``path``; what stood there becomes ``old``."""
    for folder, _, _ in os.walk(new):
        sync_folder(Path(folder))
    keep_access(path, new)
    if path.exists():
        path.rename(old)
    try:
        new.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    sync_folder(path.parent)


def keep_access(old: Path, new: Path) -> None:
    """Whoever may read what is replaced may read what replaces it, and nobody else."""
    if old.exists():
        about = old.stat()
        with suppress(OSError, AttributeError):  # only root gives files away, and not on every system
            os.chown(new, about.st_uid, about.st_gid)
        if new.stat().st_mode != about.st_mode:  # not every disk has modes to set
            os.chmod(new, stat.S_IMODE(about.st_mode))


def remove_partial(folder: Path, *names: str) -> None:
    """Delete what killed processes left of these files: for the one process that may write them."""
    for name in names:
        for path in folder.glob(f"{name}.[0-9]*{PARTIAL}"):
            path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk."""
    if not hasattr(os, "O_DIRECTORY"):  # a system where no folder can be opened
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def followed(path: Path) -> Path:
    """Where links lead, be it to nothing yet. Raises ``OSError`` for links in a circle.

    What is open already (``/dev/stdout``) and devices keep their names: what these lead to may have none.
    """
    if _is_stream(path):
        return path
    try:
        return path.resolve()
    except RuntimeError as error:  # so Python 3.11 and 3.12 say of a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def _is_stream(path: Path) -> bool:
    """Whether to write into what is there, and not to put something else in its place."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def _descriptor(path: Path) -> int | None:
    """The number of what is open already under this name: to open it anew would begin at its start again."""
    if str(path) in ("/dev/stdout", "/dev/stderr"):
        return 1 + (path.name == "stderr")
    opened = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", str(path))
    return int(opened[1]) if opened else None


def _written_beside(path: Path, data: bytes) -> Path:
    """The data on the disk, under a name that it does not keep."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")  # two processes do not share one
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            keep_access(path, partial)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _remove(partial)
        raise
    return partial


def _remove(path: Path) -> None:
    with suppress(OSError):  # it was not made, or nothing can be changed there
        path.unlink()


def _check_place(name: str, path: Path, target: Path) -> None:
    """Raise ``ValueError`` where nothing new can take the place of ``target``, or its name beside what is there."""
    if len(os.fsencode(target.name)) > LONGEST:
        raise ValueError(f"{name} must have a name of at most {LONGEST} bytes, got {str(path)!r}; name another")
    if target.parent.is_dir():
        _check_writable(name, path, target.parent)


def _check_writable(name: str, path: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be in a folder that can be written, got {str(path)!r}; name another")
