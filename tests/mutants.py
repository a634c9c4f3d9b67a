"""Break a room of the code at places drawn at random, and see whether its tests notice.

    python tests/mutants.py rotary/kernels                        20 edits
    python tests/mutants.py phasor_serve --seed 3 --count 50 --limit 300

Each edit is made in a temporary copy of the project. The fast tests nearest to the edited file run there, then all of
the room, until one fails. A line per edit: NOTICED and the test that failed, or ALIVE; then the score, and the edits
alive as a diff. Tests that have not ended after the limit have noticed. `mutants_argued.txt` lists edits that change
nothing that can be seen, each with the reason; they are not scored. Ends with 1 if an edit is alive. The same seed
draws the same edits from the same code.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

import limited
from edits import Edit, drawn
from found_data import found_data
from rooms import PACKAGES, ROOT, Room, nearest, room_named

ARGUED = Path(__file__).with_name("mutants_argued.txt")
WORKERS = max(1, min(4, os.cpu_count() or 1))
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
MADE_AGAIN = {"build", "dist", "demo-output", "site"}  # in the project's own folder; hub/ has a build of its own


class Argued(NamedTuple):
    """An edit that cannot be told from the code as it is: file, first line that changes, that line after it, reason."""

    file: str
    old: str
    new: str
    why: str


def read_argued(path: Path = ARGUED) -> list[Argued]:
    """Blocks of a file, a line after `-`, a line after `+` and a reason, which may take several lines."""
    blocks = [block.splitlines() for block in path.read_text(encoding="utf-8").split("\n\n")]
    blocks = [lines for block in blocks if (lines := [line for line in block if line and not line.startswith("#")])]
    for block in blocks:
        assert len(block) > 3 and block[1].startswith("- ") and block[2].startswith("+ "), block
    return [Argued(file, old[2:], new[2:], " ".join(why)) for file, old, new, *why in blocks]


def copy_project(root: Path, folder: Path) -> Path:
    """All that tests read, but for environments and what is made again."""

    def left_out(place: str, names: list[str]) -> Iterable[str]:
        made_again = MADE_AGAIN.intersection(names) if Path(place) == root else set()
        environments = {name for name in names if Path(place, name, "pyvenv.cfg").exists()}
        return {*NOT_COPIED(place, names), *made_again, *environments}

    shutil.copytree(root, folder / "project", ignore=left_out)
    (folder / "tmp").mkdir()
    return folder


class Verdict(NamedTuple):
    noticed: bool
    why: str
    any_tests: bool = True


def verdict_of_tests(folder: Path, tests: Sequence[str], limit: float) -> Verdict:
    """Of the tests in a copy: whether one of them fails, or does not end."""
    project = folder / "project"
    data = found_data()
    environment = {
        **os.environ,
        **({"PHASOR_TEST_DATA": str(data)} if data else {}),
        "PYTHONPATH": os.pathsep.join(str((project / package).parent) for package in PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder / "tmp"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    try:
        done = limited.run([*command, *tests], limit=limit, cwd=project, env=environment)
    except limited.TooLong:
        return Verdict(True, f"no end after {limit:.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (lines or (done.stdout + done.stderr).splitlines() or [f"ended with {done.returncode}"])[-1]
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        return Verdict(False, f"{' '.join(tests)}: {last}", any_tests=False)
    return Verdict(done.returncode != 0, last.removeprefix("FAILED ").split(" - ")[0])


def verdict_of_edit(edit: Edit, folder: Path, room: Room, limit: float) -> Verdict:
    """Of the tests nearest to the edit, which may be none, and of the whole room where they do not notice."""
    path = folder / "project" / edit.file
    near = nearest(room, edit.file, folder / "project")
    source = path.read_bytes()
    try:
        write_anew(path, edit.applied(source))
        verdict = verdict_of_tests(folder, near, limit)
        return verdict if verdict.noticed else verdict_of_tests(folder, room.tests, limit)
    finally:
        write_anew(path, source)


def write_anew(path: Path, source: bytes) -> None:
    """Write it without what Python compiled before, which it tells by a file's size and second only."""
    path.write_bytes(source)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def line_of(edit: Edit, source: bytes, verdict: str, why: str) -> str:
    place = f"{edit.file.removeprefix('src/phasor/')}:{edit.line(source)}"
    old, new = edit.lines(source)
    first = next(i for i, (a, b) in enumerate(zip_longest(old, new)) if a != b)
    same = max(0, first - 25)
    old, new = (("…" if same else "") + text[same:][:60] for text in (old, new))
    return f"{verdict:7} {place:36} {edit.kind}: {old} -> {new}  [{why}]"


def try_edits(root: Path, room: Room, edits: Sequence[Edit], limit: float | None, workers: int) -> list[bool]:
    """Print a line for each edit; whether the tests notice it. The limit is five times what they take unbroken."""
    sources = {edit.file: (root / edit.file).read_bytes() for edit in edits}
    with tempfile.TemporaryDirectory() as scratch:
        free: SimpleQueue[Path] = SimpleQueue()
        for worker in range(workers):
            free.put(copy_project(root, Path(scratch, str(worker))))
        first = free.get()
        start = time.monotonic()
        unbroken = verdict_of_tests(first, room.tests, limited.LIMIT)
        free.put(first)
        if not unbroken.any_tests:
            raise SystemExit(unbroken.why)
        if unbroken.noticed:
            raise SystemExit(f"the tests of {room.name} fail before anything is broken: {unbroken.why}")
        longest = 60 + 5 * (time.monotonic() - start) if limit is None else limit

        def notice(edit: Edit) -> bool:
            folder = free.get()
            try:
                verdict = verdict_of_edit(edit, folder, room, longest)
            finally:
                free.put(folder)
            word = "NOTICED" if verdict.noticed else "ALIVE"
            print(line_of(edit, sources[edit.file], word, verdict.why), flush=True)
            return verdict.noticed

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(notice, edits))


def score(root: Path, room: Room, edits: Sequence[Edit], argued: Sequence[Argued], **options: Any) -> int:
    """Try the edits that nobody argued away, print what came of them; how many are alive."""
    sources = {edit.file: (root / edit.file).read_bytes() for edit in edits}
    reasons = {argument[:3]: argument.why for argument in argued}
    reason = {edit: reasons.get((edit.file, *edit.lines(sources[edit.file]))) for edit in edits}
    scored = [edit for edit in edits if reason[edit] is None]
    for edit in edits:
        if reason[edit] is not None:
            print(line_of(edit, sources[edit.file], "ARGUED", reason[edit]))
    noticed = try_edits(root, room, scored, **options)
    print(f"{room.name}: {sum(noticed)} of {len(scored)} noticed, {len(edits) - len(scored)} argued")
    alive = [edit for edit, seen in zip(scored, noticed, strict=True) if not seen]
    for edit in alive:
        print(edit.diff(sources[edit.file]))
    return len(alive)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants ROOM=...", usage='%(prog)s ARGS="[--seed 0] [--count 20] ..."')
    parser.add_argument("room", nargs="?", default="", help="a folder or file of src/phasor, such as rotary/kernels")
    parser.add_argument("--count", type=int, default=20, help="how many edits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, help="seconds for the tests; without it, five times what they take unbroken"
    )
    parser.add_argument("--workers", type=int, default=WORKERS, help="copies of the project that are tested at once")
    options = parser.parse_args(arguments)
    try:
        room = room_named(options.room)
    except ValueError as error:
        parser.error(str(error))
    # An edit may ask for all memory there is.
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    chosen, possible = drawn(ROOT, room.source, options.count, options.seed)
    print(f"{room.name}: {len(chosen)} of {possible} possible edits, seed {options.seed}", flush=True)
    alive = score(ROOT, room, chosen, read_argued(), limit=options.limit, workers=options.workers)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
