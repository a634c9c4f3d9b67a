"""Text as bytes: read from files and folders, refused if it is not text, cut into a training and a held-out part."""

import hashlib
import stat
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

HELD_OUT = 0.1  # the share at the end of the text that is never trained on


@dataclass(frozen=True)
class Text:
    """The bytes of all files in order, joined by a newline, and what they were called by the user."""

    data: Tensor
    sha256: str
    names: tuple[str, ...]
    files: int

    @property
    def train(self) -> Tensor:
        return self.data[: len(self.data) - self._held_out]

    @property
    def held_out(self) -> Tensor:
        return self.data[len(self.data) - self._held_out :]

    @property
    def _held_out(self) -> int:
        return int(len(self.data) * HELD_OUT)

    def batch(self, seed: int, step: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets ``[batch, length]`` from random places of the training part: a pure function."""
        train = self.train
        if len(train) <= length:
            raise ValueError(
                f"text must have more than {length} bytes to train on (the training length), got {len(train)}; "
                "give more text or a smaller length"
            )
        starts = torch.from_numpy(randomness(seed, step).integers(0, len(train) - length, batch))
        rows = train[starts[:, None] + torch.arange(length + 1)].long()
        return rows[:, :-1], rows[:, 1:]


def randomness(seed: int, step: int) -> np.random.Generator:
    """The random numbers of one step of one seed (both below 2**32): nothing has to be remembered to resume."""
    return np.random.default_rng((seed, step))


def standard_library() -> list[Path]:
    """The default text: the modules of this Python's own standard library (about 4 MB)."""
    return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def read_text(paths: Sequence[str | Path] = (), *, glob: str = "*") -> Text:
    """The text of files and folders (searched to the bottom for names like ``glob``; hidden ones are left out).

    Without paths: `standard_library`. Raises ``ValueError`` for a path that does not exist, a folder without matching
    files, a file that is empty, not UTF-8 or has NUL bytes, and passes on the ``OSError`` of one that cannot be read.
    """
    files = [file for path in paths for file in _files(Path(path), glob)] if paths else standard_library()
    parts = [_read(file) for file in files]
    data = b"\n".join(parts)
    names = tuple(str(path) for path in paths) or ("the Python standard library",)
    return Text(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), hashlib.sha256(data).hexdigest(), names, len(files)
    )


def _files(path: Path, glob: str) -> list[Path]:
    if not path.exists():
        raise ValueError(f"text path must exist, got {str(path)!r}")
    if not path.is_dir():
        return [path]
    found = [
        file
        for file in sorted(path.rglob(glob))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not found:
        raise ValueError(f"text folder must hold files named like {glob!r}, got none in {str(path)!r}")
    return found


def _read(file: Path) -> bytes:
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError(f"text file must be a regular file, got {str(file)!r}")
    data = file.read_bytes()
    if not data:
        raise ValueError(f"text file must not be empty, got {str(file)!r}")
    reason = None
    if b"\0" in data:
        reason = f"a NUL byte at offset {data.index(0)}"
    else:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte 0x{data[error.start]:02x} at offset {error.start}, which is not UTF-8"
    if reason:
        raise ValueError(
            f"text file must be UTF-8 text, got {str(file)!r} with {reason}; leave it out (in a folder: a glob)"
        )
    return data
