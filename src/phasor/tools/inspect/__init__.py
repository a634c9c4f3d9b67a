"""Numbers, text and pictures about rotary encodings."""

from .compare import Disagreement, compare, compare_lengths, diff, diff_lines
from .curves import decay, decay_bound
from .numbers import SpecFacts, spec_facts
from .page import model_facts, page, to_dict
from .view import ConfigView, read_view, view_dict, view_line, view_page

__all__ = [
    "Disagreement",
    "SpecFacts",
    "ConfigView",
    "compare",
    "compare_lengths",
    "decay",
    "decay_bound",
    "diff",
    "diff_lines",
    "model_facts",
    "page",
    "read_view",
    "spec_facts",
    "to_dict",
    "view_dict",
    "view_line",
    "view_page",
]
