"""A patched Llama in two processes against one, by FSDP2, by tensor parallel and by `patched_ways`: the loss and every
gradient.

torchrun --standalone --nproc-per-node 2 patched.py [all]     without ``all`` in float64 alone
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

import phasor
from leave import leave
from parallel.patched_ways import WAYS, plain_loss

BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}  # of a gradient's norm
PLAN = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}, "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
}  # fmt: skip


def model(dtype):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_theta=500.0, attn_implementation="sdpa",
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype)


def by_fsdp(made):
    for layer in made.model.layers:
        fully_shard(layer)
    return fully_shard(made)


def by_tensor(made):
    mesh = init_device_mesh("cpu", (2,))
    for layer in made.model.layers:
        parallelize_module(layer, mesh, PLAN)
    return made


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def main():
    dist.init_process_group("gloo")
    tokens = torch.randint(0, 64, (2, 36), generator=torch.Generator().manual_seed(1))
    cells, failed = 0, []
    for dtype, bound in list(BOUND.items())[: 2 if "all" in sys.argv else 1]:
        one = model(dtype)
        loss = one(tokens, labels=tokens).loss
        loss.backward()
        gradients = {name: p.grad for name, p in one.named_parameters()}
        for name, sharded in (("fsdp", by_fsdp), ("tensor", by_tensor)):
            for before in (True, False):  # patched, then sharded; and the other way
                made = model(dtype)
                patched = phasor.patch(made) if before else None
                made = sharded(made)
                patched = patched or phasor.patch(made)
                assert patched.replaced, str(patched)
                here = made(
                    tokens, labels=tokens
                ).loss  # every rank has all rows: FSDP takes the mean of equal gradients
                here.backward()
                off = [abs(here.item() - loss.item()) / loss.item()]
                off += [
                    float((whole(p.grad) - gradients[key]).norm() / gradients[key].norm())
                    for key, p in made.named_parameters()
                ]
                cells += 1
                if not max(off) <= bound:
                    failed.append((str(dtype), name, before, max(off)))
        one.zero_grad()
        loss = plain_loss(one, tokens)
        loss.backward()
        gradients = {name: p.grad for name, p in one.named_parameters()}
        for name, way in WAYS.items():
            found, grads = way(model(dtype), tokens)
            off = [abs(found - loss.item()) / loss.item()]
            off += [float((whole(g) - gradients[key]).norm() / gradients[key].norm()) for key, g in grads.items()]
            cells += 1
            if not max(off) <= bound:
                failed.append((str(dtype), name, max(off)))
    dist.barrier()
    if dist.get_rank() == 0 or failed:
        print(f"{cells} cells, failed: {failed}")
    leave(bool(failed))


if __name__ == "__main__":
    main()
