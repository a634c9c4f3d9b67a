"""What builders, shards and checks of positions refuse; those of segments and kinds stand in `test_builders`."""

import torch
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

from phasor import positions
from refused import refused

T = torch.tensor
ARANGE = torch.arange(8)
IMAGE = T([[0, 0, 1, 1, 1, 1, 0, 0]])
GRIDS = T([[1, 4, 8], [3, 8, 4], [2, 12, 4]])
IDS = T([[5, 1, 9, 9, 2]])


def checked(**more):
    return positions.check(ARANGE, ARANGE, **more)


def cut(bounds):
    return positions.shard(ARANGE, (0, 2), "per-document", cu_seqlens=T(bounds))


def canvas(**changes):
    return positions.from_canvas(IDS, (IDS == 9).long(), slice_start=3, marks=(1, 2, 4, 6), merge=1, **changes)


def packed(documents):
    return positions.pack(torch.zeros(1, 3).long(), positions.Rule(), T(documents))


test_refused = refused(
    """
# check
check(ARANGE, None) => position_ids must be a tensor of numbers, got NoneType
check(ARANGE.float(), ARANGE) => input_ids must hold integers
check(ARANGE[:0], ARANGE[:0]) => input_ids must hold tokens
check(torch.zeros(1, 4).bool(), ARANGE[:4]) => input_ids must hold integers, got torch.bool
check(torch.zeros(1, 4), ARANGE[:4]) => input_ids must hold integers, got torch.float32
check(ARANGE, ARANGE, torch.ones(1, 1, 8, 8)) => attention_mask must be a tensor with 2 dimensions
check(ARANGE, ARANGE, -ARANGE[None]) => attention_mask must be [batch, seq]
checked(axes=0) => axes must be an integer
checked(text_plane=True) => text_plane needs axes
checked(kinds=IMAGE) => kinds and rule must be given together
checked(kinds=IMAGE, rule=Rule(merge=2)) => must have 1 axes
checked(cached=torch.zeros(2).long()) => cached must hold one length for each of 1 rows
checked(cached=[1, 2]) => cached must hold one length for each of 1 rows, or be one for all, got 2
checked(cached=-1) => cached must be an integer of at least 0, got -1
checked(cached=[True]) => cached must be an integer of at least 0, got True
checked(cached='1') => cached must be an integer of at least 0, got '1'
checked(cached=T([0.5])) => cached must hold integers, got torch.float32
checked(pad=0.5) => pad must be an integer of at least -1, got 0.5
checked(places=ARANGE[:3]) => places must hold the column
# shards
shard(torch.arange(10), (0, 4), 'contiguous') => lengths that divide by 4 (4 ranks), got 10
shard(torch.arange(12), (0, 4)) => divide by 8 (2 x 4 ranks, for scheme='head-tail'), got 12
shard(ARANGE, (2, 2)) => with a rank below 2, got 2
shard_order(8, 0, 'striped') => size must be an integer of at least 1, got 0
shard_order(0, 2, 'striped') => length must be an integer of at least 1, got 0
shard(ARANGE, 2) => over must be (rank, size) or a DeviceMesh, got int
shard(ARANGE, (0, 2), 'zigzag') => scheme must be 'contiguous', … got 'zigzag'
shard(ARANGE, (0, 2), 'per-document') => cu_seqlens belongs to scheme='per-document'
shard(ARANGE, (0, 2), cu_seqlens=T([0, 8])) => cu_seqlens belongs to
cut([0, 6, 8]) => document 0 too: pad it
cut([0, 4]) => rise from 0 to the 8 tokens
shard([1, 2], (0, 2)) => x must be a tensor with the tokens along dim=-1, got list
gather(torch.arange(4)) => shards must be a list, one of each rank
shard(ARANGE, (0, 2), _HeadTailLoadBalancer(16, 2, 'cpu')) => order the 8 tokens of 2 ranks
check_shards([], ARANGE) => shards must be a list of tensors, one of each rank, got list
check_shards(ARANGE, ARANGE) => shards must be a list of tensors, one of each rank, got Tensor
check_shards([torch.arange(4.0)], ARANGE) => shards[0] must hold integers, got torch.float32
check_shards([torch.zeros(3, 2, 4).long()], torch.zeros(2, 4).long()) => shards[0] must have the rows and axes of whole
check_shards([torch.zeros(1, 4).long()], torch.zeros(2, 4).long()) => shards[0] must have the rows and axes of whole
check_shards([ARANGE], 4) => whole must be positions [S], [B, S] or [axes, B, S] with values, got int
check_shards([ARANGE[::2], ARANGE[1::2]], ARANGE, k_positions=ARANGE + 1) => k_positions must be those of all ranks'
    tokens
# grids
patches([[1, 2, 2]]) => grids must be a tensor with 2 dimensions [n, 3] … got list
patches(torch.ones(1, 3)) => grids must hold integers, got torch.float32
patches(T([[1, 2]])) => grids must hold (frames, height, width) … got (1, 2) at 0
patches(T([[1, 2, 0]])) => grids must hold … at least 1, got (1, 2, 0) at 0
patches(GRIDS, 3) => grids[0] must have a height and width that 3 divides … (4, 8)
patches(GRIDS, [1, 2]) => merge must be one number, or one per grid: 3 grids, got 2
patches(GRIDS, '2') => merge must be a list or tuple, got '2'
patches(GRIDS, 0) => merge[0] must be an integer of at least 1, got 0
grid(2, start=-(2**62) - 1) => start must be an integer of at least -4611686018427387904
centres(0, 2) => height must be an integer of at least 1, got 0
centres(2, 0.5) => width must be an integer of at least 1, got 0.5
# pictures
pictures() => sizes must name at least one picture, got none
pictures((4,)) => sizes[0] must be (rows, columns) or (frames, rows, columns), got (4,)
pictures((4, 0)) => sizes[0][1] must be an integer of at least 1, got 0
pictures((4, 4), grid='centered') => grid must be … centred … , got 'centered'
pictures((4, 4), grid='spread', base=(7,)) => base must be (rows, columns), got (7,)
pictures((4, 4), grid='cropped', base=(0, 3)) => base[0] must be a finite number above 0, got 0
pictures((4, 4), grid='cropped') => base must be (rows, columns), … got None for 'cropped'
pictures((4, 4), base=(8, 8)) => or None for a grid without one, got (8, 8) for 'counted'
pictures((4, 4), first=1, text=2) => first is for text on a plane of its own, got 1 with text_at 'still'
pictures((4, 4), text=-1) => text must be … at least 0, got -1
pictures((4, 4), planes=[0, 1]) => planes must be one for each of 1 pictures, got 2
pictures((4, 4), text=2, text_at='behind') => text_at must be … plane … , got 'behind'
pictures((4, 4), frame_step=0) => frame_step must be … above 0, got 0
# a canvas, and documents of several pictures
canvas() => got none for kind 1
canvas(image_sizes=T([[1, 3]])) => kinds must hold a mark and 1 x 3 tokens, got 2 tokens
canvas(image_sizes=T([[1, 2], [1, 2]])) => kinds must hold a run for every size, got 1 sizes too many
canvas(mask=torch.ones(1, 2)) => kinds and mask must have the shape (1, 5) of input_ids
canvas(image_sizes=[[1, 2]]) => image_sizes must be a tensor with 2 dimensions [n, 2], got list
packed([[0, 1, 0]]) => got 0 again at row 0, token 2; number the documents of the whole batch
packed([[0, 0]]) => documents must have the shape (1, 3) of kinds, got (1, 2)
packed([0, 0, 0]) => documents
""",
    globals() | {"_HeadTailLoadBalancer": _HeadTailLoadBalancer},
    of=(positions,),
)
