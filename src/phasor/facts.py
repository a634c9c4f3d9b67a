"""Numbers and text about rotary encodings: wavelengths, regimes, errors, and where two of them part."""

from .tools.inspect import compare, decay, model_facts, page, spec_facts

__all__ = ["compare", "decay", "model_facts", "page", "spec_facts"]
