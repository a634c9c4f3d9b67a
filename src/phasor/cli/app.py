"""The table of all commands, with a line about each."""

import sys
from collections.abc import Iterable, Sequence
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
    "plan": ("plan:plan", "An engine's settings for a longer context, checked"),
    "convert": ("convert:convert", "Find a checkpoint's pair layout; write it in another one, proved"),
    "doctor": ("doctor:doctor", "Whether a model's position encoding is right, and why not"),
    "study": ("study:study", "Which pairs of its rotation a model uses, and in which heads"),
    "fit": ("fit:fit", "The best frequencies of one model for a longer context"),
    "golden": ("golden:golden", "Vectors to test rotary code in any language"),
    "check": ("golden:check", "Whether other rotary code or an ONNX file is right"),
    "bench": ("bench:bench", "What a rotation costs on this machine"),
    "atlas": ("atlas:atlas", "Every position encoding as a picture"),
    "demo": ("demo:demo", "Most of these on twelve published models, as HTML pages"),
    "lab": ("lab:app", "Small models on real text: which encoding reaches how far"),
    "ner": ("ner:app", "Span recognition: train, measure, use"),
}


def app_of(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(phasor)
    for name in names:
        place, line = COMMANDS[name]
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f".{module}", __package__), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=line)
        else:
            app.command(name, short_help=line)(found)
    return app


def run(words: Sequence[str]) -> None:
    """Run the command that the words name.

    Only its own options are made: to make those of every command takes longer than a small conversion.
    """
    app = app_of(words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS)
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
