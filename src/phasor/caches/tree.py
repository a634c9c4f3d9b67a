"""Trees of drafts, each token given by its parent: an earlier draft, or -1 for the last token before the tree."""

from collections.abc import Sequence

import torch
from torch import Tensor


def depths(parents: Sequence[int]) -> list[int]:
    """How far each draft is behind the last token before the tree, or ``ValueError`` for what is no tree.

    >>> depths([-1, -1, 0, 2])
    [1, 1, 2, 3]
    """
    levels: list[int] = []
    for i, parent in enumerate(parents):
        if not isinstance(parent, int) or not -1 <= parent < i:
            raise ValueError(f"parents[{i}] must be an earlier draft or -1, got {parent!r}")
        levels.append(1 + (levels[parent] if parent >= 0 else 0))
    if not levels:
        raise ValueError("parents must have one entry for each draft, got none")
    return levels


def tree_mask(parents: Sequence[int], before: int, device: torch.device) -> Tensor:
    """``[drafts, before + drafts]``: all tokens before the tree, a draft's ancestors and itself."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent >= 0:  # a parent comes before its children, so its row is complete
            seen[i] |= seen[parent]
    return torch.cat((torch.ones(len(parents), before, dtype=torch.bool), seen), -1).to(device)


def is_path(path: Sequence[int], parents: Sequence[int]) -> bool:
    """Whether each entry is a draft and the parent of the next, from a child of -1.

    >>> is_path([1, 2], [-1, -1, 1]), is_path([0, 2], [-1, -1, 1])
    (True, False)
    """
    steps = zip((-1, *path), path, strict=False)
    return all(isinstance(i, int) and 0 <= i < len(parents) and parents[i] == parent for parent, i in steps)
