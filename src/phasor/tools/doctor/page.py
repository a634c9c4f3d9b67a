"""The doctor's page in a terminal: the verdict first, then faults, what was not shown, and all other checks."""

from collections.abc import Sequence

from ...support.findings import merged
from .report import Check, Diagnosis, other_lines


def page(diagnosis: Diagnosis) -> str:
    """The whole page as text.

    >>> from phasor.support.findings import Difference
    >>> same = Difference(size=0.0)
    >>> rows = (Check(where="rotary_emb", what="tables", against="spec", verdict="right", difference=same),)
    >>> print(page(Diagnosis("LlamaModel", rows)))
    verdict      LlamaModel: right: no fault in 1 check
    <BLANKLINE>
    checks       right: rotary_emb: tables (values differ by 0)
    """
    blocks = {
        "verdict": [diagnosis.summary()],
        "faults": _with_way_out(diagnosis.wrong),
        "not shown": _with_way_out(diagnosis.missing),
        "checks": other_lines(diagnosis),
    }
    return "\n\n".join(_block(label, lines) for label, lines in blocks.items() if lines)


def _with_way_out(rows: Sequence[Check]) -> list[str]:
    lines = []
    for row in merged(rows):
        lines.append(str(row).removeprefix(f"{row.verdict}: "))
        lines += [f"  effect: {row.effect}"] if row.effect else []
        lines += [f"  what to do: {row.way_out}"] if row.way_out else []
    return lines


def _block(label: str, lines: list[str]) -> str:
    return "\n".join(f"{label if i == 0 else '':<13}{line}" for i, line in enumerate(lines))
