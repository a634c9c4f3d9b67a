"""What inference engines make of a config (one reader per engine), and the plan for a longer context on them."""

from typing import TYPE_CHECKING

from phasor.support.later import later

if TYPE_CHECKING:
    from .planner import plan

__getattr__, __dir__ = later(__name__, {"plan": ".planner"})

__all__ = ["plan"]
