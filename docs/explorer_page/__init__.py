"""One HTML file to look at a rotation and to change it: models that phasor read, and plain JavaScript."""

from .entries import model_entry, view_entries
from .html import html_page
from .plain_types import plain_types

__all__ = ["html_page", "model_entry", "plain_types", "view_entries"]
