"""Training in a folder: batches are a function of (seed, step), so a killed run goes on as if nothing had happened."""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasor.cli.progress import progress as told
from phasor.cli.progress import silent
from phasor.support.checks import whole
from phasor.support.lock import alone
from phasor.support.whole_files import remove_partial, write_whole

from ..processes import Group, process_group
from ..run_folder.tensors import filled
from .data import Text
from .model import Decoder
from .run import RunConfig, check_text
from .training import CHECKPOINT, MODEL, DecoderTraining, State, naming, read_checkpoint

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Trained:
    """A finished run: its folder, the loss of its last step in nats per scored token, and its speed here."""

    folder: Path
    config: RunConfig
    resumed_at: int
    loss: float
    tokens_per_second: float


def train(
    config: RunConfig,
    folder: str | Path,
    text: Text,
    *,
    checkpoint_every: int = 100,
    about: dict[str, Any] | None = None,
    progress: bool = False,
    fsdp: bool = False,
) -> Trained:
    """Train in ``folder``, or go on from its checkpoint: the final weights are the same to the bit.

    Writes ``checkpoint.safetensors`` (weights, optimizer, losses, the config and ``about``) every ``checkpoint_every``
    steps, and ``metrics.jsonl`` (the losses, one line a step) beside it. Under torchrun every process takes its share
    of each batch, and the losses are those of one process to float rounding.
    ``fsdp`` shards weights, gradients and moments over them as well. Any number of processes goes on from a checkpoint.

    Raises ``ValueError`` if the folder holds a run with another config, naming what differs, if what it holds is
    damaged, or if another process is at work in it, and ``OSError`` if the disk is full; the last checkpoint stays.
    """
    folder = Path(folder)
    check_text(config, text)
    whole("checkpoint_every", checkpoint_every)
    with process_group() as group, ExitStack() as stack:
        agree(config, group)
        training = training_of(config, text, group, fsdp, about or {})
        if group.first:
            stack.enter_context(alone(folder))
        training.resume(folder / CHECKPOINT)
        group.barrier()  # nobody writes before everybody has read
        first = len(training.losses)
        if group.first:  # what cannot be written is said now
            remove_partial(folder, CHECKPOINT, METRICS)
            write_metrics(folder / METRICS, training.losses)
        speed, start = 0.0, time.perf_counter()
        tell = told(f"steps of {config.name}", first) if progress else silent
        for step in range(first, config.steps):
            loss = training.step()
            speed = (step + 1 - first) * config.batch * config.model.length / (time.perf_counter() - start)
            tell(step + 1, config.steps, f"loss {loss:.3f}  {speed:,.0f} tokens/s")
            if (step + 1) % checkpoint_every == 0 or step + 1 == config.steps:
                if group.first:
                    write_metrics(folder / METRICS, training.losses)
                training.save(folder)
        return Trained(folder, config, first, training.losses[-1], speed)


def write_metrics(path: Path, losses: list[float]) -> None:
    """A line for each step."""
    lines = (json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in enumerate(losses))
    write_whole(path, "".join(lines).encode())


def agree(config: RunConfig, group: Group) -> None:
    """Raise ``ValueError`` on all processes unless they have the same run, naming what differs."""
    first, *others = group.gather(config.flat())
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other[name] != value:
                raise ValueError(
                    f"{name} must be the same on all processes, got {value!r} on rank 0 and {other[name]!r} on "
                    f"rank {rank}; give all the same command"
                )


def training_of(
    config: RunConfig, text: Text, group: Group, fsdp: bool = False, about: Mapping[str, Any] | None = None
) -> DecoderTraining:
    """The training of these processes. Raises ``ValueError`` if they cannot share it."""
    if fsdp and group.size == 1:
        raise ValueError("fsdp needs two processes or more, got 1; start them by: torchrun --nproc-per-node 2")
    if config.batch % group.size:
        raise ValueError(f"batch must be a multiple of the {group.size} processes, got {config.batch}")
    if not fsdp:
        return DecoderTraining(config, text, group, about)
    from .sharded import ShardedTraining  # with torch's engine, which one process has no use for

    return ShardedTraining(config, text, group, about)


def load_model(folder: str | Path) -> tuple[Decoder, RunConfig]:
    """The model of a finished run, ready to be evaluated, and its config; errors as of `load_run`."""
    model, state = load_run(folder)
    return model, state.config


def load_run(folder: str | Path) -> tuple[Decoder, State]:
    """The model of a finished run, and what its checkpoint says beside it.

    Raises ``ValueError`` if there is no checkpoint, if it is damaged, or if the run is not finished.
    """
    path = Path(folder) / CHECKPOINT
    if not path.is_file():
        raise ValueError(f"run must be a folder with {CHECKPOINT}, as `phasor lab train` makes it, got {str(folder)!r}")
    tensors, state = read_checkpoint(path)
    if len(state.losses) < state.config.steps:
        raise ValueError(
            f"run must be finished, got {str(folder)!r} at step {len(state.losses)} of {state.config.steps}; "
            "repeat its `phasor lab train` command to go on"
        )
    weights = {name.removeprefix(MODEL): t for name, t in tensors.items() if name.startswith(MODEL)}
    with naming(path):
        return filled(lambda: Decoder(state.config.model), weights).eval(), state
