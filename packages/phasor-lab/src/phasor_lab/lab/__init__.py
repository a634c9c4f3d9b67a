"""Small models trained and evaluated on real text: which encoding, how far does it reach, how far can it be stretched.

`compare` does everything once and sets encodings side by side; the parts are `train`, `evaluate`, `extend`,
`export` and `report`.
"""

from .compare import compare
from .data import Text, read_text
from .encodings import ENCODINGS, register_encoding
from .evaluate import SCHEMES, evaluate, extend
from .export import export
from .model import Decoder, ModelConfig
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
    "compare",
    "evaluate",
    "export",
    "extend",
    "load_model",
    "read_text",
    "register_encoding",
    "report",
    "train",
]
