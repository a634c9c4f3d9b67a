"""Which keys the configs of the installed transformers know, read from its source and from its classes.

They are kept in ``words.json``: to collect them, all of its classes and files are looked at, which takes half a minute.
In ``tests/configs``: ``python vocabulary.py`` writes it.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from confused import ROTARY
from transformers import PreTrainedConfig

from conformance.theirs import code_of

# Names about rotation, sizes, layers and positions: generous.
WORDS = re.compile(
    r"(?<!p)rope|rotary|rotate|theta|yarn|ntk|alibi|nope|mscale|base_freq|freq|(?<!de)pos(ition|_|$)|position"
    r"|long_factor|short_factor|factor|beta|truncate|section|partial|interleav"
    r"|head|hidden_size|n_embd|d_model|embed_dim|^dim$|kv_channels|width"
    r"|n_layer|num_layer|hidden_layers|layer_type|^depth$|_layers$|layer_idx|layer_interval|layers_block|pattern"
    r"|sliding|window|attn_type|attention_type|temperature|attn_scale|patch|image_size|spatial_merge|temporal",
    re.IGNORECASE,
)
GENERIC = ("convert_rope_params_to_dict", "standardize_rope_params")
OWN_OF_ALL = {f.name for f in dataclasses.fields(PreTrainedConfig)}


def declared(cls: type) -> list[str]:
    """The fields of a config class and of its bases, without those that every config has."""
    return [f.name for f in dataclasses.fields(cls) if f.name not in OWN_OF_ALL and WORDS.search(f.name)]


def taken(cls: type) -> list[str]:
    """Names that a config class takes out of the keys that are no fields: kwargs.pop("x"), .get("x"), kwargs["x"]."""
    found: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, PreTrainedConfig) or base is PreTrainedConfig:
            continue
        tree = _tree(base)
        for node in ast.walk(tree):
            found |= dict.fromkeys(_from_kwargs(node))
    names = [n for n in found if WORDS.search(n)]
    if hasattr(cls, "rope_parameters") and not _overridden(cls, "convert_rope_params_to_dict"):
        names += ["rope_scaling", "rope_theta", "partial_rotary_factor"]
    return list(dict.fromkeys(names))


def _overridden(cls: type, name: str) -> bool:
    return any(
        name in vars(base) for base in cls.__mro__ if base is not PreTrainedConfig and "models" in base.__module__
    )


def _from_kwargs(node: ast.AST) -> list[str]:
    """The names in kwargs.pop("x"), kwargs.get("x"), kwargs["x"], "x" in kwargs, and those of a method's parameters."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        owner, what = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id == "kwargs" and what in ("pop", "get", "setdefault"):
            return [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "kwargs":
        return [node.slice.value] if isinstance(node.slice, ast.Constant) else []
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
        return [node.left.value for c in node.comparators if isinstance(c, ast.Name) and c.id == "kwargs"]
    if isinstance(node, ast.FunctionDef) and node.name in ("__post_init__", "__init__", *GENERIC):
        return [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
    return []


@cache
def _tree(cls: type) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


@cache
def read_by_code(config_name: str, config_module: str) -> tuple[str, ...]:
    """Names that the modeling files of a config ask it for: config.name, self.config.name, getattr(config, "name")."""
    files = {m.__module__ for m in code_of(config_name)[0]} | {f.__module__ for f in code_of(config_name)[1]}
    files.add(config_module.replace("configuration_", "modeling_"))
    found: dict[str, None] = {}
    for name in sorted(files):
        try:
            tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        except (ImportError, OSError):
            continue
        for node in ast.walk(tree):
            found |= dict.fromkeys(_from_config(node))
    return tuple(n for n in found if WORDS.search(n))


def _is_config(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return "config" in name


def _from_config(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute) and _is_config(node.value):
        return [node.attr]
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")):
        return []
    asked = len(node.args) > 1 and _is_config(node.args[0]) and isinstance(node.args[1], ast.Constant)
    return [node.args[1].value] if asked else []


@cache
def config_classes() -> tuple[type[Any], ...]:
    """All config classes of all model types."""
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    found: dict[type, None] = {}
    for name in mapping:
        cls = mapping[name]
        found[cls] = None
        module = importlib.import_module(cls.__module__)
        for one in vars(module).values():
            if inspect.isclass(one) and issubclass(one, PreTrainedConfig) and one is not PreTrainedConfig:
                found[one] = None
    return tuple(found)


@cache
def words_of_all() -> tuple[str, ...]:
    """Every name of every config class that is about rotation, sizes, layers or positions."""
    found: dict[str, None] = {}
    for cls in config_classes():
        attributes = getattr(cls, "attribute_map", {})
        names = (*declared(cls), *taken(cls), *attributes, *attributes.values())
        found |= dict.fromkeys(n for n in names if WORDS.search(n))
    return tuple(sorted(found))


def _of_class(cls: type) -> list[str]:
    """The keys that a config class declares or takes, and that its model's code reads."""
    names = {*declared(cls), *taken(cls), *read_by_code(cls.__name__, cls.__module__)}
    return sorted(names | {"rope_theta", "head_dim", "partial_rotary_factor"})


def collected() -> dict[str, Any]:
    """The words about rotation of all classes, and the keys of the class of each model type."""
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    of_all = [word for word in words_of_all() if ROTARY.search(word)]
    return {"of_all": of_all, "of_class": {name: _of_class(mapping[name]) for name in sorted(mapping)}}


KEPT = Path(__file__).with_name("words.json")


@cache
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    text = json.dumps(collected())  # a class in a line, so that a diff shows which one has changed
    KEPT.write_text(text.replace("{", "{\n").replace("], ", "],\n").replace("}}", "\n}}\n"), encoding="utf-8")
