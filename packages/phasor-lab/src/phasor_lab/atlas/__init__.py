"""Every encoding as a picture, side by side: `phasor atlas`, and the page of the site."""

from .plates import PLATES, Plate
from .run import run

__all__ = ["PLATES", "Plate", "run"]
