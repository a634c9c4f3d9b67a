"""Tables of a batch whose rows are sequences of different lengths, each in the regime of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..support.checks import whole
from .spec import RotarySpec
from .tables import Phases, check_positions


def row_lengths(seq_len: Sequence[int] | Tensor, rows: int) -> list[int]:
    """One length for each row, or ``ValueError``. Those of a tensor are read, which waits for its device.

    >>> row_lengths(torch.tensor([40, 200]), 2)
    [40, 200]
    """
    lengths = seq_len.tolist() if isinstance(seq_len, Tensor) and not seq_len.is_floating_point() else seq_len
    if not isinstance(lengths, list | tuple) or len(lengths) != rows:
        raise ValueError(f"seq_len must be an integer, or one for each of {rows} rows of the positions, got {seq_len}")
    for row, length in enumerate(lengths):
        whole(f"seq_len[{row}]", length)
    return list(lengths)


def phases_of_rows(
    spec: RotarySpec,
    positions: Tensor,
    seq_len: Sequence[int] | Tensor,
    log_scale: Tensor | None,
    dtype: torch.dtype,
) -> tuple[list[Phases], Tensor]:
    """The phases of all rows of a regime, for each regime; and which of their rows, in that order, is row 0, 1, …"""
    if not isinstance(seq_len, Sequence | Tensor):
        raise ValueError(f"seq_len must be an integer, or one for each row, got {seq_len!r}; name dtype= by its name")
    at = check_positions(positions, spec)
    if at[0].ndim != 2:
        shape = tuple(positions.shape)
        raise ValueError(f"positions must have a batch axis if seq_len has a value for each row, got shape {shape}")
    lengths = row_lengths(seq_len, at[0].shape[0])
    if spec.scaling is not None and spec.length_dependent:
        lengths = [spec.scaling.regime(length) for length in lengths]
    if len(factors := {spec.attention_factor(length) for length in lengths}) > 1:
        raise ValueError(
            f"seq_len must give all rows the same attention factor, because a rotation has only one, got "
            f"{sorted(factors)} for lengths {lengths}; rotate the rows of each factor in a call of their own"
        )
    groups = {length: [i for i, own in enumerate(lengths) if own == length] for length in lengths}
    order = torch.tensor([row for rows in groups.values() for row in rows], device=positions.device)
    formed = [Phases(spec, positions[..., rows, :], length, log_scale, dtype) for length, rows in groups.items()]
    return formed, order.argsort()
