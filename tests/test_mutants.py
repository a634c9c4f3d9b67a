"""`make mutants`: what it edits, on lines of its own, and what it says of a small package with a test."""

from pathlib import Path
from textwrap import dedent

import pytest

from edits import Edit, drawn, edits
from mutants import line_of, read_argued, score, try_edits
from rooms import ROOT, Room

SMALL = '''
def clipped(n):
    """At most 9.

    >>> clipped(10)
    9
    """
    return n if n < 9 else 9


def halves(n):
    while n > 1:
        n = n // 2
    return n
'''

TEST = """
from phasor.small import clipped, halves

def test_clipped():
    assert clipped(3) == 3

def test_halves():
    assert halves(8) == 1
"""


def lines(source: str) -> set[str]:
    """The first line that changes, as it is after each edit that leaves Python."""
    text = dedent(source).strip().encode()
    return {edit.lines(text)[1] for edit in edits(text, "a.py") if edit.changes(text)}


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a < b == c", {"a <= b == c", "a >= b == c", "a < b != c"}),
        ("a is None", {"a is not None"}),
        ("(a) not in (b)", {"(a) in (b)"}),
        ("a and b and not c", {"a or b and not c", "a and b or not c", "a and b and   c"}),
        ("a + b", {"a - b"}),
        ("a - b", {"a + b"}),
        ("(a) * (b)", {"(a) / (b)"}),
        ("a // b", {"a % b", "(-(-(a) // (b)))"}),
        ("a %= b", {"a //= b"}),
        ("-a", {"a"}),
        ("x = 0", {"x = 1"}),
        ("x = 1", {"x = 0", "x = 2"}),
        ("x = 7, -1", {"x = 8, -1", "x = 7, -2"}),
        ("x = 1e-5", {"x = 2e-05"}),
        ("x = True", {"x = False"}),
        ("x[a:b]", {"x[:b]", "x[a:]"}),
        ("f(a, b, *c)", {"pass", "f(b, a, *c)"}),
        ("x = f(a, b=c)", {"x = f(a)"}),
        ("x = {'a': b, 'c': d}", {"x = {'c': d}", "x = {'a': b}"}),
        ("x = sum(y)", {"x = max(y)"}),
        ("x = any(y).amin()", {"x = all(y).amin()", "x = any(y).amax()"}),
        ("x = torch.float32", {"x = torch.float64"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("if a(b): x", {"if (not (a(b))): x"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if (not (c))]"}),
        ("ä = 'ö' == b", {"ä = 'ö' != b"}),  # places are counted in bytes
        ("x = (a  # < here\n     < b)", {"<= b)", ">= b)"}),
        # Left out.
        ("'''Not 1 < 2.'''", set()),
        ("raise ValueError(a + 1, f'{b - 1}')", set()),
        ("assert a < 1", set()),
        ("x = f'{a + 1}' + a", set()),
        ("def f(a: int | None) -> (1, 2): return a", set()),
        ("class A:\n    def __str__(self): return 1", set()),
        ("class A(a + b):\n    c: x[1]", set()),
        ("if TYPE_CHECKING: import a", set()),
        ("x = f(stacklevel=2, help='a', why='two words')", set()),
        ("isinstance(a, int | A) and b", {"isinstance(a, int | A) or b"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
    ],
)
def test_edits_of_a_line(source, expected):
    assert lines(source) == expected


def test_a_cache_that_forgets_one_argument():
    source = b"from functools import lru_cache\n@lru_cache(maxsize=8)\ndef power(a, b): return a ** b\n"
    forgetful = [edit for edit in edits(source, "a.py") if edit.kind == "cache"]
    answers = []
    for edit in forgetful:
        names: dict = {}
        exec(edit.applied(source), names)
        names["power"](2, 3)
        answers.append((names["power"](3, 3), names["power"](2, b=2)))
    assert answers == [(8, 4), (27, 8)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "src/phasor/__init__.py": "",
        "src/phasor/small.py": SMALL,
        "tests/test_small.py": TEST,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--doctest-modules"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


WHOLE = Room("small", "src/phasor/small.py", ("src/phasor/small.py", "tests"))


def edit_to(old: str, new: str, kind: str = "by hand") -> Edit:
    (start,) = [SMALL.index(old)] if SMALL.count(old) == 1 else []
    return Edit("src/phasor/small.py", kind, start, start + len(old), new)


def test_drawn_edits_are_those_of_the_seed(project):
    first, possible = drawn(project, "src", 2, seed=0)
    assert len(first) == 2 and drawn(project, "src", 2, seed=0)[0] == first
    assert any(drawn(project, "src", 2, seed)[0] != first for seed in range(1, 5))
    source = (project / "src/phasor/small.py").read_bytes()
    every, count = drawn(project, "src", 100, 0)
    assert count == possible == len(edits(source, "src/phasor/small.py"))
    assert sorted({edit.line(source) for edit in edits(source, "")}) == [edit.line(source) for edit in every]


def test_what_is_noticed_and_what_is_alive(project, capsys):
    """By a test, by an example and by its end; a test of the edge is missing."""
    told = [edit_to("n > 1", "n > 2"), edit_to("n < 9 else 9", "n < 9 else 8"), edit_to("n < 9", "n <= 9")]
    seen = try_edits(project, WHOLE, [*told, edit_to("def halves(", "def thirds(")], limit=None, workers=2)
    assert seen == [True, True, False, True]
    printed = sorted(capsys.readouterr().out.splitlines())
    assert [line.split()[0] for line in printed] == ["ALIVE", "NOTICED", "NOTICED", "NOTICED"]
    assert printed[0].startswith("ALIVE   small.py:8 ") and "n < 9 else 9 -> return n if n <= 9 else 9" in printed[0]
    assert (project / "src/phasor/small.py").read_text() == SMALL


def test_what_does_not_end_is_noticed(project, capsys):
    assert try_edits(project, WHOLE, [edit_to("n // 2", "n // 1")], limit=3, workers=1) == [True]
    assert "[no end after 3 s]" in capsys.readouterr().out


def test_the_nearest_tests_run_first_and_all_of_the_room_before_an_edit_is_called_alive(project, capsys):
    """`test_far.py`, which names nothing of the file, writes down that it ran; `test_small.py` is the nearest."""
    ran = project / "ran"
    far = f"import phasor\ndef test_far():\n    open({str(ran)!r}, 'a').write('far ')\n"
    far += "    from importlib import import_module\n    assert import_module('phasor.small').halves(3) == 1\n"
    (project / "tests/test_far.py").write_text(far)
    near, beyond = edit_to("n > 1", "n > 2"), edit_to("n // 2", "n // 2 if n != 3 else 0")
    chosen = [near, beyond, edit_to("n < 9", "n <= 9")]
    assert try_edits(project, WHOLE, chosen, limit=60, workers=1) == [True, True, False]
    assert ["test_halves" in line for line in capsys.readouterr().out.splitlines()] == [True, False, False]
    assert ran.read_text() == "far far far "  # before anything was broken, and for the last two edits


def test_a_file_without_examples_and_near_tests_meets_the_whole_room(project):
    (project / "tests/test_small.py").rename(project / "tests/test_other.py")
    text = "from importlib import import_module as module\n\n"
    text += "def test_power():\n    assert module('phasor.plain').square(3) == 9\n"
    (project / "tests/test_other.py").write_text(text)
    (project / "src/phasor/plain.py").write_text("def square(n):\n    return n * n\n")
    room = Room("plain", "src/phasor/plain.py", ("src/phasor/plain.py", "tests"))
    start = len("def square(n):\n    return n ")
    edit = Edit("src/phasor/plain.py", "by hand", start, start + 1, "+")
    assert try_edits(project, room, [edit], limit=60, workers=1) == [True]
    (project / "tests/test_other.py").unlink()
    with pytest.raises(SystemExit, match="no tests ran"):
        try_edits(project, room, [edit], limit=60, workers=1)


def test_long_lines_are_shown_where_they_change():
    source = SMALL.replace("if n < 9", f"if n + {'0' * 100}.5 < 9 + {'0' * 100}.5").encode()
    edit = next(edit for edit in edits(source, "src/phasor/small.py") if edit.new == "<=")
    line = line_of(edit, source, "ALIVE", "")
    assert "  comparison: …000000000000000000000.5 < 9 + 0000" in line and len(line) < 220


def test_score_and_diff(project, capsys):
    (project / "argued.txt").write_text(
        "# what this is\n\nsrc/phasor/small.py\n- while n > 1:\n+ while n >= 2:\nn is whole,\nas all say\n"
    )
    argued = read_argued(project / "argued.txt")
    chosen = [edit_to("n > 1", "n >= 2"), edit_to("n < 9", "n <= 9"), edit_to("n // 2", "n // 3")]
    assert score(project, WHOLE, chosen, argued, limit=None, workers=1) == 1
    out = capsys.readouterr().out
    assert out.startswith("ARGUED ") and "[n is whole, as all say]" in out
    assert "\nsmall: 1 of 2 noticed, 1 argued\n" in out
    assert "\n-    return n if n < 9 else 9\n+    return n if n <= 9 else 9\n" in out
    assert out.count("\n+++ b/src/phasor/small.py") == 1


def test_tests_that_fail_anyway_say_nothing(project):
    (project / "tests/test_small.py").write_text("def test_nothing(): assert False")
    with pytest.raises(SystemExit, match=r"fail before anything is broken: .*test_nothing"):
        try_edits(project, WHOLE, [edit_to("n > 1", "n > 2")], limit=None, workers=1)


def test_what_is_argued_can_still_be_drawn():
    for argument in read_argued():
        source = (ROOT / argument.file).read_bytes()
        assert (argument.old, argument.new) in [edit.lines(source) for edit in edits(source, argument.file)], argument
