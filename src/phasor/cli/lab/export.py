import json
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, prepare


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a rotary run.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    as_json: Json = False,
) -> None:
    """Write a rotary run as a folder that transformers loads as LlamaForCausalLM."""
    from ...apps.lab import export as export_one
    from ...apps.lab import load_model

    prepare(1)
    folder = export_one(load_model(run)[0], out)
    print(
        json.dumps({"folder": str(folder)})
        if as_json
        else f"transformers.LlamaForCausalLM.from_pretrained({str(folder)!r})"
    )
