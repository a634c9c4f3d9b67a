"""What is shown of a config: the parts that were asked for, and a line about each."""

import os
from dataclasses import dataclass
from typing import Any

from ...models.configs import ModelRotary, NoRotary, read_config, read_parts, tree_of
from ...models.reading.load import in_file

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
    with in_file(source):
        tree = tree_of(source)
    parts = read_parts(tree)
    shown = [model for model in parts.values() if isinstance(model, ModelRotary)]
    refused = None
    if part != EVERY_PART or not shown:
        try:
            with in_file(source):
                shown = [read_config(tree, part=None if part == EVERY_PART else part)]
        except ValueError as error:
            if part is not None or not shown:
                raise
            refused = error
    paths = [model.part for model in shown]
    return ConfigView(tuple(shown), {path: what for path, what in parts.items() if path not in paths}, refused)


def view_line(view: ConfigView) -> str:
    """What is shown, in a line: the layers that rotate, and how.

    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> view_line(read_view(llama))
    'llama, 1 of 1 layers: ...'
    """
    return "; ".join(f"{model.part}: {in_brief(model)}" if model.part else in_brief(model) for model in view.shown)


def in_brief(what: ModelRotary | str) -> str:
    """A line about a model, or why it was not read."""
    if isinstance(what, str):
        return what
    first, *more = (spec.describe() for spec in what.distinct)
    rotated = sum(layer is not None for layer in what.layers)
    further = f" (and {len(more)} more)" if more else ""
    return f"{what.model_type}, {rotated} of {len(what.layers)} layers: {first}{further}"
