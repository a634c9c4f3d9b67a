"""`phasor plan`: what fits, the settings of inference engines for a context, and the line to paste."""

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

if TYPE_CHECKING:
    from ..planner import Fit, Plan


def plan(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json or a folder that holds one.")],
    length: Annotated[
        str | None,
        typer.Option(help="The context length in tokens, such as 131072, 128k or 1M (default: the trained one)."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="What each device has, such as 24GB (as sold) or 23.5GiB: what fits is told.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --memory: a GGUF file, or a folder of safetensors.")
    ] = None,
    weights_bits: Annotated[
        float | None, typer.Option(help="With --memory, without files: bits of a weight (default: as the config says).")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 1,
    table: Annotated[bool, typer.Option("--table", help="With --memory: what each length needs.")] = False,
    draft: Annotated[
        str | None, typer.Option(metavar="CONFIG", help="The config of a draft model: whether it goes with this one.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="An engine, or ollama, lm-studio or koboldcpp; repeat it for several (default: all engines)."
        ),
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
        str,
        typer.Option(
            help="Type of the cache: float32, bfloat16, float16, or one of the engine's: fp8, q8_0, q4_0, q8."
        ),
    ] = "bfloat16",
    tensor_parallel: Annotated[int, typer.Option("--tp", min=1, help="Devices that share the heads.")] = 1,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the settings into a new folder, never over the source.")
    ] = None,
    gguf: Annotated[Path | None, typer.Option(metavar="FILE", help="With --write: the GGUF file to change.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Print everything that is known, with sources.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Tell what fits a memory, and give each engine's settings for a context as a line to paste.

    They are read back and proven equal, or refused with the reason. In a folder with weights the doctor looks first.

    Exit code 0: every engine can do it, 1: at least one cannot, it does not fit, or the weights are in doubt, 2: bad
    input.
    """
    from ..engines import ENGINES, load_config
    from ..planner import plan as make_plan
    from ..planner import plan_in
    from ..planner.amounts import bytes_in, tokens_in
    from ..planner.result import write as write_plans
    from ..planner.weights import doubts_of, weights_for

    if write is not None:
        check_folder_target("--write", write, whole=True)
    if gguf is not None and write is None:
        raise ValueError("--gguf names the file to change, which --write DIR writes changed; add --write")
    if memory is None and (table or weights is not None or weights_bits is not None):
        raise ValueError("--table, --weights and --weights-bits are about what fits; add --memory, such as 24GB")
    how: dict[str, Any] = {
        "length": None if length is None else tokens_in("--length", length), "method": method, "original": original,
    }  # fmt: skip
    doubts = doubts_of(config)
    names, loaded = engine or list(ENGINES), load_config(config)
    plans: list[Plan] = []
    fits: list[Fit] = []
    if memory is None:
        plans = [make_plan(loaded, engine=name, **how) for name in names]
    else:
        size = bytes_in("--memory", memory)
        taken = weights_for(config, weights, weights_bits, draft)
        how |= {"dtype": dtype, "tensor_parallel": tensor_parallel, "batch": batch, "draft": draft}
        for name in names:
            made, fit = plan_in(loaded, size, taken, engine=name, **how)
            plans.append(made)
            fits.append(fit)
        if all(fit.below for fit in fits):
            raise ValueError(fits[0].below)
    drafts = [None if draft is None else made.beside(load_config(draft)) for made in plans]
    each = list(zip_longest(plans, fits, drafts))
    for doubt in () if as_json else doubts:
        say(f"weights in doubt: {doubt}")
    if as_json:
        say_json([
            made.to_dict(dtype, tensor_parallel) | {"fit": held and held.to_dict(), "draft": said, "doubts": doubts}
            for made, held, said in each
        ])  # fmt: skip
    elif table:
        say("\n\n".join("\n".join([made.name, *fit.table()]) for made, fit in zip(plans, fits, strict=True)))
    elif why:
        say("\n\n".join(made.explain(dtype, tensor_parallel, held) for made, held, _ in each))
    else:
        say("\n\n".join(made.brief(dtype, tensor_parallel, batch, held, said) for made, held, said in each))
    for path in write_plans(plans, write, gguf) if write is not None else ():
        say(f"wrote {path}")
    if gguf is not None and not any(one.settings and one.settings.gguf for one in plans):
        say(f"{gguf} stays as it is, and no copy is written: these settings need none of its keys changed")
    if doubts or any(made.settings is None for made in plans) or not all(fit.fits for fit in fits):
        raise typer.Exit(1)
