"""`phasor lab export`: a rotary model as a folder that transformers loads."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a rotary run.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Write a rotary run as a folder that transformers loads as LlamaForCausalLM."""
    from ...lab import export as export_one
    from ...lab import load_model

    check_folder_target("DIR", out, whole=True)
    folder = export_one(load_model(run)[0], out)
    if as_json:
        say_json({"folder": str(folder)})
    else:
        say(f"transformers.LlamaForCausalLM.from_pretrained({str(folder)!r})")
