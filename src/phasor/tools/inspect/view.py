"""What is shown of a config: the parts that were asked for, one page each, and a line about every other part."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...models.configs import ModelRotary, NoRotary, read_config, read_parts
from ...rotary.kernels import available
from ...rotary.kernels.native.kernel import MISSING
from .numbers import SpecFacts
from .page import model_facts, page, to_dict
from .rows import row

EVERY_PART = "all"


@dataclass(frozen=True)
class ConfigView:
    """What a config says: the models ``shown``, the ``others`` by path, and why the requested one is not shown.

    ``refused`` is the reader's error where the config's own model, or its text model, could not be read but other parts
    could. A `NoRotary` among them is no fault of the config: that model has nothing to rotate.

    >>> ConfigView(shown=(), others={}, refused=NoRotary("bert has none")).faulty
    False
    """

    shown: tuple[ModelRotary, ...]
    others: dict[str, ModelRotary | str]
    refused: ValueError | None = None

    @property
    def faulty(self) -> bool:
        """Whether the model that was asked for could not be understood; one that has nothing to rotate was."""
        return self.refused is not None and not isinstance(self.refused, NoRotary)


def read_view(source: str | os.PathLike[str] | dict[str, Any] | Any, part: str | None = None) -> ConfigView:
    """Read a config for its page: one ``part``, ``"all"`` that are read, or (by default) the text model.

    Where the text model cannot be read, all other parts that can are shown instead. ``source`` as in `read_config`;
    raises its ``ValueError`` where nothing can be shown.

    >>> view = read_view({"model_type": "llava", "text_config": {"model_type": "bert"},
    ...                     "vision_config": {"model_type": "pixtral"}})
    >>> [model.part for model in view.shown], view.faulty
    (['vision_config'], False)
    """
    parts = read_parts(source)
    shown = [model for model in parts.values() if isinstance(model, ModelRotary)]
    refused = None
    if part != EVERY_PART or not shown:
        try:
            shown = [read_config(source, part=None if part == EVERY_PART else part)]
        except ValueError as error:
            if part is not None or not shown:
                raise
            refused = error
    paths = [model.part for model in shown]
    return ConfigView(tuple(shown), {path: what for path, what in parts.items() if path not in paths}, refused)


def view_page(view: ConfigView, facts: Sequence[Sequence[SpecFacts]], columns: int = 100) -> str:
    """The page of every model shown, and a line about every other part; pictures fit into ``columns``.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> view = read_view(llama)
    >>> "llama, 1 of 1 layers rotate" in view_page(view, [model_facts(model) for model in view.shown])
    True
    """
    lines = [] if view.refused is None else [row("not shown", str(view.refused)), ""]
    for model, numbers in zip(view.shown, facts, strict=True):
        lines += [page(model, numbers, columns), ""]
    if view.others:
        lines.append("other parts  (a page of one: --part PATH, of each that rotates: --part all)")
        width = min(30, max(len(path or "(top level)") for path in view.others))
        lines += [f"  {path or '(top level)':<{width}}  {_in_brief(what)}" for path, what in view.others.items()]
        lines.append("")
    lines += [row("kernel" if i == 0 else "", f"{name}: {about}") for i, (name, about) in enumerate(_kernels())]
    return "\n".join(lines).rstrip()


def view_line(view: ConfigView) -> str:
    """What is shown, in a line: the layers that rotate, and how.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> view_line(read_view(llama))
    'llama, 1 of 1 layers: ...'
    """
    return "; ".join(f"{model.part}: {_in_brief(model)}" if model.part else _in_brief(model) for model in view.shown)


def view_dict(view: ConfigView, facts: Sequence[Sequence[SpecFacts]]) -> dict[str, Any]:
    """Everything the page says, as plain JSON data: the first model shown, the rest under ``other_parts``.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
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


def _in_brief(what: ModelRotary | str) -> str:
    if isinstance(what, str):
        return what
    first, *more = (spec.describe() for spec in what.distinct)
    rotated = sum(layer is not None for layer in what.layers)
    further = f" (and {len(more)} more)" if more else ""
    return f"{what.model_type}, {rotated} of {len(what.layers)} layers: {first}{further}"


def _described(what: ModelRotary | str) -> dict[str, Any] | str:
    return what if isinstance(what, str) else to_dict(what, model_facts(what))
