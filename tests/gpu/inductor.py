"""Prints what torch.compile writes for an H200 that is not here, for the words of `CASES` that it is called with.

A program of its own, for it puts numbers of that GPU in place of torch's questions. Nothing is run: fake tensors have
shapes and a device only, and the code is printed where it would be compiled.
"""

import contextlib
import sys
from types import SimpleNamespace
from unittest import mock

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from phasor import RotarySpec, rotate
from phasor.rotary.kernels.triton import operator

H200 = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536, warp_size=32,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, shared_memory_per_block_optin=232448,
    total_memory=141 * 2**30, L2_cache_size=50 * 2**20,
)  # fmt: skip
SPEC = RotarySpec(head_dim=128)


def many(q, k, of_q, of_k, positions):
    return rotate(q, k, positions, SPEC)


def few(q, k, of_q, of_k, positions):
    """After a norm of the model's own."""

    def normalized(x, weight):
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return many(normalized(q, of_q), normalized(k, of_k), of_q, of_k, positions)


# name -> what is compiled, of how many tokens, and whether it is the way back
CASES = {"many": (many, 512, False), "many, back": (many, 512, True), "few": (few, 64, False)}


def write(graph):
    print(graph.codegen()[0].value)
    return SimpleNamespace(call=lambda given: graph.module(*given), __file__=__file__, runner=None)


def h200():
    answers = {"get_device_properties": lambda device=None: H200, "get_compute_capability": lambda device=None: 90}
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


def compiled(call, size, back):
    torch._dynamo.reset()
    with contextlib.nullcontext() if back else FakeTensorMode(), torch.device("cpu" if back else "cuda"):
        projected = (torch.empty(1, size, h, 128, dtype=torch.bfloat16) for h in (32, 8))
        weights = (torch.empty(128, dtype=torch.bfloat16) for _ in range(2))
        given = *(x.transpose(1, 2) for x in projected), *weights, torch.empty(size, dtype=torch.int64)
        if back:
            compile_back(call, *given)
        else:
            torch.compile(call, fullgraph=True)(*given)


def compile_back(call, *given):
    """Autograd needs its device: what it traces on a CPU, with the kernels of a GPU, is moved there and compiled."""
    graphs = []

    def kept(graph, _):
        graphs.append(graph)
        results = [None if node is None else like(node.meta["val"]) for node in graph.graph.output_node().args[0]]
        return make_boxed_func(lambda *_: results)

    backend = aot_autograd(
        fw_compiler=kept, bw_compiler=kept, decompositions=select_decomp_table(),
        partition_fn=min_cut_rematerialization_partition,
    )  # fmt: skip
    leaves = [x.requires_grad_() for x in given[:-1]]
    with mock.patch.object(operator, "INTERPRETED", True):
        results = torch.compile(call, fullgraph=True, backend=backend)(*leaves, given[-1])
        torch.autograd.grad(results, leaves, [like(y) for y in results], allow_unused=True)
    on_a_gpu(graphs[1])


def on_a_gpu(graph):
    """Compiled as if it had been traced there."""
    cuda, inputs = torch.device("cuda", 0), graph.graph.find_nodes(op="placeholder")
    with inputs[0].meta["val"].fake_mode:
        for node in graph.graph.nodes:
            node.meta["val"] = tree_map_only(torch.Tensor, lambda x: like(x, cuda), node.meta.get("val"))
            if node.op == "get_attr":
                setattr(graph, node.target, like(getattr(graph, node.target), cuda))
            node.kwargs = {word: cuda if word == "device" else value for word, value in node.kwargs.items()}
    compile_fx_inner(graph, [node.meta["val"] for node in inputs], is_backward=True)


def like(x, device=None):
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)


def main():
    driver.set_active(SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32)))
    with contextlib.ExitStack() as stack:
        for change in h200():
            stack.enter_context(change)
        for case in sys.argv[1:]:
            print(f"### {case}")
            compiled(*CASES[case])


if __name__ == "__main__":
    main()
