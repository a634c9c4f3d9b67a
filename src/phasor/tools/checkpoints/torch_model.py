"""The model that transformers builds of a config and tensors, and the tokens of a text by its tokenizer."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...support.errors import first_line
from ...support.transformers_log import quiet
from .opening import check_json
from .permutation import order_of, reorder, with_pairs
from .qk_tensors import QKTensors


def build(config: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    """The model with these tensors; ``ValueError`` if they are not all."""
    from transformers import AutoConfig

    causal = importlib.import_module("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING
    with quiet():
        made = AutoConfig.for_model(**config)
        if type(made) not in causal:
            raise ValueError(f"transformers has no language model for a {type(made).__name__}")
        model, report = causal[type(made)].from_pretrained(
            None,
            config=made,
            state_dict=state,
            output_loading_info=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    if missing := sorted(report["missing_keys"]):  # it would make them up
        raise ValueError(f"{missing[0]} is missing")
    return model.eval()


def relaid(qk: QKTensors, state: Mapping[str, torch.Tensor], word: str) -> dict[str, torch.Tensor]:
    """Tensors whose pairs lie as ``word`` says, in the layout that the model's own code reads; what stays is shared."""
    changed = dict(state)
    for attention in qk.attentions:
        layouts = with_pairs(attention.spec.layout, word), with_pairs(attention.spec.layout, "native")
        for name in {piece.tensor for piece in attention.pieces if layouts[0] != layouts[1]}:
            held = [piece for piece in attention.pieces if piece.tensor == name]
            axis = held[0].axis
            changed[name] = reorder(changed[name], order_of(held, changed[name].shape[axis], *layouts), axis)
    return changed


def tokenize(folder: Path, config: dict[str, Any], text: str, *, special: bool) -> torch.Tensor:
    """The tokens ``[n]`` by the tokenizer in the folder; by bytes for a model of 256 tokens that has none.

    ``special``: with the tokens that the tokenizer puts around a text. No code of the folder is run. Raises
    ``ValueError`` if there is no tokenizer that works.
    """
    if config.get("vocab_size") == 256 and not (folder / "tokenizer.json").exists():
        return torch.tensor(list(text.encode()), dtype=torch.int64)
    try:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        return torch.tensor(tokenizer(text, add_special_tokens=special)["input_ids"], dtype=torch.int64)
    except Exception as error:  # a file that is damaged may raise anything
        check_json(folder)
        raise ValueError(
            f"{folder}: has no tokenizer that works ({first_line(error)}); put tokenizer.json there"
        ) from None
