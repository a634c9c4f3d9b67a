"""Text to judge on must be other text than the one to fit on."""

import torch
from torch import Tensor

COMMON = 64  # tokens in a row, of which two texts may share
SHARED = 0.02  # of one of them: a heading or a formula
FACTOR = 6364136223846793005  # of the hash of a piece (Knuth's MMIX generator), modulo 2**64


def check_apart(tokens: Tensor, judged: Tensor) -> None:
    """Raise ``ValueError`` where more than `SHARED` of the pieces of windows ``judged`` ``[n, L + 1]`` stand in
    ``tokens`` ``[m]``: a loss on what was searched on shows nothing.

    Pieces are `COMMON` tokens in a row, or half a window where that is shorter.
    """
    step = min(COMMON, judged.shape[1] // 2)
    pieces = _pieces(judged, step)[:, ::step].flatten()
    both = int(torch.isin(pieces, _pieces(tokens[None], step)).sum())
    if both > SHARED * len(pieces):
        raise ValueError(
            f"holdout must be other text than the one to fit on, and {both} of {len(pieces)} pieces of {step} tokens "
            "stand in both"
        )


def _pieces(rows: Tensor, step: int) -> Tensor:
    """A hash of 64 bits of every ``step`` tokens in a row."""
    count = rows.shape[1] - step + 1
    hashes = torch.zeros(rows.shape[0], max(count, 0), dtype=torch.int64, device=rows.device)
    for i in range(step):
        hashes = hashes * FACTOR + rows[:, i : i + count] + 1
    return hashes
