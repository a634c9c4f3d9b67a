"""The table of cases."""

from collections.abc import Sequence

from .case import Case
from .engines import ENGINES
from .large import LARGE
from .llama import LLAMA
from .norm import NORM
from .onnx import ONNX
from .small import SMALL
from .transformers import TRANSFORMERS

CASES: tuple[Case, ...] = (*LARGE, *SMALL, *TRANSFORMERS, *NORM, *ONNX, *ENGINES, *LLAMA)


def named(names: Sequence[str]) -> tuple[Case, ...]:
    """The cases of these names, in the order of the table; all for none. ``ValueError`` for a name of no case.

    >>> [case.name for case in named(["token", "prefill"])]
    ['prefill', 'token']
    """
    known = [case.name for case in CASES]
    for name in names:
        if name not in known:
            raise ValueError(f"--cases must be names out of {', '.join(known)}, with commas between, got {name!r}")
    return tuple(case for case in CASES if not names or case.name in names)
