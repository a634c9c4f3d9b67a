"""Named entities and other spans: data, training, prediction and measures for `phasor.span_heads`.

`usual` chooses model and training by the texts, `train` makes a folder with a model, `load` reads it, `predict` finds
spans in texts, `evaluate` counts what is right.
"""

from .config import SpanConfig, TrainConfig
from .data import Entity, Example, labels_of, read
from .data.windows import Prediction
from .metrics import Score, Scores, evaluate
from .model import SavedModel, SpanModel, load, new_model
from .predict import predict
from .tokens import make_tokenizer
from .train import TrainedSpans, train
from .usual import usual

__all__ = [
    "Entity",
    "Example",
    "SpanConfig",
    "Prediction",
    "SavedModel",
    "Score",
    "Scores",
    "SpanModel",
    "TrainConfig",
    "TrainedSpans",
    "evaluate",
    "labels_of",
    "load",
    "make_tokenizer",
    "new_model",
    "predict",
    "read",
    "train",
    "usual",
]
