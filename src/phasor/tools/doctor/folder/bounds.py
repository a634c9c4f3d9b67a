"""Sizes that a config states, beside what its weights can hold: refused before anything of such a size is made."""

import re
from collections.abc import Mapping
from pathlib import Path

from ....models.reading.text_row import ANY_NAMES
from ....support.checks import whole
from ..model_folder import ModelConfig

COUNTS = re.compile(r"(^|_)(layers?|experts?|depth)(_|$)")  # of modules, which are built one by one
WIDTHS = re.compile(r"(^|_)(size|dim|heads?|rank|embd|inner|width|channels|d_model|d_ff)$")
NEEDED = (*ANY_NAMES.hidden, "vocab_size")  # read_parts looks at the others
MODULES, WIDEST = 2**10, 2**20  # of any model
FEW_MODULES, NARROW = 2**10, 2**16  # quick to build, whatever the weights are
SLACK = 16  # several things may be packed in one element, and layers may share their weights
OUT = "set it to what the weights were trained with"
Shape = tuple[int, ...]


def check_sizes(config: ModelConfig, shapes: Mapping[str, Shape], file: Path) -> None:
    """Raise ``ValueError`` for a size that is none, or far beyond any in the weights.

    Smaller differences are told later, with the weight that shows them.
    """
    modules = _modules(shapes) if shapes else MODULES
    widest = max((size for shape in shapes.values() for size in shape), default=WIDEST)
    beside = "the weights beside it have" if shapes else "models have"
    for path, level in config.levels:
        for key, value in level.items():
            name = f"{file}: {'.'.join((*path, key))}"
            if key in NEEDED and value is not None:
                _positive(name, value)
            if not isinstance(value, int):
                continue
            if COUNTS.search(key):
                _at_most(name, value, max(FEW_MODULES, SLACK * modules), f"{beside} {modules} of a kind")
            elif WIDTHS.search(key):
                _at_most(name, value, max(NARROW, SLACK * widest), f"{beside} {widest} in one dimension")


def _positive(name: str, value: object) -> None:
    try:
        whole(name, value)
    except ValueError as error:
        raise ValueError(f"{error}; {OUT}") from None


def _modules(shapes: Mapping[str, Shape]) -> int:
    """How many modules of one kind the weights can be of: by the numbers in their names, and by what is stacked."""
    numbered = (int(step) + 1 for name in shapes for step in name.split(".") if step.isdecimal() and len(step) < 10)
    return max([1, *numbered, *(shape[0] for shape in shapes.values() if len(shape) > 2)])


def _at_most(name: str, value: int, most: int, reason: str) -> None:
    if value > most:
        raise ValueError(f"{name} must be at most {most}, for {reason}, got {value!s:.40}; {OUT}")
