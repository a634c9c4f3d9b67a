"""`read_tower`: the tower of a part of a config by its name, and the encoding of its layers."""

from collections.abc import Mapping
from typing import Any

from ..keys import Keys, is_dict, near
from ..model import ModelRotary
from .audio import AUDIO
from .grid import Grid
from .line import Line
from .other import OTHER
from .part import Part
from .single import Single
from .vision import VISION
from .vision_single import VISION_SINGLE

Tower = Grid | Line | Single
TOWERS: dict[str, Tower] = {**VISION, **VISION_SINGLE, **AUDIO, **OTHER}
UNREADABLE_TOWERS: dict[str, str] = {
    "lightglue": "its frequencies are trained: the angles are a linear map of the two coordinates of a keypoint "
    "(posenc.projector, neighbouring channels, self-attention only); build them with Rotation.from_frequencies",
}
INNER: dict[str, dict[str, str]] = {  # model type -> further towers inside the same config: name of the part -> tower
    "vjepa2": {"predictor": "vjepa2_predictor"},
}
BY_KEY: dict[str, str] = {  # configs without a model type: the last word of their path -> tower
    "atom_encoder": "esmfold2_atom",
    "code2wav_config": "qwen3_omni_moe_code2wav",
    "protein_encoder_config": "evolla_saprot",
}
ENDINGS = ("_vision", "_vision_encoder", "_vision_model", "_vit_model", "_audio", "_audio_encoder", "_encoder")


def tower_of(data: Mapping[str, Any], path: str, parent: Mapping[str, Any]) -> str | None:
    """The name in `TOWERS` (or ``UNREADABLE_TOWERS``) of a config at a dotted ``path`` inside ``parent``; or None.

    A config that calls itself by its model (``"qwen3_vl"``), or by nothing, is told by the key it stands under.

    >>> tower_of({"model_type": "qwen3_vl"}, "vision_config", {})
    'qwen3_vl_vision'
    >>> tower_of({}, "visual", {"model_type": "llama"}) is None
    True
    """
    stated, key = data.get("model_type"), path.rstrip(".").rpartition(".")[2]
    if isinstance(stated, str) and (stated in TOWERS or stated in UNREADABLE_TOWERS):
        return stated
    if not stated and key in BY_KEY:
        return BY_KEY[key]
    above = stated or parent.get("model_type")
    kinds = [word for word in ("vision", "audio", "encoder") if word in key]
    for ending in ENDINGS:
        if isinstance(above, str) and any(word in ending for word in kinds) and f"{above}{ending}" in TOWERS:
            return f"{above}{ending}"
    return None


def read_tower(
    name: str, data: dict[str, Any], path: str = "", parent: dict[str, Any] | None = None
) -> tuple[ModelRotary, Keys]:
    """The rotary encoding of the tower ``name`` from its config ``data``, and the keys that were used.

    ``path`` is the dotted path of ``data`` in the whole config, ``parent`` the config around it. What the config
    leaves out is the default of its class, and told in ``ModelRotary.sources``. Raises ``ValueError`` for a name that
    is not in `TOWERS`, with the reason where there is one, and for keys that contradict what the code does.

    >>> model, keys = read_tower("pixtral", {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1})
    >>> model.layers[0].head_dim, model.sources["rope_theta"]
    (16, "not in config: PixtralVisionConfig's default, base 10000")
    """
    is_dict(path or "data", data)
    prefix = f"{path.rstrip('.')}." if path else ""
    if name in UNREADABLE_TOWERS:
        raise ValueError(f"{prefix}{name} cannot be read: {UNREADABLE_TOWERS[name]}")
    if name not in TOWERS:
        raise ValueError(
            f"{name!r} is not a tower that is known{near(name, TOWERS)}; describe the encoding with RotarySpec yourself"
        )
    tower = TOWERS[name]
    if isinstance(tower, Line):
        return tower.read(name, data, prefix)
    keys = Keys([(prefix, data)], {})
    return tower.read(Part(name, tower.config, keys, prefix)), keys
