"""A training that tests let other processes do, in order to kill it: a small one of the lab."""

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)  # the number of threads decides how sums are rounded


def lab(folder: Path) -> None:
    """30 steps on this file, a checkpoint every third."""
    from phasor_lab.lab import ModelConfig, RunConfig, read_text, train

    text = read_text([__file__])
    model = ModelConfig(layers=1, dim=16, heads=2, length=16)
    train(RunConfig(model=model, tokens=30 * 8 * 16, batch=8, source=text.sha256), folder, text, checkpoint_every=3)


def run(folder: Path) -> None:
    """It; its error, if it is a user's, goes to ``folder`` with .error."""
    torch.set_num_threads(1)
    try:
        lab(folder)
    except ValueError as error:
        folder.with_suffix(".error").write_text(str(error))
        sys.exit(2)
