"""No call leaves a reference behind, whatever it comes to; `leaks.py` counts a million of them."""

import pytest
from leaks import grown, kinds

from phasor.rotary.kernels.native import kernel


@pytest.mark.skipif(kernel._native is None, reason="the native kernel was not built")
def test_nothing_is_left_behind():
    assert {name: more for name, kind in kinds().items() if (more := grown(kind, 100))} == {}
