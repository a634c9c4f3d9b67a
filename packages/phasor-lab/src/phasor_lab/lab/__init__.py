"""Small models trained and evaluated on real text: which encoding, how far does it reach, how far can it be stretched.

`quick` does everything once; the parts are `train`, `evaluate`, `extend`, `export` and `report`.
"""

from .data import Text, read_text
from .evaluate import SCHEMES, evaluate, extend
from .export import export
from .model import ENCODINGS, Decoder, ModelConfig
from .quick import quick
from .report import report
from .run import RunConfig
from .train import Trained, load_model, train

__all__ = [
    "ENCODINGS",
    "SCHEMES",
    "Decoder",
    "ModelConfig",
    "RunConfig",
    "Text",
    "Trained",
    "evaluate",
    "export",
    "extend",
    "load_model",
    "quick",
    "read_text",
    "report",
    "train",
]
