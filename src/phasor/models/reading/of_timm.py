"""A tower of transformers that is a model of timm: its config names the architecture, which is observed."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ...rotary.model_rotary import ModelRotary
from .keys import Keys
from .pictures import read_pictures
from .refusal import Reason, Refused
from .row import Unreadable


@dataclass(frozen=True)
class OfTimm(Unreadable):
    """A model type that says no more than which model of timm it wraps."""

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """As the config of that model; raises ``ValueError`` without timm, and where no architecture is named."""
        architecture = data.get("architecture")
        if not isinstance(architecture, str):
            return super().read(name, data, path)
        if find_spec("timm") is None:
            said = f"model_type {name!r} cannot be read: its architecture {architecture!r} comes from timm"
            raise Refused(f"{said}; install timm to have it observed", Reason.BEYOND, f"{path}model_type")
        keys = Keys([(path, dict(data))])
        told: dict[str, Any] = {
            key: data[key] for key in ("architecture", "model_args", "pretrained_cfg") if key in data
        }
        keys.used.update(told)
        keys.sources[f"{path}architecture"] = f"observed on a small {architecture} of timm"
        return read_pictures(told), keys
