"""One of the processes of a sharded model that is built on the meta device: `python -m doctor.sharded OUT`."""

import copy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from integrations.models import logits
from integrations.sick import buffers, healthy
from leave import leave
from phasor.tools.doctor import repair


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    sound = healthy("gemma3")
    expected = logits(sound)
    with torch.device("meta"):
        model = type(sound)(copy.deepcopy(sound.config)).eval()
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for buffer in model.buffers():
        buffer.fill_(1.7e17)  # what memory holds is chance
    set_model_state_dict(model, sound.state_dict(), options=StateDictOptions(full_state_dict=True))
    model.tie_weights()
    before = torch.equal(logits(model), expected)
    report = repair(model)
    pairs = [(b, buffers(sound)[name]) for name, b in model.named_buffers()]
    found = {
        "before": before,
        "after": torch.equal(logits(model), expected) and len(report.mended) == len(pairs),
        "dtypes": {b.dtype for b, _ in pairs},
        "equal": all(torch.equal(a, b) for a, b in pairs),
    }
    torch.save(found, out / f"{dist.get_rank()}.pt")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
