"""`ModelFolder`: a folder with a config and weights. All that is known of it is formed once, when it is asked for."""

import copy
import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...models.configs import ModelRotary, read_parts, tree_of
from ...models.reading.composite import ConfigTree
from ...rotary.spec import RotarySpec
from ...support.json_files import read_json
from ...support.transformers_log import quiet
from ..checkpoints.formats.safetensors_file import SafetensorsFile, read_header
from ..checkpoints.opening import plain_name
from ..checkpoints.stored import Stored
from ..patch.reading import Parts, specs_of

OTHER_WEIGHTS = (".bin", ".pth", ".pt", ".gguf")
NO_WEIGHTS = ("tok", "training_args", "optimizer", "scheduler")  # how names begin that end so as well
INDEX = "model.safetensors.index.json"
Level = dict[str, Any]


class ModelConfig:
    """A config, ``data``, with what follows from it. It is read as `phasor.read_config` reads it."""

    def __init__(self, data: Level) -> None:
        self.data = data

    @property
    def levels(self) -> Iterator[tuple[tuple[str, ...], Level]]:
        """Itself, and each config that it holds, with the keys that lead there.

        >>> toy = ModelConfig({"text_config": {"vision_config": {}}, "rope_parameters": {}})
        >>> [path for path, _ in toy.levels]
        [(), ('text_config',), ('text_config', 'vision_config')]
        """
        todo: list[tuple[tuple[str, ...], Level]] = [((), self.data)]
        while todo:
            path, level = todo.pop()
            yield path, level
            inside = [((*path, k), v) for k, v in level.items() if isinstance(v, dict) and k.endswith("_config")]
            todo += reversed(inside)

    @cached_property
    def tree(self) -> ConfigTree:
        return tree_of(self.data)

    @cached_property
    def parts(self) -> Parts:
        return read_parts(self.tree)

    @property
    def specs(self) -> list[RotarySpec]:
        """Every rotation that it describes, with its model's own angles."""
        return specs_of([p.with_angles("float32") for p in self.parts.values() if isinstance(p, ModelRotary)])

    @cached_property
    def model(self) -> nn.Module:
        """Its model, without weights, on the meta device; ``ValueError`` if transformers has none."""
        return built(self.data)


class ModelFolder:
    """A folder with a config.json, or that file alone; ``ValueError`` for a path that names neither.

    ``path`` is what was named, ``folder`` the folder and ``file`` its config.json.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder, self.file = (path, path / "config.json") if path.is_dir() else (path.parent, path)
        if not self.file.is_file():
            raise ValueError(f"{path}: must be a folder with a config.json, or that file")
        if self.file.suffix != ".json" or self.file.name == INDEX:
            raise ValueError(
                f"{path}: must be a folder with a config.json, or that file; name the folder, {str(self.folder)!r}"
            )

    @cached_property
    def config(self) -> ModelConfig:
        return ModelConfig(read_json(self.file))

    @cached_property
    def files(self) -> list[SafetensorsFile]:
        """The headers of its safetensors files; none where the config alone was named."""
        return [read_header(path) for path in sorted(self.folder.glob("*.safetensors"))] if self.path.is_dir() else []

    @cached_property
    def tensors(self) -> Mapping[str, Stored]:
        """All tensors by name, where they lie."""
        return {name: stored for file in self.files for name, stored in file.tensors.items()}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    @cached_property
    def has_weights(self) -> bool:
        """Whether there are weights beside the config, of any format, or an index of them."""
        return self.path.is_dir() and any(
            p.suffix == ".safetensors" or _other_weights(p) or p.name == INDEX for p in self.path.iterdir()
        )

    @cached_property
    def weight_files(self) -> list[Path]:
        """Its safetensors files; ``ValueError`` if there are none, or fewer than its index names."""
        files, index = sorted(self.folder.glob("*.safetensors")), self.folder / INDEX
        if os.path.lexists(index):
            _check_index(index, {path.name for path in files})
        if not files:
            others = sorted(p.name for p in self.folder.iterdir() if _other_weights(p))
            hint = f"; {others[0]} is no safetensors file: convert it first (phasor convert)" if others else ""
            alone = "; check its config alone with phasor doctor --meta"
            raise ValueError(f"{self.folder}: weights are missing{hint or alone}")
        return files


def _other_weights(path: Path) -> bool:
    return path.suffix in OTHER_WEIGHTS and not path.name.startswith(NO_WEIGHTS)


def _check_index(index: Path, there: set[str]) -> None:
    told = read_json(index)
    placed = told.get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise ValueError(f"{index}: weight_map must be an object of names and files, got {placed!r:.60}; fetch it anew")
    named = {plain_name(file, f"{index}: {tensor}") for tensor, file in placed.items()}
    if missing := sorted(named - there):
        raise ValueError(
            f"{index}: {len(missing)} of {len(named)} weight files are missing ({missing[0]}); "
            "fetch them, or check its config alone with phasor doctor --meta"
        )
    if not isinstance(about := told.get("metadata"), dict):  # of which transformers says what it is not, and no key
        raise ValueError(f"{index}: metadata must be an object, got {about!r:.60}; fetch it anew")


def built(data: dict[str, Any]) -> nn.Module:
    """The model of a config, without weights, on the meta device; ``ValueError`` if transformers has none."""
    with quiet(), warnings.catch_warnings(action="ignore"), torch.device("meta"):  # torch, of damaged sizes
        config = _read(data)
        cls = _class_of(config)
        try:
            model: nn.Module = cls(config)
        except Exception as error:
            raise ValueError(f"{cls.__name__} cannot be built from this config: {why(error, data)}") from None
    return model.eval()


def _read(data: dict[str, Any]) -> Any:
    """transformers' own config of this data. It changes what it is given."""
    import transformers

    model_type = str(data.get("model_type"))
    if model_type not in transformers.CONFIG_MAPPING:
        raise ValueError(f"transformers {transformers.__version__} does not know the model type {model_type!r}")
    quantized = data.get("quantization_config")
    if not isinstance(quantized, dict | None):  # of which transformers says what its value is not, and no key
        raise ValueError(f"quantization_config must be an object, got {quantized!r:.60}")
    for key in ("dtype", "torch_dtype"):
        if isinstance(data.get(key), bool | int | float | list):
            raise ValueError(f"{key} must be the name of a number format of torch, got {data[key]!r:.60}")
    try:
        return transformers.CONFIG_MAPPING[model_type].from_dict(copy.deepcopy(data))
    except Exception as error:
        raise ValueError(f"transformers does not read this config: {why(error, data)}") from None


def _class_of(config: Any) -> Any:
    """The class that the config names, else the one that transformers has for its type."""
    import transformers

    names = getattr(config, "architectures", None) or ()
    if not isinstance(names, list | tuple):
        raise ValueError(f"architectures must be a list of classes, got {names!r:.60}")
    for name in names:
        cls = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
            return cls
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for mapping in (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"transformers has no model for a {type(config).__name__}")


def why(error: Exception, data: dict[str, Any]) -> str:
    """What went wrong, in one line. transformers may trip over a value without naming its key: those of null are named,
    and those whose word or negative number it says.

    >>> why(TypeError("Validation error for field 'n': TypeError: Field 'n' expected int, got str (value: 'x')"), {})
    "n must be int, got 'x'"
    >>> why(TypeError("not for 'NoneType' and 'int'"), {"rope_parameters": {"rope_theta": None}})
    "not for 'NoneType' and 'int'; rope_parameters.rope_theta is null: set it, or take the key away"
    >>> why(KeyError("gelu9"), {"hidden_act": "gelu9"})
    "hidden_act must be a value that transformers knows, got 'gelu9' (KeyError: 'gelu9')"
    """
    message = " ".join(str(error).split()) or type(error).__name__
    kinds = re.findall(r"expected (\w+), got \w+ \(value: (.*?)\)", message)
    if (field := re.search(r"field '(\w+)'", message)) and kinds:
        rule = " or ".join("null" if kind == "NoneType" else kind for kind, _ in kinds)
        return f"{field[1]} must be {rule}, got {kinds[0][1]:.80}"
    for key, value in _leaves(data):
        told = isinstance(value, str) or (isinstance(value, int) and value < 0)
        if told and re.search(rf"(?<![\w.-]){re.escape(repr(value))}(?![\w.])", message):
            said = f"{type(error).__name__}: {message}"[:200]
            return f"{key} must be a value that transformers knows, got {value!r:.60} ({said})"
    empty = [
        f"{name}.{key}"
        for name, inner in data.items()
        if name.startswith("rope_") and isinstance(inner, dict)
        for key, value in inner.items()
        if value is None
    ]
    if "NoneType" in message and empty:
        message += f"; {empty[0]} is null: set it, or take the key away"
    return message[:300]


def _leaves(data: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config by their dotted keys; what a model is called is none that it could trip over."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        elif key not in ("model_type", "architectures"):
            yield f"{above}{key}", value
