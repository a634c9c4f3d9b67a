"""The logits of both sides, in the model that transformers builds from the config, on given tokens."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...support.errors import first_line
from ...support.transformers_log import quiet
from .losses import MARGIN, at_least, beats_a_guess, pieces
from .opening import check_json
from .permutation import PAIRS, order_of, reorder, with_pairs
from .qk_tensors import QKTensors
from .reordering import load
from .source import Source
from .stored import BLOCKS, Tensor
from .torch_types import TORCH

LONGEST = 1024  # tokens of a text that are read
PIECES = 8  # of a text, at least, each of four tokens or more: fewer show no spread


def compare_logits(
    qk: QKTensors,
    config: dict[str, Any],
    layouts: Sequence[str],
    source: Mapping[str, Tensor],
    result: Mapping[str, Tensor],
    token_ids: list[int],
) -> dict[str, Any]:
    """That the logits of both sides are equal to the bit; a sentence where transformers does not build the model.

    The tensors of each side are brought to the layout that the model reads, in memory. Raises ``ValueError`` if the
    logits differ.
    """
    tokens, logits = torch.tensor([token_ids]), []
    for tensors, word in zip((source, result), layouts, strict=True):
        try:
            logits.append(logits_of(config, native_state(qk, tensors, word), tokens))
        except ValueError as error:
            return {"compared": False, "why": str(error)}
    before, after = logits
    equal = torch.isclose(before, after, rtol=0, atol=0, equal_nan=True)
    if not equal.all():
        difference = float((before - after)[~equal].abs().max())
        raise ValueError(f"logits of both sides must be equal, got a difference of {difference:.3g}")
    wild = int((~before.isfinite()).sum())
    return {"compared": True, "token_ids": token_ids, "largest_difference": 0.0, "not_finite": wild}


def logits_of(config: dict[str, Any], state: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """``[1, n, vocab]`` of the model that transformers builds, float64; ``ValueError`` for whatever it raises."""
    try:
        with torch.no_grad():
            logits: torch.Tensor = build(config, state)(tokens).logits.double()
    except Exception as error:  # a config that its code does not take may raise anything
        raise ValueError(f"transformers does not run it: {first_line(error)}") from None
    return logits


def build(config: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    """The model with these tensors; ``ValueError`` if they are not all."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with quiet():
        made = AutoConfig.for_model(**config)
        with torch.device("meta"):
            kind = type(AutoModelForCausalLM.from_config(made, trust_remote_code=False))
        model, report = kind.from_pretrained(
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


def losses_of(source: Source, qk: QKTensors, text: str) -> dict[str, Any]:
    """The mean loss of the model on a text in each layout, the layout that it decides, and else ``why`` it does not.

    A layout is named if the model beats a uniform guess (`losses.KNOWS`) and the other layout costs more than
    `losses.MARGIN`, both in nearly all resamples of the pieces of the text. Raises ``ValueError`` if transformers
    does not run the model, if there is no tokenizer for it, and where the text is too short or the losses not finite.
    """
    tokens = tokenize(source.folder, source.config, text, special=True)
    return losses_on(source, qk, tokens[None, :LONGEST])


def losses_on(source: Source, qk: QKTensors, tokens: torch.Tensor) -> dict[str, Any]:
    """`losses_of` of tokens ``[1, n]``. The layouts are compared piece by piece, so that few tokens suffice.

    The text is read in windows of the length that the config declares: beyond it a model may know nothing.
    """
    if tokens.shape[1] <= 4 * PIECES:
        raise ValueError(f"text must have at least {4 * PIECES + 1} tokens to decide a layout, got {tokens.shape[1]}")
    tokens = _windows(tokens[0], qk.rotary.max_position or LONGEST)
    means, each = {}, []
    for word in PAIRS:
        try:
            logits = logits_of(source.config, native_state(qk, source.tensors, word), tokens)
        except ValueError as error:
            raise ValueError(f"{source.path}: {error}") from None
        guesses, words_after = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        each.append(torch.nn.functional.cross_entropy(guesses, words_after, reduction="none"))
        means[word] = float(each[-1].mean())
        if not math.isfinite(means[word]):
            raise ValueError(f"{source.path}: the losses of the text must be finite, got {means[word]} in {word}")
    halves, interleaved = (pieces(losses, PIECES) for losses in each)
    word, best, other = "halves", halves, interleaved
    if interleaved.mean() < halves.mean():
        word, best, other = "interleaved", interleaved, halves
    ahead = at_least(other - best)
    words = logits.shape[-1]
    why = ""
    if not beats_a_guess(best, words):
        why = f"the model does not beat a uniform guess, {math.log(words):.3f}: untrained, or trained on other text"
    elif not ahead > MARGIN:
        why = f"the other layout costs {float((other - best).mean()):.3f} on this text, surely only {max(ahead, 0):.3f}"
    return {"tokens": tokens.numel(), "loss": means, "ahead": ahead, "layout": "" if why else word, "why": why}


def _windows(tokens: torch.Tensor, longest: int) -> torch.Tensor:
    """``[k, L]`` of tokens ``[n]``: as many whole windows as there are, at most ``longest`` long."""
    length = min(longest, len(tokens))
    return tokens[: len(tokens) // length * length].view(-1, length)


def native_state(qk: QKTensors, tensors: Mapping[str, Tensor], word: str) -> dict[str, torch.Tensor]:
    """All tensors of one side, in the layout that the model's own code reads."""
    return relaid(qk, {name: as_torch(tensor) for name, tensor in tensors.items()}, word)


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


def as_torch(tensor: Tensor) -> torch.Tensor:
    """A whole tensor; ``ValueError`` for a dtype that torch does not have."""
    if tensor.dtype not in TORCH:
        raise ValueError(f"{tensor.dtype.removeprefix(BLOCKS)} is no dtype of torch")
    data = np.array(load(tensor).reshape(-1))
    return torch.from_numpy(data).view(TORCH[tensor.dtype]).reshape(tensor.shape)


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
