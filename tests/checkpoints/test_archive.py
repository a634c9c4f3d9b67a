"""Archives beyond 4 GiB, where a zip needs other fields: Python's own zipfile reads what was laid out.

The file is sparse: the large entry is a hole.
"""

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phasor.tools.checkpoints.formats.torch_file import _zip

GIB = 2**30


def laid_out(path: Path, entries: list[tuple[str, Any]]) -> list[tuple[int, int, int, int]]:
    segments, places = _zip(entries)
    with open(path, "wb") as file:
        for segment in segments:
            if isinstance(segment, bytes):
                file.write(segment)
            else:
                file.seek(segment.size, 1)
    return places


@pytest.mark.parametrize(
    "sizes",
    [(100,), (5 * GIB, 100), (100, 5 * GIB), (3 * GIB, 3 * GIB, 100)],
    ids=["small", "a large entry first", "a large entry last", "an entry that begins beyond 4 GiB"],
)
def test_zipfile_reads_every_size_and_place(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    entries = [(f"a/data/{i}", SimpleNamespace(size=size)) for i, size in enumerate(sizes)]
    places = laid_out(tmp_path / "a.pth", [*entries, ("a/version", b"3\n")])
    with zipfile.ZipFile(tmp_path / "a.pth") as archive:
        infos = archive.infolist()
    assert [(info.filename, info.file_size) for info in infos] == [
        *((name, body.size) for name, body in entries), ("a/version", 2),
    ]  # fmt: skip
    assert [info.header_offset for info in infos] == [local for local, *_ in places]
    assert all(first % 64 == 0 for _, first, *_ in places)
