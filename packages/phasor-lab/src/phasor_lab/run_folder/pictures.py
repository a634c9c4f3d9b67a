"""Figures of matplotlib: the bytes of a file, words inside one, and one inside a page."""

import base64
import io
import warnings
from typing import Any

from phasor.support.plain_text import one_line


def png_bytes(figure: Any, dpi: int) -> bytes:
    """The figure, where a letter that its font lacks is an empty box, and no warning."""
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()


def figure_text(text: str) -> str:
    r"""Words inside a figure of matplotlib: short, on one line, with no formula between dollar signs.

    >>> print(figure_text("$x$"))
    \$x\$
    """
    line = one_line(text)
    return (line if len(line) <= 60 else f"{line[:60]} …").replace("$", r"\$")


def png_source(png: bytes) -> str:
    """A picture as the ``src`` of an ``img``, so that the page needs no other file."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
