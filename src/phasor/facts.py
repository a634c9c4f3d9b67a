"""Numbers and text about rotary encodings: wavelengths, regimes, errors, and where two of them part."""

from .tools.inspect.curves import decay
from .tools.inspect.disagreement import compare
from .tools.inspect.model_page import model_facts, page
from .tools.inspect.numbers import spec_facts

__all__ = ["compare", "decay", "model_facts", "page", "spec_facts"]
