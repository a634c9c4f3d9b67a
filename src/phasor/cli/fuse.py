"""`phasor fuse`: every rotation of an ONNX file as one operator, proved."""

from pathlib import Path
from typing import Annotated

import typer

from ..support.plain_text import say, say_json
from ..support.whole_files import check_file_target


def fuse(
    file: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A model as an ONNX file.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The ONNX file to write.")],
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Positions that the tables reach (default: what the graph or a config.json beside it declares).",
        ),
    ] = None,
    link: Annotated[
        bool, typer.Option("--link", help="In another folder, hard links to files of weights (default: copies).")
    ] = False,
    run: Annotated[
        bool | None,
        typer.Option(
            "--run/--no-run",
            help="Compare the whole model's outputs in onnxruntime (default: where it is installed, up to 1 GiB).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Write an ONNX file in which each rotation is one RotaryEmbedding, whatever nodes it was made of.

    A rotation is found by what it does, and fused if it is proved to do the same; what is left is named.
    Exit code 0: something was fused, 2: nothing could be, or bad input; then nothing is written.
    """
    check_file_target("--out", out)
    from ..tools.onnx import fuse as fuse_onnx

    report = fuse_onnx(file, out, length=length, data="link" if link else "copy", run=run)
    say_json(report.to_dict()) if as_json else say(report)
