"""What the ranks of a cut sequence hold together, beside the whole: numbered locally, twice, missing, out of order."""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from ..tensor_checks import described, integers
from .findings import Findings, PositionFinding, mistake

Token = tuple[int, ...]  # where one token stands, along each axis
CUT = "number the whole sequence, then cut positions and input_ids by the same positions.shard"


def check_shards(shards: Sequence[Tensor], whole: Tensor, *, k_positions: Tensor | None = None) -> Findings:
    """What is wrong with positions that were cut over several ranks; empty where nothing is.

    - ``shards``: the positions that each rank holds, in the order of the ranks, ``[S]``, ``[B, S]`` or
      ``[axes, B, S]``.
    - ``whole``: those of the whole sequence as one process has them, ``[L]``, ``[B, L]`` or ``[axes, B, L]``. Packed
      documents may repeat positions: how often each stands there is compared.
    - ``k_positions``: those that a mask or a rotation takes for the gathered keys, which lie in the order of the ranks
      unless `gather` has undone it.

    The causes: "shard numbered locally" (a rank that counts from its own 0), "tokens twice" (shards that overlap),
    "tokens missing", "keys in another order". Finding's row is that of the batch, its token the column in the shard or
    among the keys; the reason names the rank. The order of a rank's tokens is free. Nothing is changed or kept. Raises
    ``ValueError`` for tensors of other forms.

    Two ranks, of which the second counts from 0:

    >>> import torch
    >>> report = check_shards([torch.tensor([0, 1]), torch.tensor([0, 1])], torch.arange(4))
    >>> report.causes, report[0].reason
    (('shard numbered locally',), 'rank 1 stands at 0 to 1, and 2 to 3 are missing')
    >>> check_shards([torch.tensor([0, 3]), torch.tensor([1, 2])], torch.arange(4)).causes
    ()
    """
    if not isinstance(shards, Sequence) or not shards:
        raise ValueError(f"shards must be a list of tensors, one of each rank, got {type(shards).__name__}")
    expected = _rows("whole", whole)
    parts = [_rows(f"shards[{rank}]", part) for rank, part in enumerate(shards)]
    for rank, part in enumerate(parts):
        if len(part) != len(expected) or (part[0] and len(part[0][0]) != len(expected[0][0])):
            raise ValueError(
                f"shards[{rank}] must have the rows and axes of whole, {described(whole)}, got "
                f"{described(shards[rank])}"
            )
    findings: list[PositionFinding] = []
    for row, tokens in enumerate(expected):
        findings += _of_row(row, [part[row] for part in parts], tokens)
    if not findings and k_positions is not None:
        for row, keys in enumerate(_rows("k_positions", k_positions)):
            findings += _of_keys(row, keys, [token for part in parts for token in part[row]])
    return Findings(findings)


def _of_row(row: int, parts: list[list[Token]], whole: list[Token]) -> list[PositionFinding]:
    wanted, present = Counter(whole), Counter(token for part in parts for token in part)
    more, missing = present - wanted, wanted - present
    lost = _span(missing)
    local = [
        rank
        for rank, part in enumerate(parts)
        if rank and missing and part == whole[: len(part)] and any(token in more for token in part)
    ]
    if local:
        why = "rank {} stands at {}, and {} are missing"
        return [
            mistake(row, 0, "shard numbered locally", why.format(rank, _span(Counter(parts[rank])), lost), CUT)
            for rank in local
        ]
    mistakes = []
    if more:
        token = next(iter(more))
        ranks = [rank for rank, part in enumerate(parts) if token in part]
        column = len(parts[ranks[-1]]) - 1 - parts[ranks[-1]][::-1].index(token)
        where = f"ranks {', '.join(map(str, ranks))} hold" if len(ranks) > 1 else f"rank {ranks[0]} holds"
        times = f"{present[token]} times where the whole has it {wanted[token]} times"
        mistakes.append(mistake(row, column, "tokens twice", f"{where} position {_said(token)} {times}", CUT))
    if missing:
        mistakes.append(mistake(row, None, "tokens missing", f"no rank holds position {lost}", CUT))
    return mistakes


def _of_keys(row: int, keys: list[Token], gathered: list[Token]) -> list[PositionFinding]:
    if keys == gathered:
        return []
    if Counter(keys) != Counter(gathered):
        raise ValueError(f"k_positions must be those of all ranks' tokens, got others in row {row}")
    column = next(i for i, (key, token) in enumerate(zip(keys, gathered, strict=True)) if key != token)
    why = f"the key stands at {_said(gathered[column])}, and {_said(keys[column])} is taken for it"
    way = "gather positions as keys are gathered, or undo the order of both by positions.gather"
    return [mistake(row, column, "keys in another order", why, way)]


def _rows(name: str, x: Tensor) -> list[list[Token]]:
    """The tokens of each row."""
    if not isinstance(x, Tensor) or not 1 <= x.ndim <= 3 or x.is_meta or not x.numel():
        raise ValueError(f"{name} must be positions [S], [B, S] or [axes, B, S] with values, got {described(x)}")
    planes = integers(name, x.detach().cpu(), x.ndim)
    planes = planes.reshape(*(1,) * (3 - x.ndim), *planes.shape)
    return [[tuple(token) for token in row] for row in planes.permute(1, 2, 0).tolist()]


def _span(tokens: "Counter[Token]") -> str:
    """``2 to 3``: the least and the greatest of them."""
    least, most = min(tokens, default=()), max(tokens, default=())
    return _said(least) if least == most else f"{_said(least)} to {_said(most)}"


def _said(token: Token) -> str:
    return str(token[0]) if len(token) == 1 else str(token)
