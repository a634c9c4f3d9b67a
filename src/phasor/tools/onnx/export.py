"""torch.onnx.export, and a look at what it wrote: an invalid file raises."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...support.checks import whole
from ...support.whole_files import check_file_target, followed, write_together
from .read import library

FIRST = 18  # the first opset in which torch's exporter writes


def export(
    module: nn.Module,
    args: tuple[Any, ...],
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    opset_version: int = 23,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Path:
    """Write ``module`` as ONNX, by ``torch.onnx.export(dynamo=True)`` with the same arguments; returns ``path``.

    Rotations are plain nodes, with exact phases as int64, in every opset from 18. With ``kernel="onnx"`` (`rotate`,
    `apply_rotary_qk`, `Rotary`, `patch`) each is one node RotaryEmbedding, which opset 23 brought. Weights of more than
    2 GB stand beside the file. Nothing is left of a file that could not be written or is not valid.

    Raises ``ValueError`` for an opset that torch did not write: asked for one that cannot hold the nodes, or that it
    does not know, torch says nothing and writes a file of another. Needs onnx and onnxscript.

    Example::

        rotary = phasor.Rotary(spec, kernel="onnx")
        phasor.onnx.export(rotary, (q, k, positions), "rotary.onnx", opset_version=23)
    """
    whole("opset_version", opset_version, at_least=FIRST)
    check_file_target("path", Path(path), ordinary=True)
    path = followed(Path(path))
    onnx = library("onnxscript")
    with _quiet():
        try:
            program = torch.onnx.export(
                module,
                args,
                kwargs=dict(kwargs or {}),
                dynamo=True,
                dynamic_shapes=dynamic_shapes,
                input_names=input_names,
                output_names=output_names,
                opset_version=opset_version,
                verbose=False,
            )
        except RuntimeError as error:
            if type(error).__name__ != "VersionConverterError":
                raise
            raise ValueError(_wrong(opset_version, str(error))) from None
        assert program is not None
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".onnx-") as folder:
            file = Path(folder) / path.name
            _save(program, file, path)
            if fault := _fault(onnx, file, opset_version):
                raise ValueError(_wrong(opset_version, fault))
            parts = sorted(Path(folder).iterdir(), key=lambda part: part == file)  # the file itself is last
            write_together({path.with_name(part.name): part for part in parts})
    return path


def _save(program: Any, file: Path, path: Path) -> None:
    """Write a file that will be ``path``, which an error names: torch's own names nothing."""
    try:
        program.save(file)
    except OSError as error:
        why = f"cannot write ({error.strerror or error}); what was there before is untouched"
        raise OSError(error.errno, why, str(path)) from error


def _wrong(opset: int, fault: str) -> str:
    return (
        f"opset_version must be one that torch can write for these nodes, got {opset}: {fault}; take 23 to 25 for "
        "RotaryEmbedding (kernel='onnx'), and 18 or newer for plain nodes"
    )


def _fault(onnx: Any, file: Path, opset: int) -> str:
    """What is wrong with a file: another opset than asked for, or nodes that its opset has not."""
    try:
        onnx.checker.check_model(file)
    except onnx.checker.ValidationError as error:
        return str(error).splitlines()[0]
    model = onnx.load(file, load_external_data=False)
    written = next(entry.version for entry in model.opset_import if entry.domain == "")
    return "" if written == opset else f"the file came out as opset {written}"


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter warns of every library that is absent, and logs a failed conversion as no more than that."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
