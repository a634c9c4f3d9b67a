"""What a forked process of a test does: a script of this folder, or a training of the lab, for tests that kill it."""

import os
import sys
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist

from phasor_lab.lab import ModelConfig, RunConfig, read_text, train


def script(name: str, environment: dict[str, str]) -> None:
    """As torchrun starts it."""
    os.environ.update(environment)
    sys.argv = [name]  # not the words of pytest
    import_module(f"parallel.{name}").main()


def run(folder: Path, environment: dict[str, str], fsdp: bool) -> None:
    """24 steps, a checkpoint every third."""
    torch.set_num_threads(1)
    os.environ.update(environment)
    model, text = ModelConfig(layers=1, dim=16, heads=2, length=16), read_text([__file__])
    config = RunConfig(model=model, tokens=24 * 128, batch=8, source=text.sha256)
    code = 0
    try:
        train(config, folder, text, checkpoint_every=3, fsdp=fsdp)
    except (ValueError, RuntimeError) as error:  # the other one was killed
        print(error, file=sys.stderr)
        code = 1
    assert not dist.is_initialized()
    sys.stderr.flush()
    os._exit(code)  # meshes hold the group beyond its end
