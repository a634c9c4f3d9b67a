"""`phasor golden` and `phasor check`: golden vectors, and what differs from them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..support.findings import Report
from ..support.plain_text import say, say_json
from ..support.whole_files import check_folder_target


def golden(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json or a folder that holds one.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder to write (default: golden-MODEL).")
    ] = None,
    part: Annotated[str | None, typer.Option(help="The part of a composite config (default: its text model).")] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Positions, as in 0..7,100,4096 (default: near, trained and far).",
        ),
    ] = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="Also write keys that a cache moves to other positions.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
) -> None:
    """Write golden vectors: right results, to test rotary code in any language against."""
    from ..models.configs import NoRotary, read_config
    from ..models.reading.load import load
    from ..tools.golden import write

    if out is not None:
        check_folder_target("--out", out, whole=True)
    chosen = None if positions is None else _numbers(positions)
    source: Any = config
    try:
        source = read_config(config, part=part)
        name = source.model_type
    except NoRotary:
        if part is not None:
            raise
        name = str(load(config).get("model_type"))
    folder = write(source, out or Path(f"golden-{name}"), positions=chosen, moved=moved, seed=seed)
    say(f"{folder}: vectors.safetensors, vectors.json, README.md (how to test against them)")


def check(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="The folder that phasor golden wrote, or a model as an ONNX file.")
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="For a folder: the results of the other implementation, a safetensors file or a folder of them.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="For an ONNX file: the config.json whose rotations it must have."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="With --config: the part of a composite config.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Compare another implementation with golden vectors, or the rotations of an ONNX file with a config.

    Says the first difference and its likely cause; of an ONNX file node by node, and what could not be shown.
    Exit code 0: right, 1: wrong or not shown, 2: bad input.
    """
    if (against is None) == (config is None):
        raise ValueError(
            "check compares golden vectors --against another implementation, or an ONNX file with a --config; name one"
        )
    if part is not None and config is None:
        raise ValueError("--part names a part of a --config, and there is none")
    report: Report[Any]
    if config is not None:
        from ..tools.onnx import check as check_onnx

        report = check_onnx(what, config, part=part)
    else:
        from ..tools.golden import check as check_vectors

        assert against is not None
        report = check_vectors(what, against)
    say_json(report.to_dict()) if as_json else say(report)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _numbers(text: str) -> list[int | float]:
    """
    >>> _numbers("0..3,8,0.5")
    [0, 1, 2, 3, 8, 0.5]
    """
    numbers: list[int | float] = []
    for word in text.split(","):
        first, dots, last = word.strip().partition("..")
        try:
            if not dots:
                numbers.append(float(first) if "." in first else int(first))
            elif int(last) - int(first) > 4096:
                raise ValueError
            else:
                numbers += range(int(first), int(last) + 1)
        except ValueError:
            raise ValueError(
                f"--positions must be numbers and ranges as in 0..7,100, at most 4096, got {word.strip()!r}"
            ) from None
    return numbers
