"""The rotary encoding of every layer from a model's own config, through the rows of `phasor.models.rows`."""

import copy
import os
from typing import Any

from ..positions import Rule
from ..rotary.model_rotary import ModelRotary
from ..support.registry import register
from .reading.composite import ConfigTree, read_part
from .reading.load import in_file, load
from .reading.numbering import read_numbering
from .reading.pictures import of_pictures, read_pictures
from .reading.refusal import Reason, Refused
from .reading.row import Alias, NoRotary, RotaryFlag, Row
from .reading.text import TextModel
from .reading.text_row import Names, Rope
from .reading.write import NotWrittenError, first_difference, repeat_above, write_part
from .rows import ROWS

__all__ = [
    "ModelRotary",
    "Names",
    "NoRotary",
    "Reason",
    "Refused",
    "Rope",
    "RotaryFlag",
    "TextModel",
    "read_config",
    "read_parts",
    "read_rule",
    "register_model",
    "tree_of",
    "write_config",
]

Source = str | os.PathLike[str] | dict[str, Any] | Any


def read_config(source: Source, part: str | None = None) -> ModelRotary:
    """The rotary encoding of every layer, from a model's own config. Strict: every rope key is used or refused.

    ``source`` is the path of a ``config.json``, of a folder that holds one, a dictionary, or a transformers config
    (anything with ``to_dict``). ``part`` names one part of a composite config (``"text_config"``,
    ``"vision_config"``, ``"talker_config.text_config"``); without it the text model is read, or, where there is none,
    the first part that rotates (`read_parts` reads them all). Nothing is imported and nothing downloaded, but for a
    type without a row and for configs of diffusers and timm: of those the installed class is built small, and observed.

    A key that the family's code does not read is refused, unless its value asks for nothing (false, null, empty, 1.0,
    "default") or says what is so anyway. So are a key that is nearly a known one, whatever its value, a contradiction,
    a missing size and a family that is not known: `Refused`, a ``ValueError``, names the key, the rule, the value and
    the way out, and carries its `Reason`, because a wrong rotary embedding never crashes: it makes the model a little
    worse with every token. Defaults come from the family's own code only, and ``ModelRotary.sources`` says which ones
    were used.

    >>> model = read_config({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    ...                      "num_hidden_layers": 2, "rope_theta": 500000.0})
    >>> model.layers[0].describe()
    'all 16 channels, halves, base 500000, no scaling, one axis, exact angles'
    >>> model.sources["rope_theta"], model.sources["head_dim"]
    ('base 500000', 'not in config: hidden_size / num_attention_heads = 16')
    """
    with in_file(source):
        tree = tree_of(source)
        if of_pictures(tree.data):
            return read_pictures(tree.data)
        path = tree.choose(part)
        try:
            return read_part(tree, path)
        except NoRotary as error:
            raise NoRotary(f"{error}{tree.others_that_rotate(path)}") from None


def read_parts(source: Source) -> dict[str, ModelRotary | str]:
    """Every part of a config by its dotted path (``""``: the config itself): what it rotates, or why nothing is read.

    A sentence begins with ``no rotary`` where the part has none, and with ``not read`` where it could not be
    understood. ``source`` as in `read_config`; raises ``ValueError`` if it is no config at all.

    >>> toy = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "bert"}}
    >>> {path: type(part).__name__ for path, part in read_parts(toy).items()}
    {'': 'str', 'text_config': 'ModelRotary', 'vision_config': 'str'}
    >>> read_parts(toy)[""]
    'no rotary: this config only holds text_config, vision_config'
    """
    with in_file(source):
        tree = tree_of(source)
    pictures = of_pictures(tree.data)
    parts: dict[str, ModelRotary | str] = {}
    for path in ("",) if pictures else ("", *tree.paths):
        try:
            parts[path] = read_pictures(tree.data) if pictures else read_part(tree, path)
        except NoRotary as error:
            parts[path] = f"no rotary: {error}"
        except ValueError as error:
            parts[path] = f"not read: {error}"
    return parts


def tree_of(source: Source) -> ConfigTree:
    """A config with the models in it, for whoever reads it more than once: it is a ``source`` itself."""
    return source if isinstance(source, ConfigTree) else ConfigTree(load(source), ROWS)


def read_rule(source: Source) -> Rule:
    """The rule by which a model numbers images, video and sound among its text, with the sizes its config states.

    ``source`` as in `read_config`: the config of the whole model, or of its thinker or talker (Qwen-Omni). A size that
    it leaves out is that of transformers' default config. Raises ``ValueError`` for a model without such a rule (its
    positions are plain text positions, or not known here) and for a key that is nearly one of those that are read.

    >>> read_rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}).rate
    2
    """
    with in_file(source):
        return read_numbering(tree_of(source))


def register_model(name: str, row: Row) -> None:
    """Add the row of a model type (`docs/first_row.md`): `read_config` and all that uses it then knows the type.

    It holds for this process. Raises ``ValueError`` if the name has a row already, and for what is no row.

    >>> register_model("llama", TextModel("MyConfig", base=10_000.0))
    Traceback (most recent call last):
    ValueError: the name of this model type must be free, and 'llama' is taken; choose another name
    """
    if not isinstance(row, Row | Alias):
        raise ValueError(f"row must be a row such as phasor.configs.TextModel, got {type(row).__name__}")
    register(ROWS, "model type", name, row)


def write_config(model: ModelRotary, like: Source, part: str | None = None) -> dict[str, Any]:
    """The config ``like`` as a new dictionary that says the rotation of ``model``, in its own spelling.

    Base, scaling, rotated width, sections and declared length are changed where ``like`` states them; what it leaves to
    its class is added in its style (``rope_parameters`` where it has none). All other keys stay, in their order.
    ``like``: as ``source`` in `read_config`; it is not changed. ``part`` names the part of a composite config; without
    it ``model.part``, or the part that `read_config` chooses.

    The result is read back: ``read_config`` of it is equal to ``model``, notes and exact angles aside, which no config
    states.
    Where the family's code cannot say the model (another layout, another number of layers, one dictionary for layers
    that differ, a scheme that it has not), a ``ValueError`` says what, and the way out.

    >>> like = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
    ...         "rope_theta": 10000.0, "rope_scaling": None}
    >>> longer = read_config({**like, "rope_scaling": {"type": "linear", "factor": 4.0}})
    >>> write_config(longer, like)["rope_scaling"]
    {'rope_type': 'linear', 'factor': 4.0}
    """
    if not isinstance(model, ModelRotary):
        raise ValueError(f"model must be a ModelRotary, as read_config returns it, got {type(model).__name__}")
    tree = ConfigTree(copy.deepcopy(load(like)), ROWS)
    path = tree.choose(part if part is not None else model.part if model.part in tree.paths else None)
    old, new = read_part(tree, path).with_angles("exact"), model.with_angles("exact")
    differs, why = first_difference(old, new), ""
    if differs and path in tree.sub_models:
        follows = f"it follows the attention beside it, so write part={tree.sub_models[path]!r}"
        raise ValueError(f"part {path!r} has no keys of its own: {differs.what}; {follows}")
    if differs and len(old.layers) == len(new.layers) and new.distinct:
        try:
            _write(tree, path, old, new)
            differs = first_difference(read_config(tree.data, path).with_angles("exact"), new)
        except ValueError as error:
            why = str(error)
    if differs:
        because = f" ({why})" if why else ""
        said = f"like cannot say this model: {differs.what}{because}; {differs.out}"
        raise NotWrittenError(why or differs.what, said)
    return tree.data


def _write(tree: ConfigTree, path: str, old: ModelRotary, new: ModelRotary) -> None:
    data, around = tree.config(path), tree.part_of(path)
    row, before = tree.row(path), copy.deepcopy(data)
    write_part(row, data, dict(around.defaults) if around else {}, old, new)
    if row is not None and row.text:
        repeat_above([tree.config(each) for each in tree.repeating(path)], before, data)
