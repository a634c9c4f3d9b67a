"""A text of our own, small models of it, and runs that train in processes of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import limited
from phasor_lab.lab import ModelConfig, RunConfig, Text, read_text

from . import child


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Threads cost more than they save at these sizes, and the number of them decides how sums are rounded."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 kB that a small model can learn something from: sentences of a few words each."""
    words = ["the", "cat", "dog", "sees", "a", "tree", "and", "then", "runs", "home", "over", "under", "stone"]
    lines = (" ".join(words[(7 * i + 3 * j * j) % len(words)] for j in range(8)) + ".\n" for i in range(1000))
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def text(text_file: Path) -> Text:
    return read_text([text_file])


@pytest.fixture
def config(text: Text) -> RunConfig:
    """30 steps of a very small rotary model."""
    model = ModelConfig(layers=2, dim=16, heads=2, length=16)
    return RunConfig(model=model, tokens=30 * 8 * 16, batch=8, source=text.sha256)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., limited.Child]]:
    """Start ``child.train_in_child(*args)``, or another target, in a process that has torch already."""
    # an optimizer imports the second
    with limited.children("torch", "torch._dynamo", "phasor_lab.lab") as start:

        def run(*args: object, target: Callable[..., None] = child.train_in_child) -> limited.Child:
            return start(target, *args)

        yield run
