"""A file of text as windows of tokens, by the tokenizer beside the weights."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....support.regular_files import opened
from ...checkpoints.opening import read_at, size_of
from ...checkpoints.torch_model import tokenize

SHORTEST = 64  # tokens of a window
MOST = 24  # windows
LONGEST_FILE = 2**20  # bytes that are read: more than enough for the windows


def words_of(text: Path) -> str:
    """The first part of a file. Raises ``ValueError`` for one that is no text, or empty."""
    with opened(text) as fd:
        data = read_at(fd, 0, min(size_of(text), LONGEST_FILE), text)
    words = data.decode("utf-8", errors="replace")
    if "\0" in words or words.count("\N{REPLACEMENT CHARACTER}") > 0.01 * len(words) + 1:
        raise ValueError(f"{text}: must be text in UTF-8")
    if not words.strip():
        raise ValueError(f"{text}: is empty; name a file of text of the kind that the model was trained on")
    return words


def tokens_of(text: Path, folder: Path, config: dict[str, Any], tokenizer: Any = None) -> Tensor:
    """The tokens ``[n]`` of the first part of a file. Raises ``ValueError`` for a file that is no text."""
    words = words_of(text)
    if tokenizer is not None:
        return torch.tensor(tokenizer(words)["input_ids"]).flatten()
    return tokenize(folder, config, words, special=False)


def token_windows(tokens: Tensor, length: int, fewest: int) -> Tensor:
    """At most 24 windows ``[n, L + 1]`` spread over the tokens ``[n]``, shorter where there are few.

    >>> token_windows(torch.arange(1000), 100, 8).shape
    torch.Size([9, 101])
    """
    shortest = min(SHORTEST, length)  # of a model that reads no more
    length = min(length, len(tokens) // fewest - 1)
    if length < shortest:
        least = fewest * (shortest + 1)
        raise ValueError(f"text must have at least {least} tokens ({fewest} windows of {shortest}), got {len(tokens)}")
    count = min(MOST, len(tokens) // (length + 1))
    starts = torch.arange(count) * ((len(tokens) - length - 1) // max(1, count - 1))
    return tokens[starts[:, None] + torch.arange(length + 1)]
