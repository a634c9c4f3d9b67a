"""Rows for a terminal."""

from .result import Row

HEAD = f"{'case':<20}{'dtype':<10}{'layout':<13}{'memory':<10}{'measured':>10}  {'unit':<30}{'ratio':>7}  spread"


def line(row: Row, goals: bool, quick: bool) -> str:
    """One row; with ``goals`` what its ratio should be, and, unless it is of tiny sizes, whether it is."""
    spread = f"{row.spread[0]:.2f}..{row.spread[1]:.2f}" if row.spread else ""
    unit = f"{row.unit} {duration(row.unit_us)}"
    text = (
        f"{row.case:<20}{row.dtype:<10}{row.layout:<13}{row.memory:<10}{duration(row.us):>10}  {unit:<30}"
        f"{row.ratio:>7.2f}  {spread:<13}"
    )
    if goals and row.goal:
        text += f"  {row.goal}" + ("" if quick else ": met" if row.met else ": not met")
    return text.rstrip()


def duration(us: float) -> str:
    """Three digits and a unit.

    >>> duration(7.94), duration(25_400), duration(2_100_000), duration(-0.5)
    ('7.94 us', '25.4 ms', '2.10 s', '-0.50 us')
    """
    size, unit = (1e6, "s") if abs(us) >= 1e6 else (1e3, "ms") if abs(us) >= 1e3 else (1.0, "us")
    value = us / size
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {unit}"
