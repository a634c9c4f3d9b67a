"""What a call means, of random calls: each head of each row by itself, by its own angles; to the bit, gradients too.

All kernels have the bits of the reference, by the law of `test_law`; so it is the reference that is asked here.
"""

import itertools

import pytest
import torch

from calls import built, equal
from phasor import Rotation, apply_rotary, apply_rotary_qkv, rotate

PLAIN = {  # [..., heads, seq, head_dim], and back
    "bhsd": (lambda x: x, lambda x: x),
    "bshd": (lambda x: x.transpose(-3, -2),) * 2,
    "thd": (lambda x: x.transpose(-3, -2),) * 2,
    "sbhd": (lambda x: x.permute(1, 2, 0, 3), lambda x: x.permute(2, 0, 1, 3)),
}


def row_of(rotation, row, head):
    """The tables of one head in one row of a batch, which may share them."""

    def one(table):
        if table.ndim == 3 + rotation.per_head:
            table = table[row if len(table) > 1 else 0]
        return table[head] if rotation.per_head else table

    second = rotation.second and tuple(map(one, rotation.second))
    return rotation.replace(cos=one(rotation.cos), sin=one(rotation.sin), second=second, per_head=False)


def by_hand(x, rotation):
    """``[..., heads, seq, head_dim]``."""
    turned = [
        apply_rotary(x[at][None], row_of(rotation, (0, *at)[-2], at[-1]), kernel="reference")[0]
        for at in itertools.product(*map(range, x.shape[:-2]))
    ]
    return torch.stack(turned).view(*x.shape[:-1], -1) if turned else x


def expected(call):
    """Of each input the result, as the call would have it; None where nothing is asked for."""
    given, about = call.args, {**call.kwargs}
    order, flat = about.get("tensor_format", "bshd"), about.get("num_heads")
    if call.function is apply_rotary_qkv:
        (qkv, rotation), width = given, call.args[0].shape[-1]
        heads = qkv.flatten(-3, -2) if flat is None else qkv
        turning = 2 * qkv.shape[-2] if flat is None else (qkv.shape[-2] + flat) // 2
        turned = by_hand(heads[..., :turning, :].transpose(-3, -2), rotation).transpose(-3, -2)
        return [torch.cat((turned, heads[..., turning:, :]), -2).reshape(*qkv.shape[:-1], width)]
    if call.function is rotate:
        q, k, at, spec = given
        how = {"seq_len": about.get("seq_len"), "dtype": q.dtype}
        rotation = Rotation.at(spec, at, **how)
        other = Rotation.at(spec, about["k_positions"], **how) if "k_positions" in about else rotation
    else:
        q, *k, rotation = given
        k, other = (k or [None])[0], about.get("k_rotation", rotation)
    found = []
    for x, of in ((q, rotation), (k, other)):
        if x is not None:
            heads = x if flat is None else x.unflatten(-1, (-1, of.layout.head_dim))
            y = PLAIN[order][1](by_hand(PLAIN[order][0](heads), of))
            x = y if flat is None else y.flatten(-2)
        found.append(x)
    return found[: 1 if call.function is apply_rotary else 2]


def differentiable(found):
    return [x for x in found if x is not None and x.requires_grad]


@pytest.mark.parametrize("kind, taken", {"tables": 60, "phases": 60, "packed": 50}.items())
def test_a_call_turns_each_head_of_each_row(kind, taken):
    for number in range(80):
        call = built(f"meaning {number}", kind, bad=False)
        if call is None or 0 in call.args[0].shape:
            continue
        inputs = [x for x in call.args[:2] if isinstance(x, torch.Tensor)]
        if (len(inputs) == 2 and inputs[0].ndim != inputs[1].ndim) or inputs[-1].shape[0] != inputs[0].shape[0]:
            continue  # what all rows have in common may come once
        try:
            due = expected(call)
            learns = [x for x in inputs if x.requires_grad]
            ups = [torch.randn_like(y) for y in due if y is not None and y.requires_grad]
            back = (
                torch.autograd.grad([y for y in due if y is not None and y.requires_grad], learns, ups) if ups else []
            )
            got = call.function(*call.args, **call.kwargs, kernel="reference")
        except (IndexError, ValueError):
            continue  # more heads than have angles, outputs where a gradient is needed, learned frequencies
        got, out = (x if isinstance(x, tuple | list) else (x,) for x in (got, call.kwargs.get("out", got)))
        for a, b, c in zip(got, due, out, strict=True):
            assert a is c and equal(a, b, False), (kind, number)
        if ups:
            again = torch.autograd.grad(differentiable(got), learns, ups)
            assert all(equal(a, b, False) for a, b in zip(again, back, strict=True)), (kind, number)
        taken -= 1
    assert taken <= 0


@pytest.mark.parametrize("kind, taken", {"norm": 65, "move": 60}.items())
def test_an_order_of_axes_is_the_plain_one_on_rearranged_tensors(kind, taken):
    for number in range(80):
        call = built(f"order {number}", kind, bad=False)
        inputs = 0 if call is None else 1 if kind == "move" else 2
        if not inputs or (inputs == 2 and call.args[1] is not None and call.args[0].ndim != call.args[1].ndim):
            continue
        about = {name: x for name, x in call.kwargs.items() if name not in ("tensor_format", "num_heads", "out")}
        there, back = PLAIN[call.kwargs["tensor_format"]]
        width, flat = call.args[2].layout.head_dim if kind == "norm" else None, "num_heads" in call.kwargs
        heads = [x.unflatten(-1, (-1, width)) if flat and x is not None else x for x in call.args[:inputs]]
        plain = [None if x is None else there(x).clone() for x in heads]
        try:
            due = call.function(*plain, *call.args[inputs:], **about, kernel="reference")
            got = call.function(*call.args, **call.kwargs, kernel="reference")
        except (IndexError, ValueError):
            continue
        got, due, out = (x if isinstance(x, tuple | list) else [x] for x in (got, due, call.kwargs.get("out", got)))
        for a, b, c in zip(got, due, out, strict=True):
            b = b if b is None else back(b).flatten(-2) if flat else back(b)
            assert a is c and ((a is None and b is None) or equal(a, b, False)), (kind, number)
        taken -= 1
    assert taken <= 0
