"""A whole model before and after, in onnxruntime."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..fuse.report import outputs_equal
from .graph import Graph
from .inputs import Sizes, inputs, padded
from .read import File, tensors_of
from .rotations import PAST, Rotations

LENGTHS = (11, 1)  # tokens; the first call has two sequences, of which one is padded, the second a cache
ROUNDING = {"float16": 2e-2, "float32": 2e-4, "float64": 2e-4}  # of the largest value of an output
LARGEST = 2**30  # bytes of weights up to which a model is run if nobody says so
FOLDER = "session.model_external_initializers_file_folder_path"


class DoesNotRun(Exception):
    """What onnxruntime says."""


def compared(source: File, model: Any, rotations: Rotations, rows: int, run: bool | None) -> str:
    """What became of the outputs of the whole model; ``ValueError`` where they are others.

    ``rows``: of the shortest table, behind which no token may stand.
    """
    installed = find_spec("onnxruntime") is not None
    if run is None:
        size = sum(len(t.raw_data) for t in source.graph.initializer) + sum(
            f.stat().st_size for f in files_beside(source)
        )
        if not installed or size > LARGEST:
            return "the whole model was not run" + f" ({size:,} bytes of weights)" * installed
    elif not run:
        return "the whole model was not run"
    if not installed:
        raise ValueError("run (--run) needs onnxruntime; install it with: pip install onnxruntime, or leave run out")
    try:
        before = outputs_of(source.model, source.folder, rotations.graph, rotations.batch, rows)
    except DoesNotRun as error:
        return f"onnxruntime does not run the model as it was ({error})"
    try:
        after = outputs_of(model, source.folder, rotations.graph, rotations.batch, rows)
    except DoesNotRun as error:
        raise ValueError(f"onnxruntime runs the model as it was, and not with the operator: {error}") from None
    away = apart(before, after)
    if away == float("inf"):
        raise ValueError("the outputs of the whole model change by more than rounding, so nothing was written")
    return outputs_equal(away)


def files_beside(source: File) -> set[Path]:
    """Those that hold weights."""
    tensors = (t for t in tensors_of(source.model) if len(t.external_data))
    places = {entry.value for t in tensors for entry in t.external_data if entry.key == "location"}
    return {source.folder / place for place in places}


def outputs_of(model: Any, folder: Path, graph: Graph, batch: int, rows: int) -> list[list[Any]]:
    """All outputs for a few calls; raises `DoesNotRun`. ``graph``: the model as it was read, which says its inputs."""
    onnxruntime = import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(FOLDER, str(folder))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return [session.run(None, given) for given in _calls(graph, batch, rows)]
    except Exception as error:  # its errors have no class of their own
        raise DoesNotRun(" ".join(str(error).split())[:200]) from None


def _calls(graph: Graph, batch: int, rows: int) -> list[dict[str, Any]]:
    made = []
    for count, sequences, past in zip(LENGTHS, (batch, 1), (0, min(PAST, rows - 1)), strict=True):
        given = inputs(graph, Sizes(graph, min(count, rows), sequences, past), {}, count=True)
        padded(given)
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
