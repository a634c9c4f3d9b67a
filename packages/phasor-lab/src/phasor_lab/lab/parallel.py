"""A training over several processes, by torch's own engine: FSDP2, tensor parallel plans, and sequences that are cut.

The processes form a mesh of data x context x tensor parallel. Attention over a cut sequence gathers the keys and values
of all its parts, on every backend: torch's own context parallel has no backward pass on a CPU.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from phasor.positions.shards import Scheme, shard, shard_order
from phasor.support.checks import whole

from ..processes import Group
from ..run_folder.tensors import check_like
from ..run_folder.training import adamw
from .data import Text
from .model import Decoder, SequencePart
from .run import RunConfig
from .training import DecoderTraining, summed_loss

PLAN = {
    "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
}  # fmt: skip
SCHEME: Scheme = "head-tail"  # two chunks of the sequence for each process, so that all have as much to attend to
WITHOUT_HEADS = ("rotary", "sinusoidal", "learned", "none")  # encodings that no head has a part of its own in


@dataclass(frozen=True)
class Parallel:
    """``cp`` parts of each sequence, ``tp`` parts of the heads and of SwiGLU; what remains of the processes shares the
    rows of a batch. ``fsdp``: weights, gradients and moments are sharded over all but tp."""

    cp: int = 1
    tp: int = 1
    fsdp: bool = False

    def check(self, config: RunConfig, size: int) -> None:
        """Raise ``ValueError`` unless ``size`` processes can train this."""
        whole("cp", self.cp)
        whole("tp", self.tp)
        model, needed = config.model, self.cp * self.tp
        if size % needed:
            raise ValueError(
                f"the number of processes must be a multiple of cp x tp = {needed}, got {size}; "
                f"start them by: torchrun --nproc-per-node {needed}"
            )
        if self.fsdp and size == self.tp:
            raise ValueError(f"fsdp needs two processes or more beside tp={self.tp}, got {size} in all")
        if config.batch % (size // needed):
            raise ValueError(
                f"batch must be a multiple of the {size // needed} processes that share it, got {config.batch}"
            )
        if self.cp > 1 and model.length % (2 * self.cp):
            raise ValueError(f"length must be a multiple of {2 * self.cp} for cp={self.cp}, got {model.length}")
        for name in ("heads", "kv_heads", "hidden"):
            if getattr(model, name) % self.tp:
                raise ValueError(f"{name} must be a multiple of tp={self.tp}, got {getattr(model, name)}")
        if self.tp > 1 and model.encoding not in WITHOUT_HEADS:
            raise ValueError(
                f"encoding must be one of {', '.join(WITHOUT_HEADS)} for tp={self.tp}: "
                f"others have parts for each head; got {model.encoding!r}"
            )


class Mesh:
    """The processes of a training, and which part of everything this one has."""

    def __init__(self, parallel: Parallel, size: int) -> None:
        self.parallel = parallel
        data = size // (parallel.cp * parallel.tp)
        self.all = init_device_mesh("cpu", (data, parallel.cp, parallel.tp), mesh_dim_names=("dp", "cp", "tp"))
        self.data, self.context, self.tensor = self.all["dp"], self.all["cp"], self.all["tp"]
        self.tokens: DeviceMesh = self.all["dp", "cp"]._flatten("tokens")  # those that have other tokens

    def share(self, x: Tensor) -> Tensor:
        """This process's rows and tokens of ``[B, L]``."""
        rows = x.chunk(self.data.size())[self.data.get_local_rank()]
        return shard(rows, self.context, SCHEME)

    def part_of(self, length: int) -> SequencePart:
        """Where this process's tokens stand, and how it gets the keys of the others. No positions are sent."""
        order = shard_order(length, self.parallel.cp, SCHEME)
        return SequencePart(shard(torch.arange(length), self.context, SCHEME), order, self.gathered)

    def gathered(self, x: Tensor) -> Tensor:
        """Keys or values ``[B, H, S, head_dim]`` of all parts of the sequence, in the order of the ranks."""
        if self.parallel.cp == 1:
            return x
        placed = DTensor.from_local(x, self.context, [Shard(2)], run_check=False)
        return placed.full_tensor(grad_placements=[Partial()])  # each rank has the gradient of its own queries

    def sharded(self, model: Decoder) -> Decoder:
        """The model's weights in shards, in place."""
        if self.parallel.tp > 1:
            for layer in model.layers:
                parallelize_module(layer, self.tensor, PLAN)
        if self.parallel.fsdp:
            for module in (*model.layers, model):
                fully_shard(module, mesh=self.tokens)
        return model

    def loss_scale(self) -> int:
        """FSDP takes the mean of what its processes have, and losses here are parts of a sum."""
        return self.tokens.size() if self.parallel.fsdp else 1

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes that have other tokens."""
        value = value.detach().clone()
        dist.all_reduce(value, group=self.tokens.get_group())
        return value

    def total_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Make every gradient the sum over all tokens. FSDP has done so."""
        if self.parallel.fsdp:
            return
        gradients = [local(p.grad) for p in parameters if p.grad is not None]
        sums = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, part in zip(gradients, sums.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


def local(x: Tensor) -> Tensor:
    """What this process holds of it."""
    return x.to_local() if isinstance(x, DTensor) else x


class ParallelTraining(DecoderTraining):
    """The part that this process has of a model and its optimizer, between two steps."""

    def __init__(self, config: RunConfig, text: Text, group: Group, parallel: Parallel) -> None:
        self.mesh = Mesh(parallel, group.size)
        super().__init__(config, text, group)
        self.part = self.mesh.part_of(config.model.length)

    def initial_model(self) -> Decoder:
        return self.mesh.sharded(super().initial_model())

    def optimizer_of(self, parameters: list[nn.Parameter], **options: Any) -> torch.optim.AdamW:
        """One group of weights for each mesh: the fused update takes no others together."""
        groups: dict[Any, list[nn.Parameter]] = {}
        for parameter in parameters:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            groups.setdefault(mesh, []).append(parameter)
        return adamw([{"params": weights} for weights in groups.values()], **options)

    def gradients(self, step: int) -> Tensor:
        tokens, targets = self.batch(step)
        logits = self.model(self.mesh.share(tokens), part=self.part)
        loss = summed_loss(logits, self.mesh.share(targets)) / targets.numel()
        (loss * self.mesh.loss_scale()).backward()
        self.mesh.total_gradients(self.model.parameters())
        return self.mesh.total(loss)

    def clip(self) -> None:
        """As torch does, whose norm takes the weights of one mesh at a time."""
        groups = [group["params"] for group in self.optimizer.param_groups]
        norms = [get_total_norm([p.grad for p in weights if p.grad is not None]) for weights in groups]
        norm = torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]).norm()
        for weights in groups:
            clip_grads_with_norm_(weights, 1.0, norm)

    def fill(self, saved: Mapping[str, Tensor]) -> None:
        """Every process has read the whole checkpoint, and keeps its part."""
        check_like(saved, self.tensors)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                whole_ = saved[name]
                if isinstance(tensor, DTensor):
                    whole_ = distribute_tensor(whole_, tensor.device_mesh, tensor.placements, src_data_rank=None)
                local(tensor).copy_(local(whole_))

    def whole_tensors(self) -> dict[str, Tensor]:
        return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in self.tensors.items()}
