"""What the plates are drawn on: one light and one dark paper, with the same meaning of every colour."""

import io
from dataclasses import dataclass
from typing import Any

COLOURS = 128  # of a palette; flat colours need no more, and the file is a third
WIDTH, DPI, SIZE = 5.6, 130, 11  # inches, dots for each, points of text: readable on a telephone, too


@dataclass(frozen=True)
class Paper:
    """Colours: ``lines`` are told apart with any colour vision (Okabe-Ito); ``below``, ``above``: the sides of zero."""

    ground: str
    ink: str
    faint: str
    lines: tuple[str, ...]
    below: str
    above: str

    @property
    def sides(self) -> Any:
        """The colour map from below zero over the ground, which is zero, to above."""
        from matplotlib.colors import LinearSegmentedColormap

        return LinearSegmentedColormap.from_list("sides", [self.below, self.ground, self.above])

    def figure(self, rows: int = 1, columns: int = 1, height: float = 3.4, **more: Any) -> tuple[Any, Any]:
        """A figure and its axes, ``[rows, columns]`` of them where there are several."""
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
        figure = Figure(figsize=(WIDTH, height), layout=layout, facecolor=self.ground)
        panels = figure.subplots(rows, columns, **more)
        for ax in [panels] if rows == columns == 1 else panels.flat:
            self.dress(ax)
        return figure, panels

    def dress(self, ax: Any) -> None:
        """Ground, frame and letters of one panel."""
        ax.set_facecolor(self.ground)
        if ax.name != "polar":
            ax.spines[["top", "right"]].set_visible(False)
        for spine in ax.spines.values():
            spine.set_color(self.faint)
        ax.tick_params(labelsize=SIZE - 1.5, color=self.faint, labelcolor=self.ink)
        for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
            text.set(color=self.ink, fontsize=SIZE)

    def heat(self, ax: Any, values: Any, **more: Any) -> Any:
        """A heat map around zero, each cell one colour; gives the image."""
        most = float(abs(values).max()) or 1.0
        options = {"aspect": "auto", "interpolation": "nearest", "vmin": -most, "vmax": most, **more}
        return ax.imshow(values, cmap=self.sides, **options)

    def scale(self, figure: Any, image: Any, ax: Any, label: str = "") -> None:
        """The scale of a heat map, beside it."""
        bar = figure.colorbar(image, ax=ax, aspect=30, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=SIZE - 2, color=self.faint, labelcolor=self.ink)
        bar.set_label(label, color=self.ink, fontsize=SIZE - 1)

    def legend(self, where: Any, panel: Any = None, **more: Any) -> None:
        """Of a panel; or of a figure, the names of one of its panels where several have the same."""
        named = () if panel is None else panel.get_legend_handles_labels()
        where.legend(*named, frameon=False, fontsize=SIZE - 1.5, labelcolor=self.ink, **more)


LIGHT = Paper(
    ground="#ffffff", ink="#222222", faint="#8a8a8a", below="#0072B2", above="#D55E00",
    lines=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07A00", "#444444"),
)  # fmt: skip
DARK = Paper(
    ground="#1e2129", ink="#e6e6e6", faint="#8a8f99", below="#56B4E9", above="#FF9A4D",
    lines=("#56B4E9", "#FF9A4D", "#2FC79E", "#E79BC6", "#F0E442", "#cccccc"),
)  # fmt: skip


def png(figure: Any) -> bytes:
    """The picture with a palette of its colours."""
    from PIL import Image

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=DPI, metadata={"Software": None})
    Image.open(full).convert("RGB").quantize(COLOURS).save(small, format="PNG", optimize=True)
    return small.getvalue()
