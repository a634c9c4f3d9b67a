"""The forms in which other libraries hold cos and sin, the one value per pair inside each, and what tables must be."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ..support.checks import one_of
from ..support.tracing import readable
from .layout import Layout

Form = Literal["half", "doubled", "repeated", "joined"]

ROUNDINGS = 4  # steps of the number format by which two columns of one angle may differ


def per_pair(name: str, table: Tensor, form: Form, blocks: int = 1, sure: bool = False) -> Tensor:
    """``[..., P]`` of a table in one of three forms, as a view (a copy for ``blocks`` > 1).

    ``"half"`` has one column per pair, ``"doubled"`` and ``"repeated"`` one per channel, in the order of halves (inside
    each of ``blocks``) and of interleaved pairs. The values never choose a form; where they contradict the one that is
    stated, it raises ``ValueError``. ``sure``: half tables may look doubled, as they do where two axes agree.

    >>> per_pair("cos", torch.tensor([[0.6, 0.8, 0.6, 0.8]]), "doubled")
    tensor([[0.6000, 0.8000]])
    """
    one_of("form", form, get_args(Form))
    if not isinstance(table, Tensor) or not table.is_floating_point() or table.ndim < 2:
        got = f"{table.dtype} {list(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
        raise ValueError(f"{name} must be a floating-point tensor [..., seq, columns], got {got}")
    if form == "half":
        if not sure:
            _refuse_twice(name, table)
        return table
    if table.shape[-1] % 2:
        raise ValueError(f"{name} must have two columns per pair in form={form!r}, got {table.shape[-1]}")
    first, second = _columns(table, form == "repeated", blocks).split(table)
    if readable(table) and not _equal(first.detach(), second.detach()):
        where = "columns 2i and 2i + 1" if form == "repeated" else "both halves" if blocks == 1 else "halves of blocks"
        raise ValueError(
            f"{name} must have the same values in {where} for form={form!r}, and has not; 'half' has one column per "
            "pair, 'doubled' is [c, c], 'repeated' is [c0, c0, c1, c1], 'joined' is [cos | sin]"
        )
    return first


def check_table(name: str, table: Tensor, pairs: int, per_head: bool) -> None:
    """``ValueError`` unless the table is ``[(B,) (H,) S, P]`` of real numbers, with one column per pair."""
    if not isinstance(table, Tensor) or not table.is_floating_point():
        got = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {got}")
    shape = table.shape
    if len(shape) not in ((3, 4) if per_head else (2, 3)):
        order = "[(batch,) heads, seq, pairs] with per_head" if per_head else "[(batch,) seq, pairs]"
        raise ValueError(f"{name} must be {order}, got shape {tuple(shape)}")
    if shape[-1] != pairs:
        raise ValueError(
            f"{name} must have one column for each of the layout's {pairs} pairs (rotary_dim / 2), got {shape[-1]}; "
            "tables of other forms: Rotation.from_tables(cos, sin, form=...)"
        )


def check_like_cos(name: str, table: Tensor, cos: Tensor) -> None:
    """``ValueError`` unless the table has the shape, dtype and device of cos."""
    if not isinstance(table, Tensor) or (table.shape, table.dtype, table.device) != (cos.shape, cos.dtype, cos.device):
        got = f"{table.dtype} {tuple(table.shape)} on {table.device}" if isinstance(table, Tensor) else repr(table)
        raise ValueError(
            f"{name} must have the shape, dtype and device of cos, {cos.dtype} {tuple(cos.shape)} on {cos.device}, "
            f"got {got}"
        )


def check_magnitude(cos: Tensor, sin: Tensor, magnitude: float) -> None:
    """``ValueError`` unless ``cos ** 2 + sin ** 2`` is the square of the magnitude everywhere."""
    if cos.shape != sin.shape or not (readable(cos) and readable(sin)):
        return
    norm = torch.hypot(cos.detach().float(), sin.detach().float())
    tolerance = 2**-8 * magnitude  # what bfloat16 leaves of a length, the coarsest format that tables come in
    if bool(((norm - magnitude).abs() > tolerance).any()):
        low, high = (float(v) for v in norm.aminmax())
        raise ValueError(
            f"cos and sin must have cos ** 2 + sin ** 2 = magnitude ** 2 in every column for magnitude={magnitude:g}, "
            f"got lengths from {low:.7g} to {high:.7g}: say magnitude= if they carry one factor, or another form"
        )


def _columns(table: Tensor, interleaved: bool, blocks: int = 1) -> Layout:
    return Layout(head_dim=table.shape[-1], interleaved=interleaved, blocks=blocks)


def _equal(first: Tensor, second: Tensor) -> bool:
    steps = torch.finfo(first.dtype).eps * first.abs().clamp(min=1.0)
    return bool(((first - second).abs() <= ROUNDINGS * steps).all())


def _refuse_twice(name: str, table: Tensor) -> None:
    """A half table in which every value stands twice is, most likely, one of the two other forms."""
    if table.shape[-1] % 2 or not readable(table) or not bool((table != table.flatten()[:1]).any()):
        return  # at position 0 all columns are alike
    for form in ("doubled", "repeated"):
        if torch.equal(*_columns(table, form == "repeated").split(table)):
            raise ValueError(
                f"{name} must have one column per pair in form='half', and its {table.shape[-1]} columns hold every "
                f"value twice: say form={form!r}, or rotary_dim={2 * table.shape[-1]} if there are so many pairs"
            )
