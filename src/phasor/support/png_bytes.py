"""A figure of matplotlib as the bytes of a file."""

import io
import warnings
from typing import Any


def png_bytes(figure: Any, dpi: int) -> bytes:
    """The figure, where a letter that its font lacks is an empty box, and no warning."""
    image = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(image, format="png", dpi=dpi)
    return image.getvalue()
