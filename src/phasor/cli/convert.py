"""`phasor convert`: a checkpoint in another pair layout or format, with a proof."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..support.plain_text import one_line, say
from ..support.whole_files import check_folder_target
from .progress import progress


def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder or a file with a checkpoint.")],
    target: Annotated[Path | None, typer.Argument(metavar="DST", help="A new folder.")] = None,
    to: Annotated[
        str,
        typer.Option(help="A layout (halves, interleaved, native) or a format (transformers, meta, mistral, gguf)."),
    ] = "",
    source_layout: Annotated[
        str | None,
        typer.Option("--from", metavar="LAYOUT", help="The layout of SRC, if you know it better than its files say."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="The part of a composite model (default: its text model).")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and stop; without --to, the layout that SRC is in.")
    ] = False,
    files: Annotated[
        int | None,
        typer.Option(min=1, help="For Meta's format: the number of files, one for each process that will load it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DST if it exists.")] = False,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also read .bin and .pth files, by torch.load with weights_only.")
    ] = False,
    proof: Annotated[
        bool, typer.Option("--proof/--no-proof", help="Afterwards read SRC and DST again and compare them.")
    ] = True,
) -> None:
    """Write a checkpoint in another layout of its rotary pairs, or in another format.

    Every tensor that holds q or k follows, all others stay byte for byte. The source is never changed. What was written
    is proved before it is put in place, in DST/phasor-proof.json.
    With --dry-run alone it says in which layout SRC is; the exit code is 1 if the weights contradict the format.
    It is 1 as well where SRC lost factors of its frequencies that its metadata speak of.
    """
    from ..tools.checkpoints import carry_out, make_plan

    if dry_run and not to:
        _detect(source, part, allow_pickle)
        return
    if not to:
        raise ValueError("--to is missing; name a layout (halves, interleaved, native) or a format (transformers, …)")
    if target is not None:
        check_folder_target("DST", target, whole=True)
    if files is not None and to != "meta":
        raise ValueError(f"--files is for --to meta, got --to {to}; leave it out")
    options = None if files is None else {"files": files}
    plan = make_plan(source, to, source_layout=source_layout, part=part, allow_pickle=allow_pickle, options=options)
    say(plan.describe())
    if target is None and not dry_run:
        raise ValueError("DST is missing; name a new folder")
    if target is not None and not dry_run:
        report = carry_out(plan, target, force=force, proof=proof, tell=_told(plan.size))
        say(_summary(report, target))
    if plan.source.lost:
        raise typer.Exit(1)


def _detect(source: Path, part: str | None, allow_pickle: bool) -> None:
    """The layout that the format says, and whether the weights speak against it: then the exit code is 1."""
    from ..tools.checkpoints import detect

    detection = detect(source, part=part, allow_pickle=allow_pickle)
    say(detection.describe())
    if detection.contradicts or detection.lost:
        raise typer.Exit(1)


def _told(total: int) -> Callable[[int], None]:
    """To be called with the bytes of each write: says how many are written, of how many, and the time left."""
    tell, written = progress("MiB"), 0

    def wrote(count: int) -> None:
        nonlocal written
        written += count
        tell(written >> 20, total >> 20)

    return wrote


def _summary(report: dict[str, Any], target: Path) -> str:
    """The proof in a few lines."""
    lines = []
    if tensors := report.get("tensors"):
        lines.append(f"proved   {tensors['byte_identical']} tensors byte for byte, {tensors['moved']} moved and back")
    return "\n".join([*lines, f"written  {one_line(str(target))}"])
