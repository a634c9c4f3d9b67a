"""transformers' own rotary modules for a config.json: frequencies, and factors on cos and sin."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from conformance.theirs import modules_for


def rotations(data: dict[str, Any]) -> list[tuple[torch.Tensor, float]]:
    """What every rotary module of the text model holds, for each kind of layer."""
    from transformers import AutoConfig

    data = {key: value for key, value in data.items() if key != "auto_map"}  # code of others is not run
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        (Path(folder) / "config.json").write_text(json.dumps(data))
        warnings.simplefilter("ignore")
        config = AutoConfig.from_pretrained(folder).get_text_config()
    found = []
    for module in modules_for(config):
        for name, held in module.named_buffers():
            if name.endswith("inv_freq") and "original" not in name:
                found.append((held, float(getattr(module, name.replace("inv_freq", "attention_scaling"), 1.0))))
    return found
