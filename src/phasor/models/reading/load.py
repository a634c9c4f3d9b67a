"""A config as a dictionary, from a file, a folder, a dictionary or a transformers config."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...support.json_files import read_json
from ...support.regular_files import other_kind
from .keys import ROPE_WORDS

MAX_DEPTH = 100
PIPELINE, TRANSFORMER = "model_index.json", "transformer"  # of diffusers, and what rotates in it
ALONE = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin")  # checkpoints in one file
MODEL_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(?<!\.json)")  # as the hub names models: org/name


@contextmanager
def in_file(source: Any) -> Iterator[None]:
    """Errors about a config that was read from a file begin with the path, that it has no rotation too."""
    try:
        yield
    except ValueError as error:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
            file = path / "config.json" if path.is_dir() else path
            # it may be about another file of the folder
            if str(file) not in str(error) and not str(error).startswith(f"{file.parent}{os.sep}"):
                error.args = (f"{file}: {error}",)
        raise


def load(source: Any) -> dict[str, Any]:
    """The config as a dictionary whose numbers and nesting are sane; the source itself is not changed."""
    data = source
    if isinstance(source, str | os.PathLike):
        data = _load_file(Path(source))
    elif callable(getattr(source, "to_dict", None)) and not isinstance(source, type | dict):
        data = source.to_dict()
    if not isinstance(data, dict):
        raise ValueError(
            "source must be the path of a config.json, a folder that holds one, a dictionary, or a transformers config "
            f"with to_dict(), got {type(source).__name__}"
        )
    _check(data)
    return data


def _load_file(path: Path) -> dict[str, Any]:
    try:
        if not path.exists() and MODEL_ID.fullmatch(str(path)):
            path = _from_hub_cache(str(path))
        file = path / "config.json" if path.is_dir() else path
        if not file.exists() and (path / PIPELINE).is_file():
            file = path / TRANSFORMER / "config.json"
        if not file.is_file():
            why = _without_config(path) if path.is_dir() else "there is no such file"
            if file.exists():
                why = f"{file.name} must be a regular file, and is {other_kind(file.stat().st_mode)}"
            raise ValueError(f"source must be a config.json or a folder that holds one, got {str(path)!r}: {why}")
        if file.suffix in ALONE:
            raise ValueError(
                f"source must be a config.json, got the weights {str(path)!r}, which do not say how the model rotates; "
                "name the config.json or the folder of their model"
            )
        return read_json(file)
    except OSError as error:
        raise ValueError(f"source {str(path)!r} cannot be read: {error}") from None


def _without_config(folder: Path) -> str:
    """What is missing; of a pipeline, which of its parts are there."""
    if not (folder / PIPELINE).is_file():
        return "the folder has no config.json"
    parts = sorted(file.parent.name for file in folder.glob("*/config.json"))
    here = f"it has {', '.join(parts)}: name the folder of one" if parts else "it has no part with a config.json"
    return f"the pipeline in it has no transformer, which rotates; {here}"


def _from_hub_cache(name: str) -> Path:
    """The config of a model by its name on the hub, if it was fetched before; nothing is fetched here."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ModuleNotFoundError:
        file = None
    else:
        file = try_to_load_from_cache(name, "config.json")
    if not isinstance(file, str):
        no_file = "is no file, and the hub's cache on this machine has no config.json of that name"
        raise ValueError(f"source {name!r} {no_file}; fetch it with: hf download {name} config.json")
    return Path(file)


def _check(config: dict[str, Any]) -> None:
    """Raise ``ValueError`` for NaN and Infinity, numbers beyond float64, endless nesting, keys that are no words."""
    todo: list[tuple[str, Any, int]] = [("", config, 0)]
    while todo:
        path, value, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"{path[:60]}… is nested more than {MAX_DEPTH} deep; a config is not")
        if isinstance(value, float) and not math.isfinite(value) and ROPE_WORDS.search(path):
            raise ValueError(f"{path} must be a finite number, got {value!r}")
        if isinstance(value, int) and abs(value) > 10**300:
            raise ValueError(f"{path} must be a number of ordinary size, got one of {value.bit_length()} bits")
        if isinstance(value, list | tuple):
            todo += [(f"{path}[{i}]", inner, depth + 1) for i, inner in enumerate(value)]
        for key, inner in value.items() if isinstance(value, dict) else ():
            if isinstance(key, str):  # `Keys` refuses others where they are read; id2label is not
                shown = key if key.isprintable() else repr(key)  # an error may say it
                todo.append((f"{path}.{shown}" if path else shown, inner, depth + 1))
            elif not path:
                raise ValueError(f"config keys must be words, got {key!r}")
