"""`phasor inspect`: what a config says about positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..support.plain_text import one_line, say, say_json
from .terminal import columns, show

if TYPE_CHECKING:
    from ..models.configs import NoRotary
    from ..tools.inspect.view import ConfigView


def inspect(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG…", help="A config.json or a folder that holds one.")],
    part: Annotated[
        str | None,
        typer.Option(help="The part of a composite config, or 'all' (default: its text model)."),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**31, help="Sequence length, for scalings that depend on it (default: the model's maximum)."
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Tokens along the axes of a picture or clip to be asked about: 128x128, 41x30x52."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--diff", help="Compare two configs: the first pair and position where they differ.")
    ] = False,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each config, for a commit hook.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a model's config says about positions: layers, wavelengths, scaling, decay, exactness.

    Of a composite config it shows the text model, and a line about every other part. If the text model does not
    rotate, it shows all parts that do; if none does, what tells tokens apart instead, seen on a small model of the
    installed transformers. If the text model could not be read, it shows the other parts too, with the reason, and the
    exit code is 2. With --diff the exit code is 0 if both configs rotate alike, and 1 if they differ. With --brief it
    is 2 if a config could not be read; a model without rotation is not a mistake.
    """
    if brief:
        if compare or as_json:
            raise ValueError("--brief is a line for each config; call it without --diff, --json")
        _brief(configs, part)
        return
    from ..models.configs import NoRotary
    from ..tools.inspect.axes_picture import sized
    from ..tools.inspect.disagreement import diff, diff_lines
    from ..tools.inspect.model_page import model_facts
    from ..tools.inspect.view import read_view
    from ..tools.inspect.view_text import view_dict, view_page

    if compare:
        if len(configs) != 2:
            raise ValueError(f"--diff compares two configs, got {len(configs)}; name both: phasor inspect --diff A B")
        first, second = (read_view(source, part) for source in configs)
        difference = diff(first, second, seq_len)
        say_json(difference) if as_json else show("\n".join(diff_lines(difference)))
        _refuse(first, second)
        if not difference["same"]:
            raise typer.Exit(1)
        return
    if len(configs) != 1:
        raise ValueError(
            f"inspect shows one config at a time, got {len(configs)}; add --diff to compare two, or --brief"
        )
    try:
        view = read_view(configs[0], part)
    except NoRotary as error:
        if part is not None:
            raise
        _instead(configs[0], error, as_json)
        return
    facts = [model_facts(model, seq_len) for model in view.shown]
    if as_json:
        say_json(view_dict(view, facts))
    else:
        show(view_page(view, facts, columns(), sized(grid)))
    _refuse(view)


def _brief(configs: list[str], part: str | None) -> None:
    from ..models.configs import NoRotary
    from ..tools.inspect.view import read_view, view_line

    faulty = 0
    for config in configs:
        try:
            view = read_view(config, part)
            _refuse(view)
            line = view_line(view)
        except NoRotary as error:
            line = _without(config, error)
        except (ValueError, OSError) as error:
            faulty += 1
            line = f"not read: {_without(config, error)}"
        say(one_line(f"{config}: {line}"))
    if faulty:
        raise typer.Exit(2)


def _instead(config: str, error: NoRotary, as_json: bool) -> None:
    """What the model has instead of a rotation, where transformers is installed and builds it; else the error."""
    from ..tools.inspect.without_rotation import read_without_rotation

    seen = read_without_rotation(config, error)
    say_json(seen.to_dict()) if as_json else show(seen.page())


def _without(config: str, error: Exception) -> str:
    """An error without the path that the line begins with."""
    return str(error).removeprefix(f"{config}: ").removeprefix(f"{Path(config) / 'config.json'}: ")


def _refuse(*views: ConfigView) -> None:
    """The reader's error, after what could be shown, where the model asked for was not understood."""
    for view in views:
        if view.faulty:
            assert view.refused is not None
            raise view.refused
