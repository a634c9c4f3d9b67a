"""`phasor plan`: the settings of inference engines for a longer context."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target


def plan(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json or a folder that holds one.")],
    length: Annotated[
        str | None,
        typer.Option(help="The context length in tokens, such as 131072, 128k or 1M (default: the trained)."),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="An inference engine; repeat it for several (default: all).")
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="The scaling: auto, yarn, linear, ntk, dynamic or none. auto is the model's own, else yarn."),
    ] = "auto",
    original: Annotated[
        int | None,
        typer.Option(min=1, help="The length that the model was trained on, if the config declares a longer one."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Number format of the KV cache: float32, bfloat16, float16, fp8 or int8.")
    ] = "bfloat16",
    tensor_parallel: Annotated[int, typer.Option("--tp", min=1, help="Devices that share the heads.")] = 1,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the settings into a new folder, never over the source.")
    ] = None,
    gguf: Annotated[Path | None, typer.Option(metavar="FILE", help="With --write: the GGUF file to change.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Give each engine's settings for a longer context.

    They are read back and proven equal, or refused with the reason.

    Exit code 0: every engine can do it, 1: at least one cannot, 2: bad input.
    """
    from ..engines import ENGINES
    from ..planner import plan as make_plan
    from ..planner.amounts import tokens_in
    from ..planner.result import write as write_plans

    if write is not None:
        check_folder_target("--write", write, whole=True)
    if gguf is not None and write is None:
        raise ValueError("--gguf names the file to change, which --write DIR writes changed; add --write")
    tokens = None if length is None else tokens_in("--length", length)
    plans = [make_plan(config, length=tokens, engine=e, method=method, original=original) for e in engine or ENGINES]
    if as_json:
        say_json([one.to_dict(dtype, tensor_parallel) for one in plans])
    else:
        say("\n\n".join(one.explain(dtype, tensor_parallel) for one in plans))
    for path in write_plans(plans, write, gguf) if write is not None else ():
        say(f"wrote {path}")
    if gguf is not None and not any(one.settings and one.settings.gguf for one in plans):
        say(f"{gguf} stays as it is, and no copy is written: these settings need none of its keys changed")
    if any(one.settings is None for one in plans):
        raise typer.Exit(1)
