"""Small files that are whole or absent, whenever the process or the machine stops."""

import os
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"


def write_whole(path: Path, data: bytes) -> None:
    """``path`` holds either what it held before or all of ``data``, whenever the process or the machine stops.

    Makes its folder if that is absent. Raises ``OSError`` (disk full, no permission) and leaves ``path`` as it was. A
    process that is killed here leaves a file beside it, for `remove_partial`.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")  # two processes do not share one
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        with suppress(OSError):  # it was not made, or nothing can be changed there
            partial.unlink()
        if not isinstance(error, OSError):
            raise
        raise OSError(
            error.errno, f"cannot write ({error.strerror}); what was there before is untouched", str(path)
        ) from error
    sync_folder(path.parent)


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
