"""What only a card shows: captured graphs, streams, sizes beyond 32 bits, code that inductor compiled, whole models."""

import pytest
import torch

from phasor import RotarySpec, Rotation, rotate
from phasor.caches import apply_rotary_to_cache
from phasor.kernels import warm_up
from phasor.rotary.kernels.triton import operator

from .conftest import DEVICE
from .test_bits import same, there_and_back

pytestmark = [
    pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU here"),
    pytest.mark.filterwarnings("ignore"),  # of inductor and its own processes
]
SPEC = RotarySpec(head_dim=128, base=500_000.0)
HALVES = (torch.bfloat16, torch.float16)
KERNELS = ("triton", "reference")


def qk(*shape, dtype=torch.bfloat16, heads=(32, 8)):
    batch, tokens, width = shape
    return [torch.randn(batch, h, tokens, width, device=DEVICE, dtype=dtype) for h in heads]


def in_slices(q, positions, spec, count=8):
    """The reference, a few heads at a time: it takes float32 copies of what it rotates."""
    return torch.cat([rotate(x, None, positions, spec, kernel="reference")[0] for x in q.split(count, 1)], 1)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("width, rotary", [(128, 128), (96, 96), (80, 80), (128, 64), (80, 32), (256, 256)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_long_prompts_there_and_back(dtype, width, rotary, interleaved):
    spec = RotarySpec(head_dim=width, rotary_dim=rotary, interleaved=interleaved, permuted=interleaved)
    q, k = qk(2, 3000, width, dtype=dtype, heads=(9, 2))
    positions = torch.randint(0, 2**31, (2, 3000), device=DEVICE)
    calls = [there_and_back(lambda q, k, n=n: rotate(q, k, positions, spec, kernel=n), q, k) for n in KERNELS]
    same(*calls)


def test_more_elements_than_a_32_bit_number_counts():
    """2^31 + 2^20 of them, in bfloat16 4.3 GB; the last rows are compared, and some before."""
    tokens = 2**19 + 2**8
    q = torch.empty(1, 32, tokens, 128, device=DEVICE, dtype=torch.bfloat16)
    for part in q.unbind(1):
        part.normal_()
    positions = torch.arange(tokens, device=DEVICE)
    got, _ = rotate(q, None, positions, SPEC, kernel="triton")
    for begin in (0, 2**18, tokens - 2**9):
        rows = slice(begin, begin + 2**9)
        assert torch.equal(got[:, :, rows], in_slices(q[:, :, rows], positions[rows], SPEC))
    last = rotate(q.transpose(1, 2)[:, -1:], None, positions[-1:], SPEC, tensor_format="bshd", kernel="triton")[0]
    assert torch.equal(last.transpose(1, 2), got[:, :, -1:])


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_captured_graph_reads_new_positions(batch):
    """One launch is captured; replays rotate by whatever lies in the tensor of positions then."""
    warm_up(SPEC, 32, 8, device=DEVICE)
    q, k = qk(batch, 1, 128)
    positions = torch.zeros(batch, 1, dtype=torch.int64, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = rotate(q, k, positions, SPEC)
    for number in (0, 5, 131_072, 2**31 - 1):
        positions.copy_(torch.arange(batch, device=DEVICE)[:, None] + number)
        graph.replay()
        same(got, rotate(q, k, positions, SPEC, kernel="reference"))


def test_a_captured_graph_writes_the_cache():
    q, k = qk(8, 1, 128)
    v, weight = torch.randn_like(k), torch.rand(128, device=DEVICE, dtype=k.dtype)
    positions = torch.arange(8, device=DEVICE)[:, None] * 100
    slots = torch.arange(8, device=DEVICE)[:, None] * 3
    given = {"q_weight": weight, "k_weight": weight, "eps": 1e-6}
    rotation = Rotation.at(SPEC, positions)
    caches = [torch.zeros(4, 16, 8, 128, device=DEVICE, dtype=k.dtype) for _ in range(4)]
    apply_rotary_to_cache(q, k, v, rotation, *caches[:2], slots, **given)
    for cache in caches[:2]:
        cache.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = apply_rotary_to_cache(q, k, v, rotation, *caches[:2], slots, **given)
    graph.replay()
    expected = apply_rotary_to_cache(q, k, v, rotation, *caches[2:], slots, **given, kernel="reference")
    torch.testing.assert_close(
        got, expected, rtol=2**-7, atol=2**-7
    )  # norms add in their own order: one bit of bfloat16
    torch.testing.assert_close(caches[:2], caches[2:], rtol=2**-7, atol=2**-7)
    assert torch.equal(caches[1], caches[3])  # values are copied


def test_streams_of_their_own():
    """What one stream wrote is read by a launch in it, while others are at work."""
    q, k = qk(1, 2048, 128)
    positions = torch.arange(2048, device=DEVICE)
    expected = rotate(q, k, positions, SPEC, kernel="reference")
    streams, found = [torch.cuda.Stream() for _ in range(4)], []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(rotate(q.clone(), k.clone(), positions.clone(), SPEC))
    torch.cuda.synchronize()
    for got in found:
        same(got, expected)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("tokens", [1, 4096])
def test_compiled_code(mode, tokens):
    """Of many tokens by the node, whose bits are those of eager mode; of one inlined, where the compiler rounds once
    less. ``reduce-overhead`` is CUDA graphs."""
    torch.compiler.reset()
    q, k = qk(1, tokens, 128)
    positions = torch.arange(tokens, device=DEVICE) + 1000
    call = torch.compile(lambda q, k, p: rotate(q, k, p, SPEC), fullgraph=True, mode=mode)
    for _ in range(4):  # the first ones compile and record
        got = [x.clone() for x in call(q, k, positions)]
    expected = rotate(q, k, positions, SPEC, kernel="reference")
    if q.numel() > operator.FEW:
        same(got, expected)
    torch.testing.assert_close(got, list(expected), rtol=2**-7, atol=2**-6)
