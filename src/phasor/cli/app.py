"""The table of all commands, with a line about each."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from ..support.plain_text import say

# What click raises at options that do not fit. It may be a click that typer brings under a name of its own.
USAGE: Any = typer.BadParameter.__base__


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(version("phasor-rope"))
        raise typer.Exit


def phasor(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Position encodings: read and check a model's rotary embedding, extend its context, convert its weights."""


# Where each is, and the line that the list of commands shows, whole at 80 columns.
COMMANDS = {
    "inspect": ("inspect:inspect", "What a model's config says about positions, on one screen"),
    "convert": ("convert:convert", "Find a checkpoint's pair layout; write it in another one, proved"),
    "doctor": ("doctor:doctor", "Whether a model's position encoding is right, and why not"),
    "golden": ("golden:golden", "Vectors to test rotary code in any language"),
    "check": ("golden:check", "Whether other rotary code or an ONNX file is right"),
    "fuse": ("fuse:fuse", "An ONNX file with one operator for each rotation, proved"),
}

# Those of the other packages: which one brings it, and its line. Where it is, its entry point in this group says.
GROUP = "phasor.commands"
ELSEWHERE = {
    "plan": ("phasor-serve", "An engine's settings for a longer context, checked"),
    "engine": ("phasor-serve", "How an engine rotates, beside the model's own code"),
    "study": ("phasor-lab", "Which pairs of its rotation a model uses, and in which heads"),
    "fit": ("phasor-lab", "The best frequencies of one model for a longer context"),
    "atlas": ("phasor-lab", "Every position encoding as a picture"),
    "demo": ("phasor-lab", "Most of these on twelve published models, as HTML pages"),
    "lab": ("phasor-lab", "Small models on real text: which encoding reaches how far"),
    "ner": ("phasor-lab", "Span recognition: train, measure, use"),
}


def app_of(names: Iterable[str] | None = None) -> typer.Typer:
    """The command line with these commands, or with all that are installed."""
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
        epilog=None if names else _missing(),
    )  # fmt: skip
    app.callback()(phasor)
    for name in names or (*COMMANDS, *_installed()):
        _, line = (COMMANDS | ELSEWHERE)[name]
        found = _command(name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=line)
        else:
            app.command(name, short_help=line)(found)
    return app


def _command(name: str) -> Any:
    """The function of a command, or its table of commands; ``ValueError`` where its package is missing."""
    if name in COMMANDS:
        module, _, attribute = COMMANDS[name][0].partition(":")
        return getattr(import_module(f".{module}", __package__), attribute)
    if name not in _installed():
        package = ELSEWHERE[name][0]
        raise ValueError(f"{name} is a command of {package}; install it with: pip install {package}")
    return _installed()[name].load()


@cache
def _installed() -> dict[str, Any]:
    """The entry points of the commands of other packages, in the order of the list."""
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group=GROUP)}
    return {name: found[name] for name in ELSEWHERE if name in found}


def _missing() -> str:
    """What else can be installed, in words."""
    commands: dict[str, list[str]] = {}
    for name, (package, _) in ELSEWHERE.items():
        if name not in _installed():
            commands.setdefault(package, []).append(name)
    lines = [f"{', '.join(names)}: pip install {package}" for package, names in commands.items()]
    return f"Not installed: {'; '.join(lines)}" if lines else ""


def run(words: Sequence[str]) -> None:
    """Run the command that the words name.

    Only its own options are made: to make those of every command takes longer than a small conversion.
    """
    app = app_of(words[:1] if words[:1] and words[0] in COMMANDS | ELSEWHERE else None)
    try:
        code = app(words, prog_name="phasor", standalone_mode=False)
    except USAGE as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is all of the help
            say(message, error=True)
            code = 2
        else:
            command = error.ctx.command_path if error.ctx else "phasor"
            raise ValueError(f"{message.rstrip('.')}; see {command} --help") from None
    if code:
        sys.exit(code)
