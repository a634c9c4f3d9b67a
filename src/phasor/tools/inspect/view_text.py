"""A config on the screen and as data: a page for each model that is shown, and a line about every other part."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...models.configs import ModelRotary
from ...rotary.kernels import available
from ...rotary.kernels.native.kernel import MISSING
from .model_page import model_facts, page, to_dict
from .numbers import SpecFacts
from .rows import row
from .view import ConfigView, in_brief


def view_page(
    view: ConfigView,
    facts: Sequence[Sequence[SpecFacts]],
    columns: int = 100,
    wanted: Mapping[str, float] | None = None,
) -> str:
    """The page of every model shown, and a line about every other part; pictures fit into ``columns``.

    ``wanted``: as in `page`.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> from phasor.tools.inspect.view import read_view
    >>> view = read_view(llama)
    >>> "llama, 1 of 1 layers rotate" in view_page(view, [model_facts(model) for model in view.shown])
    True
    """
    lines = [] if view.refused is None else [row("not shown", str(view.refused)), ""]
    for model, numbers in zip(view.shown, facts, strict=True):
        lines += [page(model, numbers, columns, wanted), ""]
    if view.others:
        lines.append("other parts  (a page of one: --part PATH, of each that rotates: --part all)")
        width = min(30, max(len(path or "(top level)") for path in view.others))
        lines += [f"  {path or '(top level)':<{width}}  {in_brief(what)}" for path, what in view.others.items()]
        lines.append("")
    lines += [row("kernel" if i == 0 else "", f"{name}: {about}") for i, (name, about) in enumerate(_kernels())]
    return "\n".join(lines).rstrip()


def view_dict(view: ConfigView, facts: Sequence[Sequence[SpecFacts]]) -> dict[str, Any]:
    """Everything the page says, as plain JSON data: the first model shown, the rest under ``other_parts``.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> from phasor.tools.inspect.view import read_view
    >>> view = read_view(llama)
    >>> view_dict(view, [model_facts(model) for model in view.shown])["other_parts"]
    {}
    """
    first, *further = [to_dict(model, numbers) for model, numbers in zip(view.shown, facts, strict=True)]
    described = {path: _described(what) for path, what in view.others.items()}
    return {
        **first,
        "not_shown": None if view.refused is None else str(view.refused),
        "other_parts": {model["part"]: model for model in further} | described,
        "kernels": available(),
    }


def _kernels() -> list[tuple[str, str]]:
    """What rotates plain tensors on a CPU and on a GPU of this machine, or why the kernel for it does not."""
    shown = ("native", "eager", "triton") if MISSING else ("native", "triton")
    return [entry for entry in available().items() if entry[0] in shown]


def _described(what: ModelRotary | str) -> dict[str, Any] | str:
    return what if isinstance(what, str) else to_dict(what, model_facts(what))
