"""A tutorial as its reader runs it: ``-m tutorial PAGE PYTHON``, in a folder that holds the configs.

Its Python runs in this process, which has imported torch and phasor; nobody else imported a part of phasor for it. Its
commands are processes of their own, ``PYTHON -m phasor ...``, so they import nothing for it either.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import limited
from blocks import blocks, run_python

Command = Callable[..., tuple[int, str, str]]


def run_page(page: Path, command: Command) -> str:
    """All blocks in order, in one namespace; what went wrong, or nothing."""
    names: dict = {"__name__": "tutorial"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console":
            run_console(block.body, command)
        elif block.language == "python" and (report := run_python(block, names, page.name)):
            return report
    return ""


def run_console(body: str, command: Command) -> None:
    said: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ phasor "):
            code, out, err = command(*line.split()[2:])
            assert code in (0, 1) and not err, f"{line}\n{err}"  # 1: something differs
            said = out.splitlines()
        elif line.strip():
            while said and not fits(line, said[0]):
                said.pop(0)
            assert said, f"the command does not print: {line}"


def fits(shown: str, line: str) -> bool:
    shown, line = shown.strip(), line.strip()
    return line.startswith(shown.removesuffix("...").rstrip()) if shown.endswith("...") else line == shown


def main() -> None:
    page, python = sys.argv[1:]

    def command(*words: str) -> tuple[int, str, str]:
        done = limited.run([python, "-m", "phasor", *words])
        return done.returncode, done.stdout, done.stderr

    # Of phasor there is what `import phasor` brings, and nothing that is called before a page calls it.
    assert not [name for name in sys.modules if re.match(r"phasor\.(?!support\b)", name)]
    sys.exit(run_page(Path(page), command) or None)


if __name__ == "__main__":
    main()
