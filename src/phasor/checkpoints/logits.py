"""The logits of both sides, in the model that transformers builds from the config, on given tokens."""

from typing import Any

import numpy as np
import torch

from .permutation import in_words, order_of, reorder
from .plan import Plan
from .scores import TORCH
from .source import Source
from .stored import Tensor
from .stream import load


def compare_logits(plan: Plan, result: Source, token_ids: list[int]) -> dict[str, Any]:
    """The largest difference of the logits; a sentence where transformers does not build the model.

    The tensors of each side are brought to the layout that the model reads, in memory. Raises ``ValueError`` if the
    logits differ.
    """
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ModuleNotFoundError:
        return {"compared": False, "why": "needs transformers: pip install 'phasor[hf]'"}
    logits = []
    for tensors, word in ((plan.source.tensors, plan.layouts[0]), (result.tensors, plan.layouts[1])):
        try:
            config = AutoConfig.for_model(**plan.source.config)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
        except (ValueError, KeyError, ImportError) as error:
            return {"compared": False, "why": f"transformers does not build it: {str(error).splitlines()[0]:.200}"}
        state = native_state(plan, tensors, word)
        model = type(model).from_pretrained(None, config=config, state_dict=state).eval()
        with torch.no_grad():
            logits.append(model(torch.tensor([token_ids])).logits.double())
    difference = float((logits[0] - logits[1]).abs().max())
    if not torch.equal(logits[0].nan_to_num(), logits[1].nan_to_num()):
        raise ValueError(f"logits of both sides must be equal, got a difference of {difference:.3g}")
    return {"compared": True, "token_ids": token_ids, "largest_difference": difference}


def native_state(plan: Plan, tensors: Any, word: str) -> dict[str, torch.Tensor]:
    """All tensors of one side, in the layout that the model's own code reads."""
    state = {name: as_torch(tensor) for name, tensor in tensors.items()}
    for attention in plan.found.attentions:
        layout = attention.spec.layout
        for name in {piece.tensor for piece in attention.pieces}:
            held = [piece for piece in attention.pieces if piece.tensor == name]
            axis = held[0].axis
            order = order_of(held, state[name].shape[axis], in_words(layout, word), in_words(layout, "native"))
            state[name] = reorder(state[name], order, axis)
    return state


def as_torch(tensor: Tensor) -> torch.Tensor:
    """A whole tensor."""
    data = np.array(load(tensor).reshape(-1))
    return torch.from_numpy(data).view(TORCH[tensor.dtype]).reshape(tensor.shape)
