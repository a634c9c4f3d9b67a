"""A whole model before and after, in onnxruntime."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .graph import Graph
from .inputs import Sizes, inputs
from .rotations import PADDED, PAST

LENGTHS = (11, 1)  # tokens; the first call has two sequences, of which one is padded, the second a cache
ROUNDING = {"float16": 2e-2, "float32": 2e-4, "float64": 2e-4}  # of the largest value of an output
FOLDER = "session.model_external_initializers_file_folder_path"


class DoesNotRun(Exception):
    """What onnxruntime says."""


def outputs_of(model: Any, folder: Path, graph: Graph, batch: int) -> list[list[Any]]:
    """All outputs for a few calls; raises `DoesNotRun`. ``graph``: the model as it was read, which says its inputs."""
    onnxruntime = import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(FOLDER, str(folder))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return [session.run(None, given) for given in _calls(graph, batch)]
    except Exception as error:  # its errors have no class of their own
        raise DoesNotRun(" ".join(str(error).split())[:200]) from None


def _calls(graph: Graph, batch: int) -> list[dict[str, Any]]:
    made = []
    for count, sequences, past in zip(LENGTHS, (batch, 1), (0, PAST), strict=True):
        given = inputs(graph, Sizes(graph, count, sequences, past), {}, count=True)
        for name, value in given.items():
            if "mask" in name.lower() and value.ndim == 2 and len(value) == 2:
                value[1, :PADDED] = 0
        made.append({name: value.numpy() for name, value in given.items()})
    return made


def apart(before: list[list[Any]], after: list[list[Any]]) -> float:
    """The largest difference of any output, of its own largest value; infinite where it is more than rounding."""
    largest = 0.0
    for a, b in ((a, b) for one, other in zip(before, after, strict=True) for a, b in zip(one, other, strict=True)):
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return np.inf
        some = np.isfinite(a)
        wide_a, wide_b = a[some].astype(np.float64), b[some].astype(np.float64)
        if not wide_a.size or not (size := np.abs(wide_a).max()):
            continue
        away = float(np.abs(wide_a - wide_b).max() / size)
        largest = max(largest, away if away <= ROUNDING.get(str(a.dtype), 0.0) else np.inf)
    return largest
