"""`phasor ner export`: the scores of a span model as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say
from phasor.support.whole_files import check_file_target

from .options import ModelFolder, prepare


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="File to write.")],
) -> None:
    """Write the scores as ONNX, with batch and length of any size. Needs onnx and onnxscript."""
    from ...ner import load

    check_file_target("OUT.onnx", out, ordinary=True)
    prepare(None, "cpu")
    saved = load(model)
    from ...ner.export import export as write  # slow, and not needed to refuse a damaged model

    say(write(saved.model, out))
