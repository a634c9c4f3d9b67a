"""Numbers, text and pictures about rotary encodings."""

from typing import TYPE_CHECKING

from ...support.later import later

if TYPE_CHECKING:
    from .axes_picture import sized
    from .curves import decay, decay_bound
    from .disagreement import Disagreement, compare, compare_lengths, diff, diff_lines
    from .model_page import model_facts, page, to_dict
    from .numbers import SpecFacts, spec_facts
    from .view import ConfigView, read_view, view_line
    from .view_text import view_dict, view_page

__getattr__, __dir__ = later(
    __name__,
    {
        **dict.fromkeys(("Disagreement", "compare", "compare_lengths", "diff", "diff_lines"), ".disagreement"),
        **dict.fromkeys(("decay", "decay_bound"), ".curves"),
        **dict.fromkeys(("SpecFacts", "spec_facts"), ".numbers"),
        **dict.fromkeys(("model_facts", "page", "to_dict"), ".model_page"),
        **dict.fromkeys(("ConfigView", "read_view", "view_line"), ".view"),
        "sized": ".axes_picture",
        **dict.fromkeys(("view_dict", "view_page"), ".view_text"),
    },
)

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
    "sized",
    "spec_facts",
    "to_dict",
    "view_dict",
    "view_line",
    "view_page",
]
