import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..inspect import Whole, diff, diff_lines, model_facts, read_whole, whole_dict, whole_page


def inspect(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG…", help="A config.json or a folder that holds one.")],
    part: Annotated[
        str | None,
        typer.Option(help="The part of a composite config, or 'all' (default: its text model)."),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(min=1, max=2**31, help="Length for scalings that depend on it (default: the model's maximum)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Also draw the figures as PNG into DIR.")] = None,
    compare: Annotated[
        bool, typer.Option("--diff", help="Say where two configs disagree, and from which position.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option("--as", metavar="ENGINE", help="What this engine makes of it, beside the model's own.")
    ] = None,
    flags: Annotated[
        str | None, typer.Option(metavar="LINE", help="With --as: the engine's command line, or its flags.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a model's config makes of its positions: layers, wavelengths, scaling, decay, exactness.

    Of a composite config the text model is shown, and a line about every other part. Where the text model does not
    rotate, all parts that do are shown; where it could not be read, they are too, with the reason and exit code 2.
    """
    if engine is not None or flags is not None:
        _as(configs, engine, flags or "", as_json)
        return
    if compare:
        if len(configs) != 2:
            raise ValueError(f"--diff compares two configs, got {len(configs)}; name both: phasor inspect --diff A B")
        if plot is not None:
            raise ValueError("--plot draws one config; call it without --diff")
        first, second = (read_whole(source, part) for source in configs)
        found = diff(first, second, seq_len)
        print(json.dumps(found, indent=2) if as_json else "\n".join(diff_lines(found)))
        _refuse(first, second)
        return
    if plot is not None and plot.exists() and not plot.is_dir():
        raise ValueError(f"--plot must be a folder, got the file {str(plot)!r}; name another")
    if len(configs) != 1:
        raise ValueError(f"inspect shows one config at a time, got {len(configs)}; to compare two, add --diff")
    whole = read_whole(configs[0], part)
    facts = [model_facts(model, seq_len) for model in whole.shown]
    figures = [] if plot is None else _draw(whole, facts, plot)
    print(json.dumps(whole_dict(whole, facts), indent=2) if as_json else whole_page(whole, facts))
    if figures and not as_json:
        print("\nfigures\n" + "\n".join(f"  {path}" for path in figures))
    _refuse(whole)


def _as(configs: list[str], engine: str | None, flags: str, as_json: bool) -> None:
    """What an engine makes of one config, beside the model's own code."""
    from ..planner.beside import beside, beside_lines

    if engine is None:
        raise ValueError("--flags are those of an engine; name it with --as")
    if len(configs) != 1:
        raise ValueError(f"--as shows one config, got {len(configs)}")
    found = beside(configs[0], engine, flags)
    print(json.dumps(found, indent=2) if as_json else "\n".join(beside_lines(found)))


def _refuse(*wholes: Whole) -> None:
    """The reader's error, after what could be shown, where the model asked for was not understood."""
    for whole in wholes:
        if whole.faulty:
            assert whole.refused is not None
            raise whole.refused


def _draw(whole: Whole, facts: list[Any], folder: Path) -> list[Path]:
    """The figures of every model shown; of several, each in a folder named by its part."""
    try:
        from ..inspect.figures import save_figures

        drawn: list[Path] = []
        for model, numbers in zip(whole.shown, facts, strict=True):
            own = folder if len(whole.shown) == 1 else folder / (model.part or "top level")
            drawn += save_figures(model, numbers, own).values()
        return drawn
    except ModuleNotFoundError as error:
        raise ValueError(f"--plot needs {error.name}; install it with: pip install 'phasor[plots]'") from None
