"""The page itself: one file of HTML, style and readable JavaScript, which loads nothing."""

from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from phasor.support.plain_text import html_text, json_text

from .plain_types import reading_rules

SCRIPTS = ("exact.js", "scalings.js", "reading.js", "measures.js", "figures.js", "explorer.js")


def html_page(entries: Sequence[dict[str, Any]], title: str = "rotary positions") -> str:
    """The page with these models in its list; the first is shown when it opens.

    >>> page = html_page([])
    >>> page.startswith("<!doctype html>"), "http-equiv" in page and "https://" not in page
    (True, True)
    """
    if any(not isinstance(entry, dict) or "rotations" not in entry for entry in entries):
        raise ValueError("entries must be made by model_entry, one for each model")
    return Template(_text("page.html")).substitute(
        title=html_text(title),
        style=_text("style.css"),
        data=_script_json({"models": list(entries), "rules": reading_rules()}),
        script="\n".join(_text(name) for name in SCRIPTS),
    )


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _script_json(data: Any) -> str:
    r"""JSON inside a script of a page: no ``<`` that a browser could take for the end of it."""
    return json_text(data, indent=None).replace("<", "\\u003c")
