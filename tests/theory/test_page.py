"""The page and the tests belong together: every equation, every mistake and every number has a test, and conversely."""

import re

from .page import HERE, PAGE

SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py")))
MATH = re.compile(r"```math\n.*?```", re.DOTALL)
PROSE = MATH.sub("", PAGE)


def numbers_of_tests(kind: str) -> set[int]:
    return {int(n) for n in re.findall(rf"^def test_{kind}_(\d\d)_", SOURCES, re.MULTILINE)}


def test_every_equation_has_a_test_and_every_test_an_equation():
    tags = [int(n) for n in re.findall(r"\\tag\{(\d+)\}", PAGE)]
    assert tags == list(range(1, len(tags) + 1))
    assert numbers_of_tests("equation") == set(tags)


def test_every_displayed_formula_is_numbered():
    for block in MATH.findall(PAGE):
        assert block.count("\\tag{") == 1, block


def test_every_mistake_has_a_test_and_every_test_a_mistake():
    mistakes = [int(n) for n in re.findall(r"^\*\*M(\d+)\.", PAGE, re.MULTILINE)]
    assert mistakes == list(range(1, len(mistakes) + 1))
    assert numbers_of_tests("mistake") == set(mistakes)


def test_every_decimal_number_is_computed():
    """It stands in a test as ``printed("...", value)``, or in a table that a test reads by its first heading."""
    text = re.sub(r"arXiv:\d{4}\.\d{5}|\d\.\d\.\d|[Ss]ections? \d\.\d|Llama 3\.1", "", PROSE)
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("|"):
            first = i
            while lines[first - 1].startswith("|"):
                first -= 1
            heading = lines[first].split("|")[1].strip()
            assert re.search(r"\d\.\d", line) is None or f'table(r"{heading}")' in SOURCES, heading
            continue
        for number in re.findall(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?", line):
            assert f'printed("{number}"' in SOURCES, f"no test computes {number} of: {line}"


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links == anchors


def test_references_to_equations_exist():
    last = max(int(n) for n in re.findall(r"\\tag\{(\d+)\}", PAGE))
    references = [int(n) for n in re.findall(r"(?<![\w)$])\((\d+)\)", PROSE)]
    assert len(references) > 20
    assert max(references) <= last


def test_inline_formulas_survive_markdown():
    """Inside ``$...$`` a backslash before punctuation, a star or a line break would be eaten by Markdown."""
    for formula in re.findall(r"\$([^$]+)\$", re.sub(r"`[^`]*`", "", PROSE)):
        assert not re.search(r"\\[^a-zA-Z]|\*|\n", formula), formula
