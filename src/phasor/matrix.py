"""The rotation as a dense matrix, as the exponential of its generator, and as complex numbers: to read and to test."""

from .rotary.matrix import as_complex, complex_form, from_complex, generator, rotation_matrix

__all__ = ["as_complex", "complex_form", "from_complex", "generator", "rotation_matrix"]
