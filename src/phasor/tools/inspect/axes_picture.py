"""A picture of the axes of a model of pictures: where each pair's wavelength lies beside the size it was made for."""

import math
from collections.abc import Iterator, Mapping, Sequence

from .numbers import SpecFacts
from .rows import row

WHOLE, PART = "●○"  # a pair that turns once or more in the declared size, and one that does not


def axes_picture(
    fact: SpecFacts, grid: Mapping[str, float | None], wanted: Mapping[str, float], width: int = 64
) -> Iterator[str]:
    """A line for each axis: its pairs on one log scale of wavelengths, and how many of them turn once in its size.

    ``grid``: how far each axis reaches in the declared size (`ModelRotary.grid`); ``wanted``: in the size asked about,
    where pairs that make no whole turn in the declared one come to angles that no training has shown.
    """
    if wanted and fact.spec.coordinates == "real":
        raise ValueError(
            f"grid must be asked of positions that count tokens, got {wanted} for real coordinates, which a model "
            "stretches over its picture; observe it with a picture of that size (phasor.observe)"
        )
    owner = fact.spec.axes.axis_of_pair(fact.spec.pairs)
    low, *_, high = sorted(math.log(wave) for wave in fact.wavelengths if math.isfinite(wave)) * 2
    declared = " x ".join("?" if size is None else f"{size:g}" for size in grid.values())
    yield row("  turns", f"once in {math.exp(low):.4g} … {math.exp(high):.4g}, log scale; declared: {declared}")
    for axis, (name, size) in enumerate(grid.items()):
        waves = [wave for wave, a in zip(fact.wavelengths, owner, strict=True) if a == axis and math.isfinite(wave)]
        signs = [" "] * width
        for wave in waves:
            at = round((math.log(wave) - low) / ((high - low) or 1) * (width - 1))
            signs[at] = WHOLE if size is not None and wave <= size else PART
        yield row(f"    {name}", f"{''.join(signs)}  {turned(waves, size, wanted.get(name))}")


def turned(waves: Sequence[float], size: float | None, wanted: float | None) -> str:
    """How many of an axis' pairs turn once or more in its size, and how many leave what was trained in another.

    >>> turned([10.0, 100.0, 1000.0], 64, 128)
    '1 of 3 pairs in 64; 2 leave it in 128'
    """
    if size is None:
        return f"{len(waves)} pairs"
    whole = sum(wave <= size for wave in waves)
    beyond = f"; {len(waves) - whole} leave it in {wanted:g}" if wanted is not None and wanted > size else ""
    return f"{whole} of {len(waves)} pairs in {size:g}{beyond}"


def sized(text: str | None) -> dict[str, float]:
    """Tokens along each axis of a size that was asked about: rows and columns, or frames before them.

    >>> sized("128x96")
    {'column': 96, 'row': 128}
    """
    numbers = [] if text is None else text.lower().split("x")
    if text is not None and (len(numbers) not in (2, 3) or not all(n.isdecimal() and int(n) for n in numbers)):
        raise ValueError(f"grid must be ROWSxCOLUMNS or FRAMESxROWSxCOLUMNS of tokens, as 128x128, got {text!r}")
    return dict(zip(("column", "row", "frame"), map(int, reversed(numbers)), strict=False))
