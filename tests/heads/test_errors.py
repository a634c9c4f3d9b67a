"""What heads, their losses and their decoding refuse."""

import math

import torch

from phasor import RotarySpec
from phasor.encodings import heads
from phasor.encodings.heads import GlobalPointer, Span
from phasor.rotary.scaling import DynamicNTK
from refused import refused

HEAD, RELATIONS = (GlobalPointer(16, 3, head_dim=8, tril=tril) for tril in (True, False))
X, MASK = torch.randn(2, 6, 16), torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]])
DYNAMIC = RotarySpec(head_dim=8, scaling=DynamicNTK(factor=2.0, original_max_position=4))
SCORES, ZERO = torch.tensor([[1.0, -math.inf, 2.0]]), torch.zeros(1, 3)
CELLS = torch.full((1, 2, 8, 8), -math.inf)


def loss(*rows, head=HEAD):
    return head.loss(X, torch.tensor(rows), MASK)


def sparse(*positives):
    return heads.sparse_multilabel_cross_entropy(SCORES, torch.tensor(positives))


test_refused = refused(
    """
# heads
GlobalPointer(16, 0) => num_types must be an integer of at least 1, got 0
GlobalPointer(16, 2, head_dim=7) => head_dim must be even to be rotated … , got 7
GlobalPointer(16, 2, tril=1) => tril must be True or False, got 1
GlobalPointer(16, 2, rotary='rope') => rotary must be True, False, None or a RotarySpec, got 'rope'
GlobalPointer(16, 2, rotary=RotarySpec(head_dim=8)) => rotary must be a spec with head_dim=64
GlobalPointer(16, 2, head_dim=8, rotary=DYNAMIC) => seq_len is missing
HEAD(X[0]) => hidden must be [batch, seq, hidden_size=16], got [6, 16]
HEAD(X[..., :8]) => hidden must be [batch, seq, hidden_size=16], got [2, 6, 8]
HEAD(X, torch.ones(2, 7).long()) => mask must be booleans or integers [batch, seq] = [2, 6]
HEAD(X, torch.ones(2, 6)) => 0 where there is no token, got torch.float32 [2, 6]
HEAD(X, positions=torch.arange(7)) => positions
# spans
loss([1, 2, 0, 5], [0, 0, 2, 1]) => spans[1] = (batch 0, type 0, start 2, end 1) ends before it starts
loss([0, 0, 1, 3]) => spans[0] = … reaches from one sentence of mask into another
loss([0, 0, 4, 5]) => spans[0] = … begins or ends where mask has no token
loss([0, 0, 5, 5]) => spans[0] = … begins or ends where mask has no token
loss([2, 0, 0, 0]) => spans[0] = … is outside (batch, type, start, end) < [2, 3, 6, 6]
loss([0, 3, 0, 0]) => spans[0] = … is outside
loss([0, 0, 0, 6]) => spans[0] = … is outside
loss([0, 0, -1, 0]) => spans[0] = … is outside
HEAD.loss(X, [[0, 0, 0, 0]]) => int64 tensor … got list
HEAD.loss(X, torch.zeros(1, 4)) => int64 tensor … got torch.float32
HEAD.loss(X, torch.zeros(4, dtype=torch.int64)) => rows (batch, type, start, end), got torch.int64 [4]
# losses
multilabel_cross_entropy(SCORES, ZERO[0]) => labels must have the shape of scores (1, 3), got (3,
multilabel_cross_entropy(SCORES, ZERO + 1.5) => labels must be booleans or numbers from 0 to 1
multilabel_cross_entropy(SCORES, ZERO - 1) => labels must be booleans or numbers from 0 to 1
multilabel_cross_entropy(SCORES, ZERO + torch.nan) => labels must be booleans or numbers from 0 to 1
multilabel_cross_entropy(SCORES, ZERO + 0.1) => labels must be 0 where scores are -inf
multilabel_cross_entropy(SCORES, ZERO == 0) => labels must be 0 where scores are -inf
sparse([1]) => must not name cells whose score is -i
sparse([3]) => indices from 0 to 2, padded with -1
sparse([-2]) => indices from 0 to 2, padded with -1
sparse([2, 0, 2]) => name each cell once, got one tw
sparse(2) => positives must be int64 (1,) + [P]
sparse([0.0, 0.0, 0.0]) => got torch.float32
# decoding
decode(torch.zeros(2, 3, 3)) => scores must be [batch, num_types, seq, seq], got shape (2, 3, 3)
decode(torch.zeros(1, 1, 2, 3)) => scores must be
decode(CELLS, threshold=1.5) => threshold must be a probability from 0 to 1, got 1.5
decode(CELLS, threshold=-0.1) => threshold must be a finite number of at least 0, got -0.1
decode(CELLS, mode='best') => mode must be 'all', 'nested' or 'flat', got 'best'
select([], 'best') => mode must be 'all', 'nested' or 'flat', got 'best'
select([Span(0, 3, 1, 0.9)], 'flat') => mode must be 'all' for pairs of tokens … a span from 3 to 1
decode(torch.ones(1, 1, 3, 3), mode='nested') => mode must be 'all' for pairs of tokens
""",
    globals() | {"Span": Span},
    of=(heads,),
)


def test_relations_may_end_before_they_start():
    assert loss([0, 0, 2, 1], head=RELATIONS).isfinite()
