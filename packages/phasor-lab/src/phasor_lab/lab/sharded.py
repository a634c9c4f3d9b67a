"""A training whose weights, gradients and moments are sharded over the processes, by torch's FSDP2."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ..run_folder.tensors import check_like
from .model import Decoder
from .training import DecoderTraining


class ShardedTraining(DecoderTraining):
    """The shards that this process has of a model and its optimizer, between two steps."""

    def initial_model(self) -> Decoder:
        model, mesh = super().initial_model(), init_device_mesh("cpu", (self.group.size,))
        for module in (*model.layers, model):
            fully_shard(module, mesh=mesh)
        return model

    def backward(self, loss: Tensor) -> None:
        """FSDP takes the mean of what its processes have, and losses here are parts of a sum."""
        (loss * self.group.size).backward()

    def fill(self, saved: Mapping[str, Tensor]) -> None:
        """Every process has read the whole checkpoint, and keeps its part."""
        check_like(saved, self.tensors)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                part = saved[name]
                if isinstance(tensor, DTensor):
                    part = distribute_tensor(part, tensor.device_mesh, tensor.placements, src_data_rank=None)
                tensor.copy_(part)

    def whole_tensors(self) -> dict[str, Tensor]:
        return {name: x.full_tensor() if isinstance(x, DTensor) else x for name, x in self.tensors.items()}
