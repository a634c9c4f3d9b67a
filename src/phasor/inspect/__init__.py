"""Numbers, text and pictures about rotary encodings."""

from .compare import Disagreement, compare, compare_lengths
from .numbers import SpecFacts, decay, decay_bound, spec_facts
from .page import model_facts, page, to_dict

__all__ = [
    "Disagreement",
    "SpecFacts",
    "compare",
    "compare_lengths",
    "decay",
    "decay_bound",
    "model_facts",
    "page",
    "spec_facts",
    "to_dict",
]
