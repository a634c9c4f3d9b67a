"""Every model that the eye is judged by, by name."""

from eye.complex_numbers import COMPLEX
from eye.halves import HALVES
from eye.interleaved import INTERLEAVED
from eye.layers import LAYERS
from eye.layouts import LAYOUTS
from eye.matrices import MATRICES
from eye.pictures import PICTURES
from eye.traps import TRAPS
from eye.truth import Case
from eye.wild import WILD
from eye.without import WITHOUT

CASES = [*HALVES, *INTERLEAVED, *COMPLEX, *MATRICES, *LAYOUTS, *PICTURES, *LAYERS, *WITHOUT, *TRAPS, *WILD]
ZOO: dict[str, Case] = {case.name: case for case in CASES}
