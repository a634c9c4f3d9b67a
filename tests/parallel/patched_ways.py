"""A patched Llama by ways that cut it otherwise: transformers' own plan, stages of a pipeline, tokens of each sequence.

Each gives the loss, and the gradients that this process has by name.
"""

import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Shard
from transformers import AttentionInterface, LlamaForCausalLM
from transformers.distributed import DistributedConfig

import phasor
from phasor.positions import shard


def loss_of(logits, targets):
    """The sum over all targets but those of -100."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def next_tokens(tokens):
    return F.pad(tokens[:, 1:], (0, 1), value=-100)


def plain_loss(model, tokens):
    """In the dtype of the model: transformers' own is in float32."""
    targets = next_tokens(tokens)
    return loss_of(model(tokens).logits, targets) / (targets >= 0).sum()


def by_plan(model, tokens):
    """``tp_plan="auto"`` reads a folder, and every process keeps its part of the weights."""
    at = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(at)
    if dist.get_rank() == 0:
        model.save_pretrained(at[0])
    dist.barrier()
    made = LlamaForCausalLM.from_pretrained(
        at[0], dtype=model.dtype, distributed_config=DistributedConfig(tp_plan="auto")
    )
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(at[0])
    assert phasor.patch(made).replaced
    assert made.model.layers[0].self_attn.q_proj.weight.to_local().shape[0] == 16
    loss = plain_loss(made, tokens)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in made.named_parameters()}


class First(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        """Hidden states, and the tables that the next stage cannot make."""
        hidden = self.model.embed_tokens(tokens)
        tables = self.model.rotary_emb(hidden, torch.arange(tokens.shape[1])[None])
        hidden = self.model.layers[0](hidden, position_embeddings=tables)
        return hidden, *(table.expand(len(tokens), -1, -1).contiguous() for table in tables)


class Second(nn.Module):
    """Without an embedding of tokens, and without a rotary module."""

    def __init__(self, model):
        super().__init__()
        self.layer, self.norm, self.head = model.model.layers[1], model.model.norm, model.lm_head
        assert not any("Rotary" in type(module).__name__ for module in self.modules())

    def forward(self, hidden, cos, sin):
        return self.head(self.norm(self.layer(hidden, position_embeddings=(cos, sin))))


def by_stages(model, tokens):
    """Two stages and two microbatches."""
    assert phasor.patch(model).replaced
    names = {id(p): name for name, p in model.named_parameters()}
    rank, targets = dist.get_rank(), next_tokens(tokens)
    stage = PipelineStage(Second(model) if rank else First(model.model), rank, 2, torch.device("cpu"))
    count = int((targets >= 0).sum())
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, t: loss_of(y, t) / count, scale_grads=False)
    losses = []
    if rank:
        schedule.step(target=targets, losses=losses)
    else:
        schedule.step(tokens)
    loss = torch.stack(losses).sum().to(model.dtype) if rank else torch.zeros((), dtype=model.dtype)
    dist.broadcast(loss, 1)
    return loss.item(), {names[id(p)]: p.grad for p in stage.submod.parameters() if p.grad is not None}


def by_tokens(model, tokens):
    """Each process has a head and a tail of every sequence, and gathers the keys and values of the other."""
    mesh = init_device_mesh("cpu", (2,))
    length = tokens.shape[1]
    here = shard(torch.arange(length), mesh)
    keys = torch.cat([shard(torch.arange(length), (rank, 2)) for rank in range(2)])

    def gathered(x):
        return DTensor.from_local(x, mesh, [Shard(2)], run_check=False).full_tensor(grad_placements=[Partial()])

    def attend(module, q, k, v, mask, **options):
        seen = keys <= here[:, None]
        out = F.scaled_dot_product_attention(q, gathered(k), gathered(v), attn_mask=seen, enable_gqa=True)
        return out.transpose(1, 2), None

    AttentionInterface.register("gathered", attend)
    model.set_attn_implementation("gathered")
    assert phasor.patch(model).replaced
    targets = next_tokens(tokens)
    logits = model(shard(tokens, mesh), position_ids=here[None].expand(len(tokens), -1), use_cache=False).logits
    loss = loss_of(logits, shard(targets, mesh)) / (targets >= 0).sum()
    loss.backward()
    total = loss.detach()
    dist.all_reduce(total)
    for p in model.parameters():
        dist.all_reduce(p.grad)
    return total.item(), {name: p.grad for name, p in model.named_parameters()}


WAYS = {"plan": by_plan, "stages": by_stages, "tokens": by_tokens}
