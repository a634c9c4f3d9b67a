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


def check_file_target(name: str, path: Path) -> None:
    """Raise ``ValueError`` where a file could not be written to ``path``; call it before the work that makes the file.

    ``name`` is the argument that holds the path. A link is followed. A terminal, a null device or a pipe that somebody
    reads may be written to; a folder, a disk, a socket, and a file in a folder that is missing or cannot be written may
    not.
    """
    target = followed(path)
    if fault := _not_writable(target):
        raise ValueError(f"{name} must be a file that can be written, and {str(path)!r} {fault}; name another")
    if target.exists():
        return
    if not target.parent.is_dir():
        raise ValueError(f"{name} must be a file in a folder that exists, got {str(path)!r}; make the folder first")
    _check_folder(name, path, target.parent)


def check_folder_target(name: str, path: Path) -> None:
    """Raise ``ValueError`` where files could not be written into the folder ``path``, which need not exist yet."""
    target = followed(path)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{name} must be a folder, and {str(path)!r} is {_kind(target)}; name another")
    nearest = target
    while not nearest.exists() and nearest.parent != nearest:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ValueError(
            f"{name} must be a folder, and {str(path)!r} lies below {nearest}, {_kind(nearest)}; name another"
        )
    _check_folder(name, path, nearest)


def write_whole(path: Path, data: bytes) -> None:
    """``path`` holds either what it held before or all of ``data``, whenever the process or the machine stops.

    Makes its folder if that is absent. A link is followed: the file that it leads to is replaced, the link stays. A
    terminal, a null device or a pipe is written to. Raises ``OSError`` (disk full, no permission, a folder) and leaves
    ``path`` as it was. A process that is killed here leaves a file beside it, for `remove_partial`.
    """
    write_together({path: data})


def write_together(files: Mapping[Path, bytes]) -> None:
    """`write_whole` for files that belong together: none has its name before all are on the disk."""
    partials: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in files.items():
            target = followed(path)
            if target.is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if _is_stream(target):
                _write_into(target, data)
            else:
                partials[target] = _written_beside(target, data)
        for path, partial in partials.items():
            os.replace(partial, path)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot write ({why}); what was there before is untouched", str(path)) from error
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
        for folder, _, _ in os.walk(new):
            sync_folder(Path(folder))
        if path.exists():
            path.rename(old)
        try:
            new.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        sync_folder(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


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


def _write_into(path: Path, data: bytes) -> None:
    """Into a device or pipe, which keeps what it is."""
    if fault := _not_writable(path):
        raise OSError(errno.EINVAL, f"it {fault}")
    number = _descriptor(path)
    try:  # without O_NONBLOCK a pipe that nobody reads would wait for a reader
        fd = os.dup(number) if number is not None else os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "it is a pipe that nobody reads") from error
        raise
    os.set_blocking(fd, True)
    with open(fd, "wb") as stream:
        stream.write(data)


def _not_writable(path: Path) -> str:
    """Why nothing can be written to what is there; nothing where it can, or where nothing is there."""
    if not path.exists():
        return ""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        return f"is {_kind(path)}"
    return "" if os.access(path, os.W_OK) else "is write-protected"


def _kind(path: Path) -> str:
    mode = path.stat().st_mode
    kinds = (
        (stat.S_ISDIR, "a folder"), (stat.S_ISBLK, "a disk"), (stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISCHR, "a device"),
    )  # fmt: skip
    return next((word for is_kind, word in kinds if is_kind(mode)), "a file")


def _check_folder(name: str, path: Path, folder: Path) -> None:
    writable = os.access(folder, os.W_OK | os.X_OK)
    if writable:  # to root so is everything, /proc too
        try:
            os.rmdir(tempfile.mkdtemp(prefix=".phasor-", dir=folder))
        except OSError:
            writable = False
    if not writable:
        raise ValueError(f"{name} must be in a folder that can be written, got {str(path)!r}; name another")
