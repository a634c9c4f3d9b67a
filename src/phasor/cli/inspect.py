import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configs import ModelRotary, read_config
from ..inspect import compare_lengths, model_facts, page, to_dict
from ..spec import RotarySpec


def inspect(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG…", help="A config.json or a folder that holds one.")],
    part: Annotated[str | None, typer.Option(help="The part of a composite config (default: its text model).")] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(min=1, max=2**31, help="Length for scalings that depend on it (default: the model's maximum)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Also draw the figures as PNG into DIR.")] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Say where two configs disagree, and from which position.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a model's config makes of its positions: layers, wavelengths, scaling, decay, exactness."""
    if diff:
        if len(configs) != 2:
            raise ValueError(f"--diff compares two configs, got {len(configs)}; name both: phasor inspect --diff A B")
        if plot is not None:
            raise ValueError("--plot draws one config; call it without --diff")
        first, second = (read_config(source, part=part) for source in configs)
        _show_diff(first, second, seq_len, as_json)
        return
    if plot is not None and plot.exists() and not plot.is_dir():
        raise ValueError(f"--plot must be a folder, got the file {str(plot)!r}; name another")
    if len(configs) != 1:
        raise ValueError(f"inspect shows one config at a time, got {len(configs)}; to compare two, add --diff")
    model = read_config(configs[0], part=part)
    facts = model_facts(model, seq_len)
    if plot is not None:
        figures = _draw(model, facts, plot)
    if as_json:
        print(json.dumps(to_dict(model, facts), indent=2))
        return
    print(page(model, facts))
    if plot is not None:
        print("\nfigures\n" + "\n".join(f"  {path}" for path in figures.values()))


def _draw(model: ModelRotary, facts: Any, folder: Path) -> dict[str, Path]:
    try:
        from ..inspect.figures import save_figures

        return save_figures(model, facts, folder)
    except ModuleNotFoundError as error:
        raise ValueError(f"--plot needs {error.name}; install it with: pip install 'phasor[plots]'") from None


def _show_diff(a: ModelRotary, b: ModelRotary, seq_len: int | None, as_json: bool) -> None:
    groups: dict[Any, list[int]] = {}
    for i, pair in enumerate(zip(a.layers, b.layers, strict=False)):
        groups.setdefault(pair, []).append(i)
    length = seq_len or max(a.max_position or 1, b.max_position or 1)
    findings = [{"layers": layers, **_finding(x, y, length)} for (x, y), layers in groups.items()]
    softmax = [a.softmax_factor, b.softmax_factor]
    same = len(a.layers) == len(b.layers) and softmax[0] == softmax[1] and all(f["same"] for f in findings)
    if as_json:
        counts = [len(a.layers), len(b.layers)]
        print(json.dumps({"same": same, "layers": counts, "softmax_factor": softmax, "findings": findings}, indent=2))
        return
    if len(a.layers) != len(b.layers):
        print(f"layers       {len(a.layers)} in the first, {len(b.layers)} in the second; the common ones are compared")
    if softmax[0] != softmax[1]:
        print(f"softmax      the models scale their scores by {softmax[0]:.6g} and {softmax[1]:.6g}")
    for found in findings:
        label = "layers " + _span(found["layers"])
        for said in found["says"]:
            print(f"{label:<13}{said}")
            label = ""
        for name, (mine, theirs) in found["fields"].items():
            print(f"             {name}: {mine}  |  {theirs}")


def _finding(first: RotarySpec | None, second: RotarySpec | None, length: int) -> dict[str, Any]:
    if first is None or second is None:
        says = "neither rotates" if first is second else f"only the {_which(first)} rotates here"
        return {"says": [says], "same": first is second, "fields": {}}
    results = compare_lengths(first, second, length)
    apart = next((r for r in results if r.pair is not None), results[-1])
    return {
        "says": [r.describe() for r in results],
        "same": all(r.same for r in results),
        "pair": apart.pair,
        "position": apart.position,
        "fields": {name: [str(v) for v in values] for name, values in apart.fields.items()},
    }


def _which(first: Any) -> str:
    return "first" if first is not None else "second"


def _span(layers: list[int]) -> str:
    if layers == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]}-{layers[-1]}" if len(layers) > 1 else f"{layers[0]}"
    return f"{layers[0]}, {layers[1]}, … ({len(layers)})"
