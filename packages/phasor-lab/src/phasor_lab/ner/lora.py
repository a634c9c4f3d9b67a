"""Low-rank updates of a pretrained encoder, by peft; what is saved are whole weights, as without them."""

import copy
import warnings
from importlib.util import find_spec
from typing import Any

from .encoders import Pretrained
from .model import SpanModel


def add_lora(model: SpanModel, rank: int) -> None:
    """Freeze the encoder's weights and train ``B A`` of ``rank`` beside each linear map of it, scaled by 2.

    In place. Raises ``ValueError`` for an encoder from scratch, or without peft. Source: Hu et al. 2021,
    arXiv:2106.09685.
    """
    if not isinstance(model.encoder, Pretrained):
        raise ValueError(f"lora is for a pretrained encoder, got lora={rank} and {model.config.encoder}, from scratch")
    if find_spec("peft") is None:
        raise ValueError(f"lora={rank} needs peft; install it with: pip install 'phasor-lab[lora]'")
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    encoder: Any = model.encoder.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers about what peft calls
        model.encoder.model = get_peft_model(encoder, settings)


def merged(model: SpanModel) -> SpanModel:
    """A copy whose encoder has the sum of its weights and their updates, as the class it was before.

    The model itself, if nothing was added to it.
    """
    encoder: Any = getattr(model.encoder, "model", None)
    if not hasattr(encoder, "merge_and_unload"):
        return model
    whole = copy.deepcopy(model)
    whole.encoder.model = whole.encoder.model.merge_and_unload()  # type: ignore[union-attr, operator]
    return whole
