import json
import math
import socket
from pathlib import Path

import pytest
import torch

from phasor_lab.lab import Decoder, ModelConfig, RunConfig, load_model, read_text, train
from phasor_lab.lab.train import CHECKPOINT, METRICS
from phasor_lab.run_folder.tensors import read_tensors

from . import child


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / METRICS).read_text().splitlines()]


def assert_same_weights(a, b):
    """And the same step, moments of the optimizer and losses: the files are equal byte for byte."""
    assert (a / CHECKPOINT).read_bytes() == (b / CHECKPOINT).read_bytes()


def step_of(folder):
    return len(read_tensors(folder / CHECKPOINT, "", "")[1]["losses"])


def test_the_first_loss_is_the_mean_cross_entropy_of_the_first_batch(config, text, tmp_path):
    train(config, tmp_path, text)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = Decoder(config.model)
    tokens, targets = text.batch(config.seed, 0, config.batch, config.model.length)
    total = 0.0
    with torch.no_grad():
        for row, target in zip(tokens, targets, strict=True):
            for logits, answer in zip(model(row[None])[0].double(), target, strict=True):
                total += math.log(sum(math.exp(x) for x in logits.tolist())) - float(logits[answer])
    assert losses(tmp_path)[0] == pytest.approx(total / targets.numel(), rel=1e-6)


def test_training_learns(config, text, tmp_path):
    longer = RunConfig.from_dict({**config.to_dict(), "tokens": 150 * 8 * 16, "lr": 1e-2})
    train(longer, tmp_path, text)
    curve = losses(tmp_path)
    assert len(curve) == longer.steps == 150
    assert curve[0] == pytest.approx(math.log(256), rel=0.02)  # nothing is known yet
    assert curve[-1] < math.log(len(set(text.train.tolist())))  # at least which bytes there are


def test_what_an_encoding_draws_is_a_function_of_seed_and_step(config, text, tmp_path):
    model = {**config.model.to_dict(), "encoding": "cape"}
    drawn = RunConfig.from_dict({**config.to_dict(), "model": model, "tokens": 3 * 8 * 16})
    for name in "ab":
        train(drawn, tmp_path / name, text)
        torch.rand(1)  # of which it is none
    assert_same_weights(tmp_path / "a", tmp_path / "b")


def test_a_finished_run_is_left_as_it_is(config, text, tmp_path):
    first = train(config, tmp_path, text, about={"command": "first"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = train(config, tmp_path, text, about={"command": "again"})
    assert (again.resumed_at, again.loss) == (config.steps, first.loss)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert before.keys() == {CHECKPOINT, METRICS}


@pytest.mark.parametrize("damaged", [None, b"no log", b""])
def test_losses_live_in_the_checkpoint_and_a_damaged_log_is_written_again(config, text, tmp_path, damaged):
    train(config, tmp_path, text)
    sound = (tmp_path / METRICS).read_bytes()
    assert losses(tmp_path) == read_tensors(tmp_path / CHECKPOINT, "", "")[1]["losses"] and len(losses(tmp_path)) == 30
    (tmp_path / METRICS).unlink()
    if damaged is not None:
        (tmp_path / METRICS).write_bytes(damaged)
    train(config, tmp_path, text)
    assert (tmp_path / METRICS).read_bytes() == sound


def test_what_killed_runs_left_goes(config, text, tmp_path):
    names = {CHECKPOINT, METRICS}
    for name in names:
        (tmp_path / f"{name}.7.partial").touch()
    train(config, tmp_path, text)
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_full_disk_leaves_the_last_checkpoint_to_go_on_from(config, text_file, tmp_path, start):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    start(config, whole, text_file).join()
    start(config, folder, text_file, 1, None, None, True).join()
    before = (folder / CHECKPOINT).read_bytes()
    assert step_of(folder) == 1

    process = start(config, folder, text_file, 1, None, len(before) // 2)
    process.join()
    error = (tmp_path / "error.txt").read_text()
    assert "cannot write (File too large); what was there before is untouched" in error
    assert CHECKPOINT in error
    assert (folder / CHECKPOINT).read_bytes() == before
    assert not list(folder.glob("*.partial"))

    start(config, folder, text_file).join()
    assert_same_weights(whole, folder)
    assert losses(whole) == losses(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 1}, "got one with seed 0, now 1"),
        ({"tokens": 100}, "got one with tokens 3840, now 100"),
        ({"model": {"encoding": "alibi"}}, "got one with encoding 'rotary', now 'alibi'"),
        ({"model": {"dim": 32}}, "got one with dim 16, now 32; hidden 48, now 88"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(config, text, tmp_path, change, message):
    train(config, tmp_path, text)
    before = (tmp_path / CHECKPOINT).read_bytes(), (tmp_path / METRICS).read_bytes()
    shape = {"layers": 2, "dim": 16, "heads": 2, "length": 16} | change.get("model", {})
    plain = {"tokens": config.tokens, "batch": 8, "source": text.sha256, **change}
    other = RunConfig(**{**plain, "model": ModelConfig(**shape)})
    with pytest.raises(ValueError, match=f"must be of the same run, {message}; choose another folder"):
        train(other, tmp_path, text)
    assert ((tmp_path / CHECKPOINT).read_bytes(), (tmp_path / METRICS).read_bytes()) == before


def test_another_text_is_refused(config, text, tmp_path):
    train(config, tmp_path / "run", text)
    (tmp_path / "other.txt").write_text("another text " * 100)
    other = read_text([tmp_path / "other.txt"])
    with pytest.raises(ValueError, match=r"text must be the one of the run \(sha256 .*other.txt"):
        train(config, tmp_path / "run", other)
    changed = RunConfig.from_dict({**config.to_dict(), "source": other.sha256})
    with pytest.raises(ValueError, match=r"must be of the same run, got one with source '.*', now '.*'"):
        train(changed, tmp_path / "run", other)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_cut_checkpoint_is_named(config, text, tmp_path, share):
    train(config, tmp_path, text)
    data = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(data[: int(share * len(data))])
    with pytest.raises(
        ValueError, match=r"checkpoint.safetensors must be a checkpoint of this training, got: .*; delete it to"
    ):
        train(config, tmp_path, text)


@pytest.mark.parametrize("other", ["nowhere", CHECKPOINT], ids=["nowhere", "itself"])
def test_a_link_that_leads_nowhere_is_no_new_start(config, text, tmp_path, other):
    """The file behind it may come back, on a disk that is not there just now."""
    (tmp_path / CHECKPOINT).symlink_to(other)
    with pytest.raises(ValueError, match=r"checkpoint.safetensors must be .*, got: a link that leads nowhere; delete"):
        train(config, tmp_path, text)
    assert (tmp_path / CHECKPOINT).is_symlink()


def test_an_unfinished_run_is_not_evaluated(config, text_file, tmp_path, start):
    start(config, tmp_path / "run", text_file, 1, None, None, True).join()
    with pytest.raises(ValueError, match=r"run must be finished, got '.*run' at step 1 of 30; repeat its"):
        load_model(tmp_path / "run")
    with pytest.raises(ValueError, match=r"run must be a folder with checkpoint.safetensors, .* got '.*nowhere'"):
        load_model(tmp_path / "nowhere")


def two_processes():
    """What torchrun tells each of two."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**common, "RANK": str(rank)} for rank in range(2)]


def test_two_processes_train_as_one(config, text_file, tmp_path, start):
    alone = start(config, tmp_path / "one", text_file)
    alone.join()
    pair = [start(config, tmp_path / "two", text_file, 2, environment) for environment in two_processes()]
    for process in pair:
        process.join()
    assert [p.exitcode for p in pair] == [0, 0]
    # Sums in another order differ in the last bits of float32, and training carries that along for 30 steps.
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e4 * torch.finfo(torch.float32).eps)
    assert losses(tmp_path / "two")[0] == pytest.approx(losses(tmp_path / "one")[0], rel=4e-7)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells the names of threads there")
@pytest.mark.parametrize(
    "lr, interrupted, errors",
    [
        (1e-3, (), ("", "")),
        (1e30, (), ("ValueError", "ValueError")),
        (1e-3, (0, 1), ("KeyboardInterrupt", "KeyboardInterrupt")),
        (1e-3, (1,), ("ValueError", "KeyboardInterrupt")),  # the other one is no longer there to answer, as it is told
    ],
)
def test_the_process_group_ends_with_the_training(config, text_file, tmp_path, start, lr, interrupted, errors):
    """Where anything still holds it then, it ends whenever that is freed, and may wait for itself without end."""
    config = RunConfig.from_dict({**config.to_dict(), "lr": lr})
    pair = [
        start(config, tmp_path / "run", text_file, environment, rank in interrupted, target=child.threads_at_the_end)
        for rank, environment in enumerate(two_processes())
    ]
    for process in pair:
        process.join()
    for rank, error in enumerate(errors):
        told = json.loads((tmp_path / f"threads.{rank}.json").read_text())
        assert told["in a step"] and told["at the end"] == [] and told["error"] == error, (rank, told)


def test_a_bad_run_is_refused():
    with pytest.raises(ValueError, match=r"lr must be a finite number above 0, got 0\.0"):
        RunConfig(model=ModelConfig(), lr=0.0)


def test_a_diverging_run_stops(text, tmp_path):
    model = ModelConfig(layers=2, dim=16, heads=2, length=16)
    config = RunConfig(model=model, tokens=30 * 128, batch=8, lr=1e30, source=text.sha256)
    with pytest.raises(ValueError, match="lr must let the training converge, got lr=1e\\+30"):
        train(config, tmp_path, text)
