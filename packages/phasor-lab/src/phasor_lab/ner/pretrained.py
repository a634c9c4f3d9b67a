"""Folders of transformers encoders. None of their code is run, and nothing is fetched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from phasor.support.transformers_log import quiet
from phasor.tools.checkpoints.opening import check_json

from ..run_folder.config import MOST_WEIGHTS, at_most
from ..run_folder.files import shown

MOST_LAYERS = 1024
TORCH_ATTENTION = (None, "eager", "sdpa", "flex_attention")  # any other name may make transformers fetch a kernel


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """One line, a ``ValueError``, for whatever a folder makes transformers raise."""
    try:
        yield
    except Exception as error:  # of any kind: what files may hold is not checked before it is used
        check_json(folder)
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if "trust_remote_code" in str(error):
            reason = (
                "it needs Python code of its own (auto_map), and no code from a folder is run; "
                "take an encoder whose model and tokenizer are part of transformers"
            )
        raise ValueError(
            f"encoder must be a folder that transformers can load, got {str(folder)!r}: {reason}"
        ) from None


def settings_of(folder: Path) -> Any:
    """The config of an encoder's directory. Raises ``ValueError`` if it is none, or names code from elsewhere."""
    from transformers import AutoConfig

    with reading(folder):
        settings = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    for part in _parts(settings):
        name = part._attn_implementation
        if name not in TORCH_ATTENTION:
            raise ValueError(
                f"encoder must compute attention with torch's own code, got {name!r} in the config of "
                f"{str(folder)!r}; remove its attn_implementation"
            )
        layers = getattr(part, "num_hidden_layers", 1)
        if not isinstance(layers, int) or layers > MOST_LAYERS:
            raise ValueError(
                f"encoder must have at most {MOST_LAYERS} layers, got {shown(layers)} in the config of {str(folder)!r}"
            )
    return settings


def _parts(settings: Any) -> Iterator[Any]:
    yield settings
    for name in settings.sub_configs:
        if (part := getattr(settings, name, None)) is not None:
            yield from _parts(part)


def make_pretrained(folder: Path) -> Any:
    """The encoder from its config alone, for weights that were saved with the model."""
    from transformers import AutoModel

    settings = settings_of(folder)
    with reading(folder):
        with torch.device("meta"):
            sketch = AutoModel.from_config(settings, trust_remote_code=False, dtype=torch.float32)
        at_most("the number of weights", sum(w.numel() for w in sketch.parameters()), MOST_WEIGHTS, "take another")
        return AutoModel.from_config(settings, trust_remote_code=False, dtype=torch.float32)


def load_pretrained(folder: Path) -> Any:
    """The weights of a transformers encoder's directory, in float32 whatever they are stored in.

    Raises ``ValueError`` if it cannot be loaded, or has weights that are infinite or no numbers, or lacks some:
    transformers would fill them with random ones. Only a pooler may be absent, which no span needs.
    """
    from transformers import AutoModel

    settings = settings_of(folder)
    with quiet(), reading(folder):
        model, report = AutoModel.from_pretrained(
            folder, config=settings, local_files_only=True, trust_remote_code=False, dtype=torch.float32,
            output_loading_info=True,
        )  # fmt: skip
    if missing := sorted(name for name in report["missing_keys"] if "pooler" not in name):
        raise ValueError(
            f"encoder must be a folder with all weights of its {type(model).__name__}, "
            f"got {str(folder)!r} without {len(missing)} of them, {missing[0]} first"
        )
    if wild := [name for name, weight in model.named_parameters() if not weight.isfinite().all()]:
        raise ValueError(f"encoder must have finite weights, got {str(folder)!r} with others in {wild[0]}; mend them")
    return model
