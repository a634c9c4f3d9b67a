"""The API reference leaves out no public name, and is written as its authors wrote."""

import importlib.util
from pathlib import Path

import pytest

from test_docstrings import public

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def api():
    spec = importlib.util.spec_from_file_location("api_pages", ROOT / "docs" / "api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_an_entry(api):
    text = "\n".join(api.pages().values())
    names = {name: name.rpartition(".")[2] for name, thing in public() if thing.__module__ != "phasor.support.checks"}
    assert [name for name, last in names.items() if f"\n## {last}\n" not in text] == []


def sample(a: int, /, b, *rest: str, c: "float | None" = None, **more) -> str:
    """Not called."""


class Sample:
    def __init__(self, size=3):
        """Not called."""


def test_signatures_are_written_as_their_authors_wrote_them(api):
    said = "sample(a: int, /, b, *rest: str, c: 'float | None' = None, **more) -> str"
    assert api._signature("sample", sample) == f"```python\n{said}\n```"
    assert api._signature("Sample", Sample) == "```python\nSample(size=3)\n```"


def test_docstrings_become_markdown(api):
    doc = """What ``it`` does.

    Example::

        import phasor

    >>> 1 + 1
    2
    """
    examples = "Example:\n\n```python\nimport phasor\n```\n\n```python\n>>> 1 + 1\n2\n```"
    assert api._prose(doc) == f"What `it` does.\n\n{examples}"
