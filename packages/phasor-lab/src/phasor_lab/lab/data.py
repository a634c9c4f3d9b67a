"""Text as bytes: read from files and folders, refused if it is not text, each file cut into what is trained on and what
is held out."""

import hashlib
import stat
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

HELD_OUT = 0.1  # the share at the end of every file that is never trained on


@dataclass(frozen=True)
class Text:
    """What is trained on and what is held out, of all files in order, joined by a newline.

    ``sha256``: of several files, that of their SHA-256 in hexadecimal, a line each; ``names``: what the user called
    them; ``starts``: where in ``held_out`` each further file begins, with the newline before it.
    """

    train: Tensor
    held_out: Tensor
    sha256: str
    names: tuple[str, ...]
    files: int
    starts: tuple[int, ...] = ()

    def held_out_sample(self, size: int) -> Tensor:
        """``size`` held-out bytes, or all if there are fewer: of every file the first ones, in proportion."""
        whole = len(self.held_out)
        bounds = (0, *self.starts, whole)
        cuts = [bound * min(size, whole) // whole for bound in bounds] if whole else [0] * len(bounds)
        pieces = zip(bounds, cuts[:-1], cuts[1:], strict=False)
        return torch.cat([self.held_out[start : start + high - low] for start, low, high in pieces])

    def batch(self, seed: int, step: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets ``[batch, length]`` from random places of the training part: a pure function."""
        if len(self.train) <= length:
            raise ValueError(
                f"text must have more than {length} bytes to train on (the training length), got {len(self.train)}; "
                "give more text or a smaller length"
            )
        starts = torch.from_numpy(randomness(seed, step).integers(0, len(self.train) - length, batch))
        rows = self.train[starts[:, None] + torch.arange(length + 1)].long()
        return rows[:, :-1], rows[:, 1:]


def randomness(seed: int, step: int) -> np.random.Generator:
    """The random numbers of one step of one seed (both below 2**32): nothing has to be remembered to resume."""
    return np.random.default_rng((seed, step))


def standard_library() -> list[Path]:
    """The default text: the modules of this Python's own standard library (about 4 MB)."""
    return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def read_text(paths: Sequence[str | Path] = ()) -> Text:
    """The text of files and folders (searched to the bottom; hidden files are left out), the last tenth of each file
    held out.

    Without paths: `standard_library`. Raises ``ValueError`` for a path that does not exist, a folder without files, a
    file that is empty, not UTF-8 or has NUL bytes, and passes on the ``OSError`` of one that cannot be read.
    """
    files = [file for path in paths for file in _files(Path(path))] if paths else standard_library()
    parts = [_read(file) for file in files]
    cuts = [len(part) - int(len(part) * HELD_OUT) for part in parts]
    names = tuple(str(path) for path in paths) or ("the Python standard library",)
    held_out = [part[cut:] for part, cut in zip(parts, cuts, strict=True) if cut < len(part)]
    return Text(
        train=_joined([part[:cut] for part, cut in zip(parts, cuts, strict=True)]),
        held_out=_joined(held_out),
        starts=tuple(accumulate(len(part) + (i > 0) for i, part in enumerate(held_out[:-1]))),
        sha256=_sha256_of(parts),
        names=names,
        files=len(files),
    )


def _joined(parts: list[bytes]) -> Tensor:
    data = b"\n".join(part for part in parts if part)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _sha256_of(parts: list[bytes]) -> str:
    each = [hashlib.sha256(part).hexdigest() for part in parts]
    return each[0] if len(each) == 1 else hashlib.sha256("\n".join(each).encode()).hexdigest()


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"text path must exist, got {str(path)!r}")
    if not path.is_dir():
        return [path]
    files = [  # a link that leads nowhere too: reading it says so
        file
        for file in sorted(path.rglob("*"))
        if (file.is_file() or not file.exists())
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not files:
        raise ValueError(f"text folder must hold files, got none in {str(path)!r}")
    return files


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
        raise ValueError(f"text file must be UTF-8 text, got {str(file)!r} with {reason}; leave it out")
    return data
