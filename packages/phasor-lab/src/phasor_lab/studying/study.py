"""`study`: which pairs a model uses, and what its heads look at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phasor.support.checks import whole
from phasor.tools.doctor.loading import load
from phasor.tools.doctor.text.tokens import tokens_of

from ..running.model import RunningModel
from ..running.windows import ShortText, read_folder, windows_of
from .heads import head_uses
from .pairs import pair_uses
from .result import Study
from .rotated_back import check_route
from .trained import trained_length

LENGTH = 2048  # tokens of a window, where neither the user nor the config says less
WINDOWS = 24  # for losses
OBSERVED = 8  # windows for what the heads do, at most
WEIGHTS = 2**23  # attention weights of one head in these windows


def study(
    model: nn.Module,
    tokens: Tensor,
    *,
    length: int | None = None,
    tell: Callable[[int, int], None] = lambda done, most: None,
) -> Study:
    """Which pairs of its rotation a causal transformers model uses, on a text of its kind, ``tokens`` ``[n]``.

    Three measurements, two of them on windows of ``length`` tokens (by default the declared length, at most `LENGTH`):

    1. the loss of the same tokens with more and more context: the length that the weights were trained for
       (`TrainedLength`);
    2. every pair of every rotation is stopped, then slowed, in the whole model (`PairUse`);
    3. every head is described by its attention weights and scores (`HeadUse`).

    ``tell`` is called with the pairs done, and how many there are. The model stays as it is.
    Raises ``ValueError`` for a text that is too short, a model whose frequencies cannot be replaced (`RunningModel`),
    and one whose q and k, rotated back, do not give the loss of the model without rotation.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, max_position_embeddings=16)).eval()
    >>> uses = study(model, torch.randint(50, (100,)))
    >>> [round(wave) for wave in uses.rotations[0].wavelengths], len(uses.heads)
    ([6, 63, 628, 6283], 1)
    """
    if length is not None:
        whole("length", length)
    running = RunningModel(model)
    declared = running.rotary.max_position
    length = min(declared or LENGTH, LENGTH) if length is None else length
    _check_tokens(tokens, length, running)
    rows = windows_of("tokens", tokens, length, WINDOWS)
    _check_causal(running, rows[0])
    own = running.own(length)
    some = rows[: max(1, min(OBSERVED, WEIGHTS // length**2))]
    heads = head_uses(running, some, own)
    check_route(running, some, own)
    done, most = 0, sum(map(len, own))

    def step() -> None:
        nonlocal done
        done += 1
        tell(done, most)

    with running.with_frequencies(own, running.factors(length)):
        trained = trained_length(running, tokens)
        loss = running.loss(rows)
    pairs = pair_uses(running, rows, loss, step)
    return Study(loss, length, declared, trained, pairs, heads)


def study_folder(folder: str | Path, text: str | Path, **options: Any) -> Study:
    """`study` of a folder with a transformers model and its tokenizer, on a file of text."""
    folder = Path(folder)
    tokens = tokens_of(Path(text), folder, read_folder(folder))
    try:
        return study(load(folder), tokens, **options)
    except ShortText as error:
        raise ValueError(f"{text}: {error}") from None


def _check_tokens(tokens: Tensor, length: int, running: RunningModel) -> None:
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.is_floating_point():
        raise ValueError(f"tokens must be whole numbers [n], got {_in_words(tokens)}; join several texts to one")
    if len(tokens) <= 2 * length:
        raise ShortText(
            f"tokens must be at least {2 * length + 1} for two windows of {length}, got {len(tokens)}; give more text, "
            "or a shorter length"
        )
    if int(tokens.max()) >= running.vocabulary:
        raise ValueError(
            f"tokens must be below the vocabulary of the model, {running.vocabulary}, got {int(tokens.max())}; take "
            "those of its own tokenizer"
        )


def _in_words(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


@torch.no_grad()
def _check_causal(running: RunningModel, row: Tensor) -> None:
    """The loss is that of the next token, so no token may see a later one."""
    rows = torch.stack([row, row])[:, :-1]
    rows[1, -1] = (rows[1, -1] + 1) % running.vocabulary
    one, other = running.logits(rows.to(running.device))[:, :-1]
    if not torch.allclose(one, other, atol=1e-3, rtol=1e-3, equal_nan=True):
        raise ValueError(
            f"model must predict the next token, and in {type(running.model).__name__} a token sees later ones; give a "
            "causal model"
        )
