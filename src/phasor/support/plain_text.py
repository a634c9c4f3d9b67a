r"""The one way to print text: without characters that a terminal, a browser or a reader of JSON would take as commands.

Words come from configs, file names, tensor names and labels, and anybody may have written those.
"""

import html
import json
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, TextIO

LONGEST = 2000  # characters of one line
JOINERS = "\u200c\u200d"  # join letters of Persian and of pictures, and move nothing
KEPT = "\n" + JOINERS


class _Table(dict[int, str]):
    """For ``str.translate``: each character as it is, or written out where something would obey it. Filled as asked."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self.written = written

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # Control characters, marks that turn the direction of writing, halves of surrogate pairs.
        obeyed = unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in KEPT
        self[code] = self.written(character) if obeyed else character
        return self[code]


def _backslashed(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 2**8 else f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


PRINTABLE = _Table(_backslashed)
ESCAPED = _Table(lambda character: "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1])


def printable(text: str) -> str:
    r"""The same, with control and format characters (but ends of lines, and joiners of letters) written out.

    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    return text.translate(PRINTABLE)


def cut(line: str) -> str:
    """At most what somebody reads of one line.

    >>> cut("short"), len(cut("x" * 10**6))
    ('short', 2025)
    """
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} … ({len(line):,} characters)"


def one_line(text: str) -> str:
    r"""A message: printable, and on one line.

    >>> one_line("not found:\n  'a\tb'")
    "not found: 'a b'"
    """
    return printable(cut(" ".join(text.split())))


def escaped_json(text: str) -> str:
    r"""JSON that somebody else wrote, with control and format characters inside its words escaped: the same data.

    >>> print(escaped_json('["\u202e"]'))
    ["\u202e"]
    """
    return text.translate(ESCAPED)


def json_text(data: Any, *, indent: int | None = 2) -> str:
    r"""JSON for people and programs: letters of all languages as they are, control and format characters escaped.

    >>> print(json_text({"name": "漢 \u202e"}, indent=None))
    {"name": "漢 \u202e"}
    """
    return escaped_json(json.dumps(data, indent=indent, ensure_ascii=False))


def html_text(text: str) -> str:
    """Words inside a page or an attribute of HTML.

    >>> html_text("<b>\\u202e")
    '&lt;b&gt;\\\\u202e'
    """
    return html.escape(printable(text))


def say(text: object, *, error: bool = False) -> None:
    """Print lines at once, printable and cut; with ``error`` on stderr. Only `say_json` prints beside it."""
    _print("\n".join(map(cut, printable(str(text)).split("\n"))), sys.stderr if error else sys.stdout)


def say_json(data: Any, *, indent: int | None = 2) -> None:
    """Print all of it, over several lines or, without ``indent``, on one."""
    _print(json_text(data, indent=indent), sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    print(text, file=stream, flush=True)
