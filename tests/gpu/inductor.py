"""Prints what torch.compile writes for an H200 that is not here, for the cases that it is called with.

A program of its own, for it puts numbers of that GPU in place of torch's questions. Nothing is run: fake tensors have
shapes and a device only, and the code is printed where it would be compiled.
"""

import contextlib
import sys
from types import SimpleNamespace
from unittest import mock

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary_qk, rotate

H200 = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536, warp_size=32,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, shared_memory_per_block_optin=232448,
    total_memory=141 * 2**30, L2_cache_size=50 * 2**20,
)  # fmt: skip
SPECS = {
    "halves": RotarySpec(head_dim=128),
    "interleaved": RotarySpec(head_dim=128, interleaved=True),
}


def normalized(x, weight):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def calls(spec):
    """What is compiled, of q, k, their weights and positions."""

    def turned(q, k, of_q, of_k, positions, **about):
        return rotate(q, k, positions, spec, **about)

    def own_norm(q, k, of_q, of_k, positions, **about):
        return turned(normalized(q, of_q), normalized(k, of_k), of_q, of_k, positions, **about)

    def norm(q, k, of_q, of_k, positions):
        return apply_qk_norm_rotary(q, k, Rotation.at(spec, positions), of_q, of_k)

    def tables(q, k, of_q, of_k, positions):
        return apply_rotary_qk(q, k, Rotation.at(spec, positions))

    def plain(*given):
        return turned(*given, kernel="reference")

    def plain_own_norm(*given):
        return own_norm(*given, kernel="reference")

    return locals()


def write(graph):
    print(graph.codegen()[0].value)
    return SimpleNamespace(call=lambda given: graph.module(*given), __file__=__file__, runner=None)


def h200():
    answers = {
        "get_device_properties": lambda device=None: H200,
        "get_compute_capability": lambda device=None: 90,
    }
    yield from (mock.patch.object(CudaInterface, name, staticmethod(answer)) for name, answer in answers.items())
    yield mock.patch.object(CudaInterface.Worker, "get_device_properties", staticmethod(lambda device=None: H200))
    yield mock.patch("torch.cuda.get_device_properties", return_value=H200)
    yield mock.patch("torch.cuda.get_device_capability", return_value=(9, 0))
    yield mock.patch("torch.cuda.current_device", return_value=0)
    yield mock.patch("torch._inductor.scheduler.has_triton", return_value=True)
    yield mock.patch("torch._inductor.compile_fx._check_triton_bf16_support")
    yield mock.patch("torch._inductor.fx_passes.misc_patterns._misc_patterns_init")
    yield mock.patch.object(GraphLowering, "constant_name", lambda graph, name, device: name)  # the steps stay here
    yield mock.patch.object(GraphLowering, "compile_to_module", write)
    yield config.patch(force_disable_caches=True, compile_threads=1)


def compiled(spec, name, tokens, batch=1):
    torch._dynamo.reset()
    call, size = calls(SPECS[spec])[name], int(tokens)
    q, k = (torch.empty(int(batch), size, h, 128, dtype=torch.bfloat16, device="cuda") for h in (32, 8))
    weights = (torch.empty(128, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    positions = torch.empty(size, dtype=torch.int64, device="cuda")
    torch.compile(call, fullgraph=True)(q.transpose(1, 2), k.transpose(1, 2), *weights, positions)  # as projections are


def main():
    driver.set_active(SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32)))
    with contextlib.ExitStack() as stack:
        for change in h200():
            stack.enter_context(change)
        stack.enter_context(FakeTensorMode())
        for case in sys.argv[1:]:
            print(f"### {case}")
            compiled(*case.split("/"))


if __name__ == "__main__":
    main()
