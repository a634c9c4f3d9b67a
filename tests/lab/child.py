"""What a test lets another process do, in order to kill it, to fill its disk, or to have two of them."""

import os
import resource
from pathlib import Path

import torch

from phasor.apps.lab import RunConfig, read_text, train


def train_in_child(
    config: RunConfig,
    folder: Path,
    text_file: Path,
    checkpoint_every: int = 2,
    environment: dict[str, str] | None = None,
    largest_file: int | None = None,
) -> None:
    """Train. With ``largest_file`` files cannot grow beyond that. An error goes to ``error.txt`` beside the folder."""
    torch.set_num_threads(1)
    os.environ.update(environment or {})
    text = read_text([text_file])
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        train(config, folder, text, checkpoint_every=checkpoint_every)
    except OSError as error:
        folder.with_name("error.txt").write_text(str(error))
