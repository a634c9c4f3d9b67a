"""The lab's training over several processes against one: the loss and every gradient, and the bytes that are sent.

torchrun --standalone --nproc-per-node 2 training.py [out.json]
"""

import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from leave import leave
from phasor_lab.lab import ModelConfig, RunConfig, read_text
from phasor_lab.lab.train import training_of
from phasor_lab.lab.training import DecoderTraining
from phasor_lab.processes import Group

BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}  # of a gradient's norm
ENCODINGS = ("rotary", "t5", "learned", "transformer_xl")


class Sent(TorchDispatchMode):
    """Bytes that collective calls take in, by dtype."""

    def __init__(self):
        super().__init__()
        self.bytes = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in function.namespace and "wait" not in function.__name__:
            for x in torch.utils._pytree.tree_leaves(args):
                if isinstance(x, torch.Tensor):
                    self.bytes[str(x.dtype)] += x.numel() * x.element_size()
        return function(*args, **(kwargs or {}))


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def cell(encoding, fsdp, dtype):
    """The largest difference, in units of the loss or of a gradient's norm, and the bytes sent."""
    torch.set_default_dtype(dtype)
    model = ModelConfig(encoding=encoding, layers=2, dim=32, heads=4, length=32, base=500.0)
    text = read_text([__file__])
    config = RunConfig(model=model, tokens=1024, batch=8, source=text.sha256)
    one = DecoderTraining(config, text, Group())
    loss = one.gradients(0)
    many = training_of(config, text, Group(dist.get_rank(), dist.get_world_size()), fsdp)
    with Sent() as sent:
        here = many.gradients(0)
    off = [abs(float(here - loss)) / float(loss)]
    expected = dict(one.model.named_parameters())
    for name, weight in many.model.named_parameters():
        gradient = expected[name].grad
        if gradient is None:
            assert weight.grad is None, name
            continue
        off.append(float((whole(weight.grad) - gradient).norm() / gradient.norm()))
    one.clip(), many.clip()
    off += [
        float((whole(weight.grad) - expected[name].grad).norm() / expected[name].grad.norm())
        for name, weight in many.model.named_parameters()
        if weight.grad is not None
    ]
    return max(off), dict(sent.bytes)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows, failed = [], []
    for encoding, fsdp, dtype in product(ENCODINGS, (False, True), BOUND):
        off, sent = cell(encoding, fsdp, dtype)
        rows.append({"encoding": encoding, "fsdp": fsdp, "dtype": str(dtype), "off": off, "sent": sent})
        if not off <= BOUND[dtype] or any(word.startswith("torch.int") for word in sent):
            failed.append(rows[-1])
    if dist.get_rank() == 0:
        print(f"{len(rows)} cells, failed: {failed}", flush=True)
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    leave(bool(failed))


if __name__ == "__main__":
    main()
