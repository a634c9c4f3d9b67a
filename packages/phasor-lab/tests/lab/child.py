"""What a test lets another process do, in order to kill it, to fill its disk, or to have two of them."""

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from phasor_lab.lab import RunConfig, read_text, train, training


def train_in_child(
    config: RunConfig,
    folder: Path,
    text_file: Path,
    checkpoint_every: int = 2,
    environment: dict[str, str] | None = None,
    largest_file: int | None = None,
    killed: bool = False,
) -> None:
    """Train. With ``largest_file`` files cannot grow beyond that. An error goes to ``error.txt`` beside the folder.

    ``killed``: by itself, right after its first checkpoint.
    """
    torch.set_num_threads(1)
    os.environ.update(environment or {})
    text = read_text([text_file])
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    if killed:
        save = training.write_tensors

        def save_and_die(*arguments: Any) -> None:
            save(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        training.write_tensors = save_and_die
    try:
        train(config, folder, text, checkpoint_every=checkpoint_every)
    except OSError as error:
        folder.with_name("error.txt").write_text(str(error))


def threads_at_the_end(
    config: RunConfig, folder: Path, text_file: Path, environment: dict[str, str], interrupted: bool
) -> None:
    """The threads of torch's process group in a step and where the group was destroyed, into ``threads.RANK.json``."""
    torch.set_num_threads(1)
    os.environ.update(environment)
    told: dict[str, object] = {"error": ""}
    clip, destroy = torch.nn.utils.clip_grad_norm_, dist.destroy_process_group

    def step(*args: object) -> object:
        told["in a step"] = group_threads()
        if interrupted:
            raise KeyboardInterrupt
        return clip(*args)

    def end() -> None:
        destroy()
        told["at the end"] = group_threads()

    torch.nn.utils.clip_grad_norm_, dist.destroy_process_group = step, end
    try:
        train(config, folder, read_text([text_file]))
    except (ValueError, RuntimeError, KeyboardInterrupt) as error:
        told["error"] = type(error).__name__
    folder.with_name(f"threads.{environment['RANK']}.json").write_text(json.dumps(told))


def group_threads() -> list[str]:
    """The names of this process's threads that gloo started."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]
