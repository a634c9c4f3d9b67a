"""Errors of specs, schemes and rotating: each names the argument, the rule, the value received and the way out."""

import pytest
import torch

import phasor
from phasor import RotarySpec, Rotation, apply_rotary, matrix, positions, temperature
from phasor.rotary import axes, scaling
from phasor.rotary.axes import Listed, Sections
from phasor.rotary.scaling import DynamicNTK, Llama3, LongRoPE, Proportional, YaRN, YaRNPaper
from refused import refused

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


def long(**changes):
    fields = {"short_factor": (1.0,), "long_factor": (1.0,), "original_max_position": 8, "factor": 2.0}
    return LongRoPE(**(fields | changes))


NAN, INF = float("nan"), float("inf")
OF = (phasor, axes, scaling, temperature, matrix)

test_specs_and_schemes = refused(
    """
# spec
RotarySpec(head_dim=8, base=None) => base must be a finite number above 1, got None
RotarySpec(head_dim=8, base=True) => base must be a finite number above 1, got True
RotarySpec(head_dim=8, blocks=8.0) => blocks must be an integer of at least 1, got 8.0
RotarySpec(head_dim=8, blocks=True) => blocks must be an integer of at least 1, got True
RotarySpec(head_dim=7) => head_dim must be even if all its channels rotate … pairs … got 7
RotarySpec(head_dim=63) => got 63 … rotary_dim, 62 or less
RotarySpec(head_dim=64, rotary_dim=63) => rotary_dim must be a positive even … got 63
RotarySpec(head_dim=8, rope_theta=1000000.0) => rope_theta is no field of RotarySpec … did you mean base? …
    phasor.read_config
RotarySpec(head_dim=8, interleave=True) => interleave is no … did you mean interleaved?
RotarySpec(head_dim=0) => positive even … got 0
RotarySpec(head_dim=8, rotary_dim=10) => at most head_dim … rotary_dim=10 and head_dim=8
RotarySpec(head_dim=8, rotary_dim=4.0) => rotary_dim must be an integer, got 4.0
RotarySpec(head_dim=True) => must be an integer, got True
RotarySpec(head_dim=8, base=1.0) => base must be a finite number above 1, got 1.0
RotarySpec(head_dim=8, base=NAN) => base … got nan
RotarySpec(head_dim=8, angles='hf') => angles must be 'exact' … or 'float64_rounded', got 'hf'
RotarySpec(head_dim=8, tables='bf16') => tables must be 'activation' … or 'float64', got 'bf16'
RotarySpec(head_dim=8, coordinates='float') => coordinates must be 'integer' or 'real', got 'float'
RotarySpec(head_dim=8, position_scale=0.0) => position_scale … above 0, got 0.0
SPEC.replace(rope_theta=5.0) => rope_theta is no … did you mean base?
RotarySpec(head_dim=8, axes=None) => axes must be one of the schemes … register_axes
RotarySpec(head_dim=8, scaling=type('Mine', (Linear,), {})(2.0)) => scaling must be one of the schemes in phasor.scaling
    … phasor.scaling.register_scaling
RotarySpec(head_dim=2, scaling=SteppedNTK(8)) => rotary_dim above 2 … got 2
RotarySpec(head_dim=8, scaling=NTK(2.0), axes=Axial((1, 3))) => above 2 … got 2
YaRN(4.0, 10 ** 30) => original_max_position must be an integer of at most 2**62
SteppedNTK(0) => original_max_position … of at least 1, got 0
YaRNPaper(2.0, 0) => original_max_position … got 0
long().is_long('9') => seq_len … got '9'
RotarySpec(head_dim=8, axes=InterleavedSections((1, 1))) => (1, 1) with sum 2
Layout(head_dim=7) => head_dim must be even … got 7
RotarySpec(head_dim=8, reverse=1) => reverse must be True or False, got 1
RotarySpec(head_dim=8, learned='yes') => learned must be True or False, got 'yes'
RotarySpec(head_dim=8, permuted=True) => permuted needs interleaved=True … halves
RotarySpec(head_dim=8, blocks=0) => blocks must be an integer of at least 1, got 0
RotarySpec(head_dim=12, blocks=4) => blocks must divide rotary_dim / 2 = 6 … got 4
RotarySpec(head_dim=8, blocks=2, interleaved=True) => blocks must be 1 for interleaved pairs … got 2
RotarySpec(head_dim=22, exponent_dim=20) => exponent_dim must be at least 21 for 11 frequencies … got 20
RotarySpec(head_dim=42, rotary_dim=22, exponent_dim=21, scaling=Proportional(0.5)) => exponent_dim must be even with
    proportional scaling … got 21
RotarySpec(head_dim=8, exponent_dim=7.5) => exponent_dim must be an integer … 7.5
RotarySpec(head_dim=4, exponent_dim=3, frequencies=(1.0, 0.1)) => frequencies and exponent_dim exclude each other … got
    exponent_dim 3
RotarySpec(head_dim=4, second=Axial((1, 1))) => second must have as many coordinates as axes … got 2 and 1
RotarySpec(head_dim=8, second=Listed((0,))) => axis must have one value per pair, 4 here
RotarySpec(head_dim=8, second='x') => second must be one of the schemes in phasor.axes
# axes that take turns, and lists of them
Alternating(2) => order must be a list or tuple, got 2
Alternating((0, 0)) => order must name the axes 0, 1, … once each … got (0, 0)
Alternating((0,)) => at least two, got (0,)
Alternating((0, -1)) => order[1] must be an integer of at least 0, got -1
RotarySpec(head_dim=6, axes=Alternating()) => order must name a number of axes that divides rotary_dim / 2 = 3 … use
    Listed
Alternating(own_ladders=1) => own_ladders must be True or False, got 1
Listed(()) => axis must have one value per pair, got ()
Listed((0, -1)) => axis[1] must be an integer of at least 0, got -1
RotarySpec(head_dim=8, axes=Listed((0, 1))) => one value per pair, 4 here, got 2
Listed((0, 2), axes=2) => axes must be an integer of at least 3, got 2
Listed((0, 1), ((0, 1),)) => rung must have one value per pair like axis, 2, got 1
Listed((0,), ((0, 1, 2),)) => rung[0] must be (i, n) … got (0, 1, 2)
Listed((0,), ((2, 2),)) => rung[0][1] must be an integer of at least 3, got 2
# temperature
LogFloor(beta=NAN, length=8) => beta must be a finite number, got nan
LogFloor(beta=0.1, length=0) => length must be an integer of at least 1, got 0
Power(offset=-1) => offset must be an integer of at least 0, got -1
Power().at(torch.ones(2)) => positions must be a tensor of integers … float32
LogFloor(0.1, 8).at([1]) => positions must be a tensor of integers, got list
LearnedLog().at(torch.ones(2), torch.ones(3), torch.ones(3)) => positions must be a tensor of integers … float32
LearnedLog().at(torch.arange(2), torch.ones(3), torch.ones(2)) => scale and bias must have one value per head … (3,) …
    (2,)
RotarySpec(head_dim=8, scaling='yarn') => scaling must be one of … phasor.scaling … 'yarn'
RotarySpec(head_dim=8, frequencies=(1.0,)) => frequencies must have one value per pair, 4 here, got 1
RotarySpec(head_dim=4, frequencies=(1.0, INF)) => frequencies[1] … got inf
RotarySpec(head_dim=2, frequencies=(1.0,), scaling=Linear(2.0)) => frequencies and scaling exclude each other …
    Linear(factor=2.0) … scale the list first
RotarySpec.from_dict([8]) => data must be a dictionary as made by to_dict, got list
RotarySpec.from_dict({'head_dim': 8, 'theta': 5}) => unknown keys ['theta'] … known: ['angles', 'axes', 'base'
RotarySpec.from_dict({}) => data must have the key 'head_dim'
RotarySpec.from_dict({'head_dim': 8, 'scaling': {'name': 'warp'}}) => scaling must be a dictionary with a 'name' out of
    … 'yarn' … got {'name': 'warp'}
RotarySpec.from_dict({'head_dim': 8, 'axes': 'one'}) => axes must be … got 'one'
RotarySpec.from_dict({'head_dim': 8, 'scaling': {'name': 'linear', 'scale': 2}}) => scaling 'linear' does not fit its
    fields … scale
RotarySpec.from_dict({'head_dim': 8, 'scaling': {'name': 'yarn', 'factor': 2.0}}) => original_max_position must be an
    integer of at least 1, got None … trained on before scaling
# scalings
Linear(0.0) => factor must be a finite number above 0, got 0.0
NTK(-1.0) => factor … above 0 … got -1.0
RotarySpec(head_dim=2, scaling=NTK(2.0)) => rotary_dim above 2 … dim / (dim - 2) … got 2
RotarySpec(head_dim=2, scaling=DynamicNTK(2.0, 8)) => rotary_dim above 2 … got 2
NTKFixed(0) => factor … above 0 … got 0
DynamicNTK(0.5, 8) => factor … of at least 1, got 0.5
DynamicNTK(2.0, 8.0) => original_max_position must be an integer … got 8.0
DynamicNTK(2.0, 8).factor_at(9.0) => seq_len must be an integer … got 9.0
SteppedNTK(8).factor_at(0) => seq_len … of at least 1, got 0
YaRN(0.0, 8) => factor … above 0 … got 0.0
YaRN(2.0, 8, 1.0, 32.0) => beta_fast … of at least 32, got 1.0
YaRN(2.0, 8, beta_slow=0.0) => beta_slow … above 0 … got 0.0
YaRN(2.0, 8, mscale=-1.0) => mscale must … at least 0 … got -1.0
YaRN(2.0, 8, mscale_all_dim=NAN) => mscale_all_dim … got nan
YaRN(2.0, 8, attention=0.0) => attention … above 0 … got 0.0
YaRNPaper(INF, 8) => factor … got inf
YaRNPaper(2.0, 8, alpha=-1.0) => alpha … at least 0 … got -1.0
YaRNPaper(2.0, 8, beta=1.0) => beta … above 1, got 1.0
Llama3(0.0, 1.0, 4.0, 8) => factor … got 0.0
Llama3(2.0, 0.0, 4.0, 8) => low_freq_factor … above 0 … got 0.0
Llama3(2.0, 4.0, 1.0, 8) => high_freq_factor … of at least 4, got 1.0
Llama3(2.0, 1.0, 4.0, -8) => original_max_position … got -8
long(long_factor=(0.0,)) => long_factor[0] … above 0 … got 0.0
long(short_factor=('1',)) => short_factor[0] … got '1'
long(original_max_position=0) => original_max_position … got 0
long(factor=-2.0) => factor … got -2.0
long(attention=0.0) => attention must … got 0.0
long(attention_short=-1.0) => attention_short … got -1.0
RotarySpec(head_dim=8, scaling=long()) => short_factor must have one value per pair, 4 for rotary_dim 8, got 1
long(long_factor=(1.0, 2.0)) => short_factor and long_factor must have one value per pair each, got 1 and 2
long(short_factor=1.0) => short_factor must be a list or tuple, got 1.0
long(original_max_position=1) => original_max_position … at least 2, got 1
RotarySpec(head_dim=16, scaling=Proportional(0.05)) => fraction must keep at least one of 8 pairs, got 0.05
RotarySpec(head_dim=8, interleaved='false') => interleaved must be True or False, got 'false'
RotarySpec.from_dict({'head_dim': 8, 'trailing': 1}) => trailing … got 1
YaRN(4.0, 4096, truncate='no') => truncate must be True or False, got 'no'
RotarySpec(head_dim=4, frequencies=3) => frequencies must be a list or tuple
RotarySpec.from_dict({'head_dim': 8, 'frequencies': 5}) => a list or tuple, got 5
Axial(4) => sizes must be a list or tuple, got 4
RotarySpec(head_dim=16, axes=InterleavedSections((2, 4, 2))) => sections cannot take turns as (2, 4, 2) … axis 0 gets 3
    pairs … with Listed … llama.cpp
Proportional(0.0) => fraction … above 0 … got 0.0
Proportional(2.0) => fraction must be at most 1 … share of pairs … got 2.0
Proportional(0.5, 0.0) => factor … got 0.0
# axes
Axial((4,)) => sizes must name at least two axes, got (4,) … use OneAxis()
Axial((4, 0)) => sizes[1] … at least 1, got 0
RotarySpec(head_dim=8, axes=Axial((2, 3))) => sizes must add up to rotary_dim / 2 = 4 pairs, got (2, 3) with sum 5
Sections(()) => sections must name at least one axis, got ()
Sections((1, -1)) => sections[1] … at least 0, got -1
RotarySpec(head_dim=8, axes=Sections((2, 3))) => sections must add up to rotary_dim / 2 = 4 pairs, got (2, 3) with sum 5
Mixed(()) => directions must be one row per axis … got rows of []
Mixed(((1.0, 2.0), (1.0,))) => same number of pairs, got rows of [2, 1]
Mixed(((1.0, NAN),)) => directions[0][1] … got nan
RotarySpec(head_dim=8, axes=Mixed(((1.0,), (1.0,)))) => directions must have one column per pair, 4 here, got 1
mixed_frequencies(6, 2) => rotary_dim must be a positive multiple of 4 … got 6
mixed_frequencies(0, 2) => multiple of 4 … got 0
# layout
Layout(head_dim=8, rotary_dim=10) => rotary_dim must be at most head_dim … rotary_dim=10 and head_dim=8
Layout(head_dim=8).permutation(Layout(head_dim=8, rotary_dim=4)) => target must have the same head_dim and rotary_dim …
    got (8, 8) and (8, 4)
Layout(head_dim=8, blocks=3) => blocks must divide rotary_dim / 2 = 4 … got 3
Layout(head_dim=8, blocks=2, permuted=True) => blocks must be 1 … got 2
""",
    globals(),
    of=OF,
)

test_rotating = refused(
    """
# rotation
Rotation.at(SPEC, [0, 1]) => positions must be a tensor of integers, got list
Rotation.at(SPEC, torch.zeros(3)) => positions must be integers, got torch.float32 … .long() … Rotation.from_frequencies
Rotation.at(REAL, torch.zeros(3).bool()) => positions must be real numbers, got torch.bool
Rotation.at(REAL, [0.5]) => positions must be a tensor of real numbers, got list
Rotation.at(REAL, torch.zeros(3).half()) => positions must be float32 or float64 (half precision rounds them), got
    torch.float16
Rotation.at(LEARNED, torch.arange(3)) => log_scale must be the trained tensor [4] … got None
Rotation.at(LEARNED, torch.arange(3), log_scale=torch.zeros(5)) => log_scale must be the trained tensor [4] … got
    torch.float32 (5,)
Rotation.at(SPEC, torch.arange(3), log_scale=torch.zeros(4)) => log_scale belongs to a spec with learned=True
SECOND.inverse() => inverse needs a rotation … not orthogonal … transpose()
SECOND.compose(ROTATION) => compose needs a rotation … second angles
complex_form(SECOND) => rotation must have one angle per pair for a complex form
generator(TWO) => spec must have fixed frequencies and one angle per pair
generator(LEARNED) => spec must have fixed frequencies … learned log-scale
PERMUTED.compose(PERMUTED) => rotations must agree in (layout, per_head, tokens) … interleaved=False … interleaved=True
ROTATION.compose(ROTATION.replace(layout=Layout(head_dim=8, blocks=2))) => must agree in … blocks
ROTATION.padded(-1) => before must be an integer of at least 0, got -1
ROTATION.padded(after=1.0) => after must be an integer of at least 0, got 1.0
ROTATION.replace(magnitude=1.5).padded(1) => padded needs a rotation of magnitude 1 … got 1.5
Rotation.at(SPEC, torch.zeros(2, 2, 2).long()) => positions must be [seq] or [batch, seq] … got shape (2, 2, 2)
Rotation.at(SPEC, torch.tensor(3)) => [seq] or [batch, seq] … got shape ()
Rotation.at(RotarySpec(head_dim=8, axes=Sections((2, 1, 1))), torch.arange(5)) => positions must be [3, seq] or [3,
    batch, seq] … got shape (5,) … phasor.positions.text(positions, axes=3)
Rotation.at(RotarySpec(head_dim=8, axes=Sections((2, 1, 1))), torch.zeros(2, 5).long()) => [3, seq] … got shape (2, 5)
Rotation.at(RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 8)), torch.arange(5)) => seq_len is missing … dynamic scaling
    … pass seq_len=
rotate(X, X, torch.arange(5), RotarySpec(head_dim=8, scaling=SteppedNTK(8))) => seq_len is missing … stepped_ntk … pass
    seq_len=
Rotation.from_angles(torch.zeros(3, 2).bfloat16()) => angles must be float32 or float64 … got torch.bfloat16 … before
    the product
Rotation.from_frequencies(torch.arange(3), torch.zeros(2).half()) => inv_freq must be float32 or float64, got
    torch.float16 … convert it first
Rotation.from_frequencies(torch.arange(3), torch.zeros(1, 1, 1, 2)) => inv_freq must be [P], [axes, P] or [heads, axes,
    P] … got shape (1, 1, 1, 2)
Rotation.from_frequencies(torch.zeros(3).bool(), torch.zeros(2)) => positions must be real numbers, got torch.bool
Rotation.from_frequencies(torch.zeros(3, 5), torch.zeros(2, 4)) => positions must be [axes, (batch,) seq] with 2 axes,
    got (3, 5)
Rotation.from_frequencies(torch.zeros(2), torch.zeros(2, 4)) => with 2 axes, got (2,)
# apply
apply_rotary(X, ROTATION, tensor_format='sbdh') => tensor_format must be 'bhsd', 'bshd', 'sbhd' or 'thd', got 'sbdh'
apply_rotary(X[0, 0], ROTATION) => x must be [..., heads, seq, head_dim] for tensor_format='bhsd', got shape (5, 8)
apply_rotary(X[0, 0], ROTATION, tensor_format='bshd') => x must be [..., seq, heads, head_dim] for tensor_format='bshd',
    got shape (5, 8)
apply_rotary(X.long(), ROTATION) => x must be float64, float32, float16 or bfloat16 … int64
apply_rotary(X.to('meta'), ROTATION) => x and the rotation must be on the same device, got meta and cpu
apply_rotary(X[..., :6], ROTATION) => x must have the 8 channels of the rotation's head_dim, got 6 … (2, 3, 5, 6)
apply_rotary(torch.zeros(2, 3, 5, 16), ROTATION) => x must have the 8 channels of the rotation's head_dim, got 16 …
    num_heads=2 … head_dim=16 where
apply_rotary(X.numpy(), ROTATION) => x must be a torch tensor, got numpy.ndarray
rotate(X.numpy(), X, torch.arange(5), SPEC) => q must be a torch tensor
Rotation.at(SPEC, torch.arange(5), -4) => seq_len must be an integer of at least 1, got -4
Rotation.at(SPEC, torch.arange(5), torch.float64) => seq_len … torch.float64
Rotation.at(SPEC, torch.arange(5), dtype=torch.int32) => dtype must be the floating-point dtype of the activations, got
    torch.int32
positions.text([1, 2]) => positions must be a tensor, got list
positions.grid(2, 2, start=0.5) => start must be an integer … got 0.5
apply_rotary(X[:, :, :4], ROTATION) => x has 4 tokens in tensor_format='bhsd' … rotation has 5 positions … (2, 3, 4, 8)
    … one position per token
apply_rotary(X[:1], Rotation.at(RotarySpec(head_dim=8), torch.tensor([-1000]))) => x has 5 tokens … give one position
    per token, or, to move … phasor.shift(k, by, spec) … its other axis has 1
apply_rotary(X, BATCHED) => the rotation's batch (3,) must fit the batch (2,) of x … positions with several axes
apply_rotary(X[0], BATCHED) => batch (3,) must fit the batch () of x
apply_rotary(X[:, :2], PER_HEAD) => x has 2 heads … its own angles for 3
apply_rotary_qkv([1.0], ROTATION) => qkv must be a torch tensor, got builtins.list
ROTATION.compose(ROTATION.replace(layout=Layout(head_dim=8, interleaved=True))) => agree in (layout, per_head, tokens) …
    False, 5) written and (Layout(
ROTATION.compose(SECOND) => compose needs a rotation … second angles
Rotation.at(SPEC, torch.zeros(3).bool()) => must be integers, got torch.bool
apply_rotary(X.transpose(1, 2), ROTATION) => x has 3 tokens … its other axis has 5: did you mean tensor_format='bshd'?
apply_rotary(X, ROTATION, tensor_format='bshd') => x has 3 tokens in tensor_format='bshd' … did you mean
    tensor_format='bhsd'?
apply_rotary(X, Rotation.at(SPEC, torch.tensor([-1000]))) => x has 5 tokens … phasor.shift
apply_rotary_qk(X, X[:, :, :4], ROTATION) => k has 4 tokens
rotate(X, torch.zeros(2, 3, 5, 10), torch.arange(5), SPEC) => k must have the 8 channels … got 10
apply_rotary(X, ROTATION, kernel='cuda') => kernel must be 'auto' or one of 'native', 'operator', 'triton', 'eager',
    'reference', 'onnx', got
apply_rotary(X[:, :2].transpose(1, 2), PER_HEAD, tensor_format='bshd') => x has 2 heads … its own angles for 3
apply_rotary_qk(X, X.double(), ROTATION) => q and k must have the same dtype, got torch.float32 and torch.float64 … one
    at a time
# positions
positions.packed([0, 3]) => cu_seqlens must be a tensor with 1 dimension, got list
positions.packed(torch.zeros(2, 2).long()) => cu_seqlens … got shape (2, 2)
positions.packed(torch.tensor([0.0, 3.0])) => cu_seqlens must hold integers … float32
positions.packed(torch.tensor([1, 3])) => must start at 0 and never fall … [1, 3]
positions.packed(torch.tensor([0, 3, 2])) => never fall … got [0, 3, 2]
positions.packed(torch.tensor([0])) => cumulative lengths … got [0]
positions.from_mask([[1]]) => mask must be a tensor [batch, seq], got list
positions.from_mask(torch.ones(3)) => mask must be a tensor [batch, seq], got shape (3,)
positions.from_mask(torch.tensor([[1, 2]])) => mask must hold only 0 and 1 … phasor.positions.packed
positions.from_mask(torch.tensor([[0.0, -INF]])) => mask must hold only 0 and 1
positions.decode(torch.tensor([5.0])) => cached must hold integers, got torch.float32
positions.decode(torch.tensor([-1])) => cached … at least 0, got [-1]
positions.decode(torch.tensor([1]), 0) => new must be an integer of at least 1, got 0
positions.text(torch.arange(3), axes=0) => axes … at least 1, got 0
positions.grid() => sizes must name at least one axis, got none … grid(height, width)
positions.grid(2, 0) => sizes[1] … at least 1, got 0
positions.mrope([]) => segments must name at least one run of text or one grid, got none
positions.mrope([2, 0]) => segments[1] … at least 1, got 0
positions.mrope([(1, 2, 3, 4)]) => segments[0] … got (1, 2, 3, 4)
positions.mrope([(2, 0)]) => at least 1, got 0
""",
    globals(),
    of=OF,
)


def test_unknown_arguments_are_refused():
    """Nothing goes by its place."""
    with pytest.raises(TypeError):
        RotarySpec(8)


def test_the_edges_are_allowed():
    """One step inside the bounds above."""
    RotarySpec(head_dim=2, base=1.0000001)
    RotarySpec(head_dim=3, rotary_dim=2)
    Proportional(1.0)
    DynamicNTK(1.0, 1)
    Llama3(1.0, 1.0, 1.0, 1)
    YaRN(1.0, 1, beta_fast=1.0, beta_slow=1.0)
    YaRN(2.0, 4096, mscale=0.0, mscale_all_dim=0.0)
    YaRNPaper(1.0, 1, alpha=0.0)
    Sections((0, 1))
    apply_rotary(X, ROTATION)
    apply_rotary(X, PER_HEAD)
    apply_rotary(X, BATCHED.slice(0, 5).replace(cos=BATCHED.cos[:2], sin=BATCHED.sin[:2]))
    positions.decode(torch.tensor([0]))
    positions.packed(torch.tensor([0, 0]))
