"""A page as its reader runs it: ``-m reader PAGE PYTHON``, in a folder that holds what it takes for granted.

Its Python runs in this process, which has imported torch and phasor; nobody else imported a part of phasor for it. Its
commands are processes of their own, ``PYTHON -m phasor ...``, so they import nothing for it either.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

import limited
from blocks import blocks, commands, run_python


def main(page: str, python: str, *words: str) -> str:
    """All blocks in order, in one namespace; what went wrong, or nothing."""
    names: dict = {"__name__": "page"}
    printed = ""
    for block in blocks(Path(page).read_text(encoding="utf-8")):
        wrong = ""
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                wrong = run_python(block, names, page)
            printed = output.getvalue().strip()
        elif block.language == "text" and printed != block.body.strip():
            wrong = f"the Python above prints {printed!r}, and the page shows {block.body.strip()!r}"
        elif block.language in ("console", "bash") and "--no-commands" not in words:
            wrong = next(filter(None, (run_command(python, *command) for command in commands(block.body))), "")
        if wrong:
            return wrong
    return ""


def run_command(python: str, line: str, shown: list[str]) -> str:
    """What is wrong with it or with the lines that it prints: these are among its own, in their order."""
    done = limited.run(["bash", "-c", f'phasor() {{ {python} -m phasor "$@"; }}; {line}'])
    if done.returncode not in (0, 1) or done.stderr:  # 1: something differs, or is wrong
        return f"{line}\n{done.stdout}{done.stderr}"
    said = iter(done.stdout.splitlines())
    for one in filter(str.strip, shown):
        start = one.strip().removesuffix("...").rstrip()
        if not any(
            line.strip() == one.strip() or (one.endswith("...") and line.strip().startswith(start)) for line in said
        ):
            return f"the command does not print: {one}"
    return ""


if __name__ == "__main__":
    # Of phasor there is what `import phasor` brings, and nothing that is called before a page calls it.
    assert not [name for name in sys.modules if re.match(r"phasor\.(?!support\b)", name)]
    sys.exit(main(*sys.argv[1:]) or None)
