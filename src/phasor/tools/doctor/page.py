"""The doctor's page in a terminal: the verdict first, then modules, their differences from the config, all checks."""

from collections.abc import Sequence

from ...support.findings import merged
from .differences import SHOWN, Curve
from .report import Check, Diagnosis, other_lines


def page(diagnosis: Diagnosis, curves: Sequence[Curve]) -> str:
    """The whole page as text.

    >>> from phasor.support.findings import Difference
    >>> same = Difference(size=0.0)
    >>> rows = (Check(where="rotary_emb", what="tables", against="spec", verdict="right", difference=same),)
    >>> curve = Curve("rotary_emb", "all 8 channels, halves, base 10000", (0, 1, 10), (0.0, 0.0, 1e-7))
    >>> print(page(Diagnosis("LlamaModel", rows), (curve,)))
    verdict      LlamaModel: right: no fault in 1 check
    <BLANKLINE>
    modules      rotary_emb: all 8 channels, halves, base 10000
    <BLANKLINE>
    differences  largest difference of cos and sin from those of the config
                 position         0      1     10
                 rotary_emb       0      0  1e-07
    <BLANKLINE>
    checks       right: rotary_emb: tables (values differ by 0)
    """
    blocks = {
        "verdict": [diagnosis.summary()],
        "faults": _with_way_out(diagnosis.wrong),
        "not shown": _with_way_out(diagnosis.missing),
        "modules": [f"{curve.module}: {curve.spec}" for curve in curves],
        "differences": difference_table(curves),
        "checks": other_lines(diagnosis),
    }
    return "\n\n".join(_block(label, lines) for label, lines in blocks.items() if lines)


def difference_table(curves: Sequence[Curve]) -> list[str]:
    """The table of differences at a few positions."""
    if not curves:
        return []
    places = [p for p in SHOWN if any(p in curve.positions for curve in curves)]
    width = max(len("position"), *(len(curve.module) for curve in curves))
    cells = [[f"{p:,}" for p in places]]
    cells += [[_number(curve.at(p)) if p in curve.positions else "" for p in places] for curve in curves]
    names = ["position", *(curve.module for curve in curves)]
    lines = [
        f"{name:<{width}}  " + " ".join(f"{cell:>6}" for cell in row) for name, row in zip(names, cells, strict=True)
    ]
    return ["largest difference of cos and sin from those of the config", *lines]


def _number(apart: float) -> str:
    return "0" if apart == 0 else "none" if apart == float("inf") else f"{apart:.0e}"


def _with_way_out(rows: Sequence[Check]) -> list[str]:
    lines = []
    for row in merged(rows):
        lines.append(str(row).removeprefix(f"{row.verdict}: "))
        lines += [f"  effect: {row.effect}"] if row.effect else []
        lines += [f"  what to do: {row.way_out}"] if row.way_out else []
    return lines


def _block(label: str, lines: list[str]) -> str:
    return "\n".join(f"{label if i == 0 else '':<13}{line}" for i, line in enumerate(lines))
