from pathlib import Path
from typing import Annotated

import typer

from .options import ModelFolder


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="File to write.")],
) -> None:
    """Write the scores as ONNX, with batch and length of any size. Needs onnx and onnxscript."""
    from ...apps.ner import load

    try:
        from ...apps.ner.export import export as write

        print(write(load(model).model, out))
    except ModuleNotFoundError as error:
        raise ValueError(f"export needs {error.name}; install it with: pip install onnx onnxscript") from None
