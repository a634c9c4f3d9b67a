"""A model that the lab trains, small and short."""

import asyncio
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As transformers loads it, in halves: 200 steps on a few of Python's own modules, byte by byte."""
    from phasor_lab.lab import ModelConfig, RunConfig, read_text, train
    from phasor_lab.lab.export import export
    from phasor_lab.lab.train import load_model

    text = read_text(sorted(Path(asyncio.__file__).parent.glob("*.py")))
    model = ModelConfig(dim=64, heads=2, layers=3, length=64)
    folder = tmp_path_factory.mktemp("trained")
    train(RunConfig(model=model, tokens=200 * 8 * 64, batch=8, source=text.sha256), folder / "run", text)
    return export(load_model(folder / "run")[0], folder / "model")
