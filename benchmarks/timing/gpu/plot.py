"""The picture of a run: of every case the share of the rate of a copy that each library reaches."""

import io
from pathlib import Path
from typing import Any

from phasor.support.whole_files import write_whole

from ..result import Record

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")  # Okabe and Ito's


def shares(record: Record) -> dict[str, dict[str, float]]:
    """Case, dtype and layout -> library -> the time of the copy as a share of its own time."""
    shares: dict[str, dict[str, float]] = {}
    for row in record.rows:
        bars = shares.setdefault(f"{row.case}, {row.dtype}, {row.layout}", {})
        if row.unit == "copy_":
            bars[row.measured] = 1 / row.ratio
        elif row.unit == "phasor" and "phasor" in bars:
            bars[row.measured] = bars["phasor"] / row.ratio
    return shares


def plot(record: Record, path: Path) -> None:
    """Write the picture as ``path`` (PNG, PDF or SVG by its ending). Needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError(f"--plot needs {error.name}; install it with: pip install 'phasor-rope[plots]'") from None
    bars = shares(record)
    names = list(dict.fromkeys(name for case in bars.values() for name in case))
    figure: Any = Figure(figsize=(9, 1.2 + 0.16 * len(bars) * (len(names) + 1)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / max(len(names), 1)
    for n, name in enumerate(names):
        rows = [(i, case[name]) for i, case in enumerate(bars.values()) if name in case]
        places = [i + (n - (len(names) - 1) / 2) * height for i, _ in rows]
        axes.barh(places, [100 * share for _, share in rows], height, label=name, color=COLORS[n % len(COLORS)])
    axes.axvline(100, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xlabel("% of the rate of a copy of the same bytes (dashed: the copy)")
    device = record.device or {}
    axes.set_title(f"{device.get('name', record.cpu)}, phasor {record.phasor}, torch {record.torch}", fontsize=10)
    axes.legend(fontsize=8, loc="lower right")
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix.removeprefix(".") or "png", dpi=120)
    write_whole(path, image.getvalue())
