"""Errors of rotating: positions, rotations, tensors and builders, each with argument, rule, value and way out."""

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary, apply_rotary_qk, apply_rotary_qkv, positions, rotate
from phasor.rotary.axes import Listed, Sections
from phasor.rotary.matrix import complex_form, generator
from phasor.rotary.scaling import DynamicNTK, SteppedNTK

from .conftest import assert_refused

INF = float("inf")
SPEC = RotarySpec(head_dim=8)
ROTATION = Rotation.at(SPEC, torch.arange(5))
BATCHED = Rotation.at(SPEC, torch.arange(15).view(3, 5))
PER_HEAD = Rotation.from_frequencies(torch.zeros(2, 5), torch.zeros(3, 2, 4))
X = torch.zeros(2, 3, 5, 8)
REAL = RotarySpec(head_dim=8, coordinates="real")
LEARNED = RotarySpec(head_dim=8, learned=True)
TWO = RotarySpec(head_dim=8, second=Listed((0,) * 4, ((1, 4),) * 4))
SECOND = Rotation.at(TWO, torch.arange(5))
PERMUTED = Rotation.at(RotarySpec(head_dim=8, interleaved=True, permuted=True), torch.arange(5))

# case -> (call, every fragment its message must have)
CASES = {
    # rotation
    "positions list": (lambda: Rotation.at(SPEC, [0, 1]), ["positions must be a tensor of integers, got list"]),
    "positions float": (
        lambda: Rotation.at(SPEC, torch.zeros(3)),
        ["positions must be integers, got torch.float32", ".long()", "Rotation.from_frequencies"],
    ),
    "real bool": (lambda: Rotation.at(REAL, torch.zeros(3).bool()), ["positions must be real numbers, got torch.bool"]),
    "real list": (lambda: Rotation.at(REAL, [0.5]), ["positions must be a tensor of real numbers, got list"]),
    "real half": (
        lambda: Rotation.at(REAL, torch.zeros(3).half()),
        ["positions must be float32 or float64 (half precision rounds them), got torch.float16"],
    ),
    "log scale missing": (
        lambda: Rotation.at(LEARNED, torch.arange(3)),
        ["log_scale must be the trained tensor [4]", "got None"],
    ),
    "log scale width": (
        lambda: Rotation.at(LEARNED, torch.arange(3), log_scale=torch.zeros(5)),
        ["log_scale must be the trained tensor [4]", "got torch.float32 (5,)"],
    ),
    "log scale of a fixed spec": (
        lambda: Rotation.at(SPEC, torch.arange(3), log_scale=torch.zeros(4)),
        ["log_scale belongs to a spec with learned=True"],
    ),
    "second inverse": (lambda: SECOND.inverse(), ["inverse needs a rotation", "not orthogonal", "transpose()"]),
    "second compose": (lambda: SECOND.compose(ROTATION), ["compose needs a rotation", "second angles"]),
    "second complex": (lambda: complex_form(SECOND), ["rotation must have one angle per pair for a complex form"]),
    "second generator": (lambda: generator(TWO), ["spec must have fixed frequencies and one angle per pair"]),
    "learned generator": (lambda: generator(LEARNED), ["spec must have fixed frequencies", "learned log-scale"]),
    "permuted compose": (
        lambda: PERMUTED.compose(PERMUTED),
        ["rotations must agree in (layout, per_head, tokens)", "interleaved=False", "interleaved=True"],
    ),
    "blocks compose": (
        lambda: ROTATION.compose(ROTATION.replace(layout=Layout(head_dim=8, blocks=2))),
        ["must agree in", "blocks"],
    ),
    "padded before": (lambda: ROTATION.padded(-1), ["before must be an integer of at least 0, got -1"]),
    "padded after": (lambda: ROTATION.padded(after=1.0), ["after must be an integer of at least 0, got 1.0"]),
    "padded magnitude": (
        lambda: ROTATION.replace(magnitude=1.5).padded(1),
        ["padded needs a rotation of magnitude 1", "got 1.5"],
    ),
    "positions rank": (
        lambda: Rotation.at(SPEC, torch.zeros(2, 2, 2).long()),
        ["positions must be [seq] or [batch, seq]", "got shape (2, 2, 2)"],
    ),
    "positions scalar": (lambda: Rotation.at(SPEC, torch.tensor(3)), ["[seq] or [batch, seq]", "got shape ()"]),
    "positions axes": (
        lambda: Rotation.at(RotarySpec(head_dim=8, axes=Sections((2, 1, 1))), torch.arange(5)),
        ["positions must be [3, seq] or [3, batch, seq]", "got shape (5,)", "phasor.positions.text(positions, axes=3)"],
    ),
    "positions wrong axes": (
        lambda: Rotation.at(RotarySpec(head_dim=8, axes=Sections((2, 1, 1))), torch.zeros(2, 5).long()),
        ["[3, seq]", "got shape (2, 5)"],
    ),
    "seq_len missing": (
        lambda: Rotation.at(RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 8)), torch.arange(5)),
        ["seq_len is missing", "dynamic scaling", "pass seq_len="],
    ),
    "rotate seq_len missing": (
        lambda: rotate(X, X, torch.arange(5), RotarySpec(head_dim=8, scaling=SteppedNTK(8))),
        ["seq_len is missing", "stepped_ntk", "pass seq_len="],
    ),
    "angles dtype": (
        lambda: Rotation.from_angles(torch.zeros(3, 2).bfloat16()),
        ["angles must be float32 or float64", "got torch.bfloat16", "before the product"],
    ),
    "inv_freq dtype": (
        lambda: Rotation.from_frequencies(torch.arange(3), torch.zeros(2).half()),
        ["inv_freq must be float32 or float64, got torch.float16", "convert it first"],
    ),
    "inv_freq rank": (
        lambda: Rotation.from_frequencies(torch.arange(3), torch.zeros(1, 1, 1, 2)),
        ["inv_freq must be [P], [axes, P] or [heads, axes, P]", "got shape (1, 1, 1, 2)"],
    ),
    "real positions": (
        lambda: Rotation.from_frequencies(torch.zeros(3).bool(), torch.zeros(2)),
        ["positions must be real numbers, got torch.bool"],
    ),
    "axes of frequencies": (
        lambda: Rotation.from_frequencies(torch.zeros(3, 5), torch.zeros(2, 4)),
        ["positions must be [axes, (batch,) seq] with 2 axes, got (3, 5)"],
    ),
    "axes missing": (
        lambda: Rotation.from_frequencies(torch.zeros(2), torch.zeros(2, 4)),
        ["with 2 axes, got (2,)"],
    ),
    # apply
    "format": (
        lambda: apply_rotary(X, ROTATION, tensor_format="sbdh"),
        ["tensor_format must be 'bhsd', 'bshd', 'sbhd' or 'thd', got 'sbdh'"],
    ),
    "rank": (
        lambda: apply_rotary(X[0, 0], ROTATION),
        ["x must be [..., heads, seq, head_dim] for tensor_format='bhsd', got shape (5, 8)"],
    ),
    "rank bshd": (
        lambda: apply_rotary(X[0, 0], ROTATION, tensor_format="bshd"),
        ["x must be [..., seq, heads, head_dim] for tensor_format='bshd', got shape (5, 8)"],
    ),
    "dtype": (lambda: apply_rotary(X.long(), ROTATION), ["x must be float64, float32, float16 or bfloat16", "int64"]),
    "device": (
        lambda: apply_rotary(X.to("meta"), ROTATION),
        ["x and the rotation must be on the same device, got meta and cpu"],
    ),
    "width": (
        lambda: apply_rotary(X[..., :6], ROTATION),
        ["x must have the 8 channels of the rotation's head_dim, got 6", "(2, 3, 5, 6)"],
    ),
    "wider": (
        lambda: apply_rotary(torch.zeros(2, 3, 5, 16), ROTATION),
        ["x must have the 8 channels of the rotation's head_dim, got 16", "num_heads=2", "head_dim=16 where"],
    ),
    "numpy": (lambda: apply_rotary(X.numpy(), ROTATION), ["x must be a torch tensor, got numpy.ndarray"]),
    "numpy q": (lambda: rotate(X.numpy(), X, torch.arange(5), SPEC), ["q must be a torch tensor"]),
    "seq_len of a static spec": (
        lambda: Rotation.at(SPEC, torch.arange(5), -4),
        ["seq_len must be an integer of at least 1, got -4"],
    ),
    "dtype for seq_len": (lambda: Rotation.at(SPEC, torch.arange(5), torch.float64), ["seq_len", "torch.float64"]),
    "dtype of activations": (
        lambda: Rotation.at(SPEC, torch.arange(5), dtype=torch.int32),
        ["dtype must be the floating-point dtype of the activations, got torch.int32"],
    ),
    "text of a list": (lambda: positions.text([1, 2]), ["positions must be a tensor, got list"]),
    "grid start": (lambda: positions.grid(2, 2, start=0.5), ["start must be an integer", "got 0.5"]),
    "length": (
        lambda: apply_rotary(X[:, :, :4], ROTATION),
        [
            "x has 4 tokens in tensor_format='bhsd'",
            "rotation has 5 positions",
            "(2, 3, 4, 8)",
            "one position per token",
        ],
    ),
    "one position for all tokens": (
        lambda: apply_rotary(X[:1], Rotation.at(RotarySpec(head_dim=8), torch.tensor([-1000]))),
        [
            "x has 5 tokens",
            "give one position per token, or, to move",
            "phasor.shift(k, by, spec)",
            "its other axis has 1",
        ],
    ),
    "batch": (
        lambda: apply_rotary(X, BATCHED),
        ["the rotation's batch (3,) must fit the batch (2,) of x", "positions with several axes"],
    ),
    "batch of nothing": (lambda: apply_rotary(X[0], BATCHED), ["batch (3,) must fit the batch () of x"]),
    "heads": (lambda: apply_rotary(X[:, :2], PER_HEAD), ["x has 2 heads", "its own angles for 3"]),
    "qkv as a list": (lambda: apply_rotary_qkv([1.0], ROTATION), ["qkv must be a torch tensor, got builtins.list"]),
    "compose": (
        lambda: ROTATION.compose(ROTATION.replace(layout=Layout(head_dim=8, interleaved=True))),
        ["agree in (layout, per_head, tokens)", "False, 5) written and (Layout("],
    ),
    "compose with second": (lambda: ROTATION.compose(SECOND), ["compose needs a rotation", "second angles"]),
    "positions bool": (lambda: Rotation.at(SPEC, torch.zeros(3).bool()), ["must be integers, got torch.bool"]),
    "other format": (
        lambda: apply_rotary(X.transpose(1, 2), ROTATION),
        ["x has 3 tokens", "its other axis has 5: did you mean tensor_format='bshd'?"],
    ),
    "other format back": (
        lambda: apply_rotary(X, ROTATION, tensor_format="bshd"),
        ["x has 3 tokens in tensor_format='bshd'", "did you mean tensor_format='bhsd'?"],
    ),
    "a shift": (  # one angle for all tokens is no mistake in the order of axes
        lambda: apply_rotary(X, Rotation.at(SPEC, torch.tensor([-1000]))),
        ["x has 5 tokens", "phasor.shift"],
    ),
    "tokens of k": (lambda: apply_rotary_qk(X, X[:, :, :4], ROTATION), ["k has 4 tokens"]),
    "head_dim of k": (
        lambda: rotate(X, torch.zeros(2, 3, 5, 10), torch.arange(5), SPEC),
        ["k must have the 8 channels", "got 10"],
    ),
    "kernel": (
        lambda: apply_rotary(X, ROTATION, kernel="cuda"),
        ["kernel must be 'auto' or one of 'native', 'operator', 'triton', 'eager', 'reference', 'onnx', got"],
    ),
    "heads bshd": (
        lambda: apply_rotary(X[:, :2].transpose(1, 2), PER_HEAD, tensor_format="bshd"),
        ["x has 2 heads", "its own angles for 3"],
    ),
    "q and k dtype": (
        lambda: apply_rotary_qk(X, X.double(), ROTATION),
        ["q and k must have the same dtype, got torch.float32 and torch.float64", "one at a time"],
    ),
    # positions
    "packed list": (lambda: positions.packed([0, 3]), ["cu_seqlens must be a tensor with 1 dimension, got list"]),
    "packed rank": (lambda: positions.packed(torch.zeros(2, 2).long()), ["cu_seqlens", "got shape (2, 2)"]),
    "packed float": (lambda: positions.packed(torch.tensor([0.0, 3.0])), ["cu_seqlens must hold integers", "float32"]),
    "packed start": (lambda: positions.packed(torch.tensor([1, 3])), ["must start at 0 and never fall", "[1, 3]"]),
    "packed falls": (lambda: positions.packed(torch.tensor([0, 3, 2])), ["never fall", "got [0, 3, 2]"]),
    "packed lengths": (lambda: positions.packed(torch.tensor([0])), ["cumulative lengths", "got [0]"]),
    "mask list": (lambda: positions.from_mask([[1]]), ["mask must be a tensor [batch, seq], got list"]),
    "mask rank": (lambda: positions.from_mask(torch.ones(3)), ["mask must be a tensor [batch, seq], got shape (3,)"]),
    "mask values": (
        lambda: positions.from_mask(torch.tensor([[1, 2]])),
        ["mask must hold only 0 and 1", "phasor.positions.packed"],
    ),
    "mask additive": (lambda: positions.from_mask(torch.tensor([[0.0, -INF]])), ["mask must hold only 0 and 1"]),
    "cached float": (lambda: positions.decode(torch.tensor([5.0])), ["cached must hold integers, got torch.float32"]),
    "cached below": (lambda: positions.decode(torch.tensor([-1])), ["cached", "at least 0, got [-1]"]),
    "new": (lambda: positions.decode(torch.tensor([1]), 0), ["new must be an integer of at least 1, got 0"]),
    "text axes": (lambda: positions.text(torch.arange(3), axes=0), ["axes", "at least 1, got 0"]),
    "grid": (lambda: positions.grid(), ["sizes must name at least one axis, got none", "grid(height, width)"]),
    "grid size": (lambda: positions.grid(2, 0), ["sizes[1]", "at least 1, got 0"]),
    "mrope": (lambda: positions.mrope([]), ["segments must name at least one run of text or one grid, got none"]),
    "mrope text": (lambda: positions.mrope([2, 0]), ["segments[1]", "at least 1, got 0"]),
    "mrope tuple": (lambda: positions.mrope([(1, 2, 3, 4)]), ["segments[0]", "got (1, 2, 3, 4)"]),
    "mrope size": (lambda: positions.mrope([(2, 0)]), ["at least 1, got 0"]),
}


@pytest.mark.parametrize("call, fragments", CASES.values(), ids=CASES)
def test_message(call, fragments):
    assert_refused(call, fragments)


def test_the_edges_are_allowed():
    """One step inside the bounds above."""
    apply_rotary(X, ROTATION)
    apply_rotary(X, PER_HEAD)
    apply_rotary(X, BATCHED.slice(0, 5).replace(cos=BATCHED.cos[:2], sin=BATCHED.sin[:2]))
    positions.decode(torch.tensor([0]))
    positions.packed(torch.tensor([0, 0]))
