"""What encodings refuse, each in one line; attention's own errors stand with its tests, those of files with theirs."""

import torch

from phasor import RotarySpec, encodings
from phasor.axes import Axial
from phasor.encodings.attention import attention
from phasor.rotary import scaling
from refused import refused

T = torch.arange(12)
X = torch.zeros(1, 12, 16, dtype=torch.float64)
SPEC = RotarySpec(head_dim=8)
PLANE = RotarySpec(head_dim=8, axes=Axial((2, 2)))
Q, FAR = torch.zeros(1, 2, 2, 8), torch.tensor([[0.0, 1.0]] * 2)


def heads(encoding, of_q, of_k=None, dim=8):
    q, k = torch.zeros(1, of_q, 2, dim), torch.zeros(1, of_k or of_q, 2, dim)
    return attention(q, k, k, encoding, q_positions=T[:2])


def whole(encoding):
    """Without a direction of time."""
    return attention(X[None], X[None], X[None], encoding, q_positions=T, causal=False)


def attend(encoding, at=T[:2]):
    x = torch.zeros(1, 1, 2, 8)
    return attention(x, x, x, encoding, q_positions=at)


def bias_of(encoding, *at):
    q = torch.zeros(1, 2, 3, 4)
    return encoding.bias(q, q, *(at or (T[:3], T[:3])), 1.0)


test_refused = refused(
    """
# the first mistakes
Rotary(head_dim=8, base=100.0) => head_dim and base must be in the spec: Rotary(RotarySpec(head_dim=
Rotary() => spec must be a RotarySpec, got NoneType; RotarySpec(head_dim=...) is one
attend(RotarySpec(head_dim=8)) => encoding must be an instance … , got RotarySpec; Rotary(spec)
attend(Rotary) => encoding must be an instance … , got the class Rotary; Rotary(RotarySpec(
attend(None, [0, 1]) => q_positions must be an int64 tensor [S] or [B, S], got list
scaling.YaRN(factor=4.0) => original_max_position must be … , got None; it is the length
scaling.YaRNPaper(factor=4.0) => original_max_position must be … , got None; it is the length
scaling.DynamicNTK(factor=4.0) => original_max_position must be … , got None; it is the length
scaling.SteppedNTK() => original_max_position must be … , got None; it is the length
# sizes
ALiBi(0) => num_heads must be an integer of at least 1, got 0
ALiBi(4, head_offset=4) => total_heads must be at least head_offset …  = 8, got 4; give total_heads=
ALiBi(4, head_offset=-1) => head_offset must be an integer of at least 0, got -1
bias_of(ALiBi(4)) => q must have the 4 heads that ALiBi was made for, got 2; … head_offset
Learned(0, 3) => num_positions must be an integer of at least 1, got 0
Learned(6, 3).embed(X[:, :2, :3], torch.tensor([1, 6])) => learned table of 6 positions (0 to 5), got … 6 … train a
    larger table
Learned(6, 3).embed(X[:, :2, :3], torch.tensor([1, 1000])) => learned table of 6 positions (0 to 5), got … 1000
Learned(6, 3).embed(X[:, :2, :3], torch.tensor([1, -1])) => learned table of 6 positions (0 to 5), got … -1
bias_of(Shaw(8, 2)) => q must have the head_dim 8 of Shaw, got 4
Shaw(8, -1) => max_distance must be an integer of at least 0, got -1
T5Bias(2, bidirectional=True, num_buckets=9) => num_buckets must be even if bidirectional … , got 9
T5Bias(2, bidirectional=False, num_buckets=1) => num_buckets must be an integer of at least 2, got 1
T5Bias(2, bidirectional=False, max_distance=16) => max_distance must be an integer of at least 17
T5Bias(2, bidirectional=False).default_scale(64) => T5 checkpoints use scale=1.0 … 0.125 … scale=None
Sinusoidal(7) => dim must be an even integer of at least 2 … , got 7
Sinusoidal(2, endpoint=True) => dim must be an even integer of at least 4
Sinusoidal(8, base=0) => base must be a finite number above 0, got 0
Sinusoidal(8, layout='halves') => layout must be 'interleaved', 'sin_cos' or 'cos_sin', got 'halves'
sinusoids(T.float(), 8) => positions must be int64, got torch.float32; convert
TransformerXL(2, 4, 0) => dim must be a positive even integer … , got 0
TransformerXL(2, 4, 7) => dim must be a positive even integer … , got 7
TransformerXL(2, 4, 4.0) => dim must be a positive even integer … , got 4.0
bias_of(TransformerXL(4, 4, 16)) => q must have the 4 heads that TransformerXL was made for, got 2
whole(ReRoPE(SPEC, window=5)) => causal must be True for ReRoPE
attention(Q, Q, Q, ReRoPE(SPEC, window=5), q_positions=T[:2], kernel='sdpa') => kernel='sdpa' has one position for each
    token
DualChunk(SPEC, chunk=10, trained=10) => chunk must be less than the trained length, 10, got 10
ReRoPE(RotarySpec(head_dim=8, coordinates='real'), window=2) => spec must have one axis
# heads
heads(KerpleLog(2), 3) => q must have the 2 heads that KerpleLog was made for, got 3
heads(TISA(2), 3) => q must have the 2 heads that TISA was made for, got 3
heads(Sandwich(2), 3) => q must have the 2 heads that Sandwich was made for, got 3
heads(TUPE(2, 8, 4), 3) => q must have the 2 heads that TUPE was made for, got 3
heads(FIRE(2), 3) => q must have the 2 heads that FIRE was made for, got 3
heads(FoPE(2, 8, 64), 3) => q must have the 2 heads that FoPE was made for, got 3
heads(PoPE(2, 8), 3) => q must have the 2 heads that PoPE was made for, got 3
heads(FoPE(2, 8, 64), 2, 1) => k must have the 2 heads that FoPE was made for, … got 1; repeat_interleave
heads(StringCayley(2, 8, axes=1), 2, 1) => k must have the 2 heads that StringCayley … got 1; repeat_interleave
heads(StringCirculant(2, 8, axes=1), 2, 1) => k must have the 2 heads that StringCirculant … got 1; repeat_interleave
heads(LieRE(8, num_heads=2), 2, 1) => k must have the 2 heads that LieRE was made for, … got 1; repeat_interleave
heads(PoPE(2, 4), 2) => q must have the head_dim 4 that PoPE was made for, got 8
# coordinates
heads(RoPEMixed(2, 8), 2) => must go by one position for each token, and RoPEMixed has 2 coordinates; Placed(
heads(Rotary(PLANE), 2) => must go by one position for each token, and Rotary has 2 coordinates; Placed(
RoPEMixed(2, 8)(Q, Q, T[:2]) => coordinates must be [2, S] or [2, B, S] … got [2]; … Placed
LieRE(8)(Q, Q, torch.ones(1)) => must be [S] or [B, S] with S = 2 … for LieRE, got [1]
LieRE(8)(Q, Q, torch.ones(3, 2)) => must be [S] or [B, S] … B = 1 for LieRE, got [3, 2]
RoPEMixed(2, 8)(Q, Q, FAR.half()) => coordinates must be integers, float32 or float64 … got torch.fl
heads(Placed(RoPEMixed(2, 8), FAR[:, :1]), 2) => numbers of the 1 coordinates (0 to 0), got 0 to 1
Placed(ALiBi(2), FAR) => encoding must turn q and k or add to embeddings, got ALiBi
Placed(ReRoPE(SPEC, window=4), FAR[:1]) => encoding must turn q and k … got ReRoPE
Placed(Rotary(SPEC), FAR) => coordinates must be [1, N] for Rotary, one … got [2, 2]
Placed(LieRE(8), FAR[0]) => coordinates must be a tensor [axes, N], got torch.Size([2])
LieRE(8, block=3) => block must divide head_dim=8 … , got 3
StringCayley(2, 7) => head_dim must be even
RoPEMixed(2, 6) => rotary_dim must be a positive multiple of 4
RoPEMixed('2', 8) => num_heads must be an integer of at least 1, got '2'
RoPEMixed(2, '8') => head_dim must be an integer of at least 1, got '8'
XPos(PLANE) => spec must be a RotarySpec with one axis
HoPE(8, 6) => trained must be an integer of at least 7, got 6
PRoPE(8, 0.1) => fraction must keep at least one of 4 pairs, got 0.1
Sandwich(2, dim=5) => dim must be even … , got 5
Sandwich(2, first=2) => first must be 1 (the paper's formula) or 0 (its listing), got 2
TUPE(2, 8, 4).bias(Q, Q, T[4:5], T, 1.0) => learned table of 4 positions … got 4
TUPE(2, 8, 4).bias(Q, Q, T[:1] - 1, T[:1], 1.0) => learned table of 4 positions … got -1
CAPE(3) => dim must be even
CAPE(4, stretch=0.5) => stretch must be a finite number of at least 1, got 0.5
CAPE(16).embed(X, T.half()) => positions must be integers, float32 or float64, got torch.float16
ComplexEmbedding(4, 4).embed(X, T) => x must be the int64 ids of words
FLOATER(16).embed(X, T - 1) => positions must be at least 0, … got -1
BiPE(4, 4, T5Bias(2, bidirectional=False)) => between must be a Rotary or an ALiBi, … got T5Bias
BiPE(4, 4, WindowedRotary(SPEC, window=3)) => between must have no window, … got 3; hide keys
Abacus(16, num_places=4).embed(X, T) => learned table of 4 positions (0 to 3), got 0 to 11
randomised_positions(3, 2) => length must be at most max_length, 2 … , got 3
whole(FIRE(1)) => causal must be True for
whole(XPos(SPEC)) => causal must be True for
whole(BiPE(4, 4, Rotary(SPEC))) => causal must be True for
""",
    globals() | {"scaling": scaling},
    of=(encodings,),
)
