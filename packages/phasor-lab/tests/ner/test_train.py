import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from phasor_lab.ner import SpanModel, evaluate, load, predict, train
from phasor_lab.ner.data.windows import align
from phasor_lab.ner.metrics import Score
from phasor_lab.ner.model import collate
from phasor_lab.ner.train import CHECKPOINT, LOG, SpanTraining, shuffled
from phasor_lab.run_folder import checkpoint
from phasor_lab.run_folder.tensors import read_tensors

from .toy import DEV, LABELS, TOKENIZER, TRAIN, examples, model, model_config, train_config


def run(folder, *, checkpoint_every=500, shape=None, seed=0, data=TRAIN, **changes):
    config = train_config(seed=seed, **changes)
    return train(model(seed, **(shape or {})), TOKENIZER, data, DEV, config, folder, checkpoint_every=checkpoint_every)


def log(folder):
    entries = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]


def windows(data=TRAIN):
    return align(data, TOKENIZER, LABELS, max_length=32, stride=8)[0]


@pytest.mark.parametrize(
    "head, encoder",
    [
        ("global-pointer", "transformer"),
        pytest.param("efficient", "transformer", marks=pytest.mark.slow),
        pytest.param("global-pointer", "bilstm", marks=pytest.mark.slow),
    ],
)
def test_training_learns(tmp_path, encoder, head):
    result = run(tmp_path, shape={"encoder": encoder, "head": head}, epochs=12)
    assert result.dev.f1 > 0.95


@pytest.mark.slow
def test_without_rotary_and_positions_the_ends_of_two_spans_are_confused(tmp_path):
    """An encoder that knows no order: only the head's rotation says how far apart start and end are."""
    blind = {"encoder": "transformer", "encoder_positions": "none"}
    with_rotary = run(tmp_path / "with", shape=blind, epochs=12)
    without = run(tmp_path / "without", shape={**blind, "rotary": False}, epochs=12)
    assert with_rotary.dev.f1 > 0.95
    assert without.dev.f1 < 0.7


def test_the_saved_model_is_the_one_whose_score_was_logged(trained):
    """And an efficient head on a BiLSTM learns."""
    found = predict(load(trained.folder), [example.text for example in DEV])
    assert evaluate([example.entities for example in DEV], found).overall == trained.dev
    assert trained.dev.f1 == max(entry["f1"] for entry in log(trained.folder)) > 0.95


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run of two epochs that nothing disturbed."""
    return run(tmp_path_factory.mktemp("whole"), epochs=2, checkpoint_every=4).folder


@pytest.mark.parametrize("after", [1, 4, 6, 8])
def test_a_killed_run_ends_with_the_same_weights(whole, tmp_path, monkeypatch, after):
    """Killed after any of the checkpoints: 15 steps an epoch, one checkpoint every 4 steps and one at its end."""
    killed = tmp_path / "killed"
    save, calls = checkpoint.save, []

    def save_and_die(path, *state):
        save(path, *state)
        calls.append(path)
        if len(calls) == after:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_die)
        with pytest.raises(Killed):
            run(killed, epochs=2, checkpoint_every=4)
    run(killed, epochs=2, checkpoint_every=4)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (whole, killed))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert log(whole) == log(killed)
    assert sorted(path.name for path in whole.iterdir()) == sorted(path.name for path in killed.iterdir())


def steps_of_checkpoints(folder, monkeypatch, **options):
    """The steps after which a run of two epochs of 15 steps writes a checkpoint."""
    steps, save = [], checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(
            checkpoint, "save", lambda path, tensors, about: (steps.append(about["step"]), save(path, tensors, about))
        )
        run(folder, epochs=2, **options)
    return steps


def test_checkpoints_are_written_when_it_is_said(tmp_path, monkeypatch, whole):
    """Every so many steps and at the end of every epoch, once where both fall together, also by a run that goes on."""
    assert steps_of_checkpoints(tmp_path / "a", monkeypatch, checkpoint_every=4) == [4, 8, 12, 15, 16, 20, 24, 28, 30]
    assert steps_of_checkpoints(tmp_path / "b", monkeypatch, checkpoint_every=5) == [5, 10, 15, 20, 25, 30]
    assert steps_of_checkpoints(tmp_path / "a", monkeypatch, checkpoint_every=4) == []
    with monkeypatch.context() as patch:
        patch.setattr(SpanTraining, "advance", die_at(20, SpanTraining.advance))
        with pytest.raises(Killed):
            run(tmp_path / "c", epochs=2, checkpoint_every=4)
    assert steps_of_checkpoints(tmp_path / "c", monkeypatch, checkpoint_every=7) == [21, 28, 30]
    weights = (folder / "model.safetensors" for folder in (whole, tmp_path / "a", tmp_path / "b", tmp_path / "c"))
    assert len({path.read_bytes() for path in weights}) == 1


def die_at(step, advance):
    def dying(training, windows):
        if training.step == step:
            raise Killed
        return advance(training, windows)

    return dying


def test_a_finished_run_is_left_as_it_is_without_what_killed_ones_left(tmp_path):
    first = run(tmp_path, epochs=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in before:
        (tmp_path / f"{name}.7.partial").touch()  # by runs that were killed
    assert run(tmp_path, epochs=1) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("epochs", [1, 2], ids=["finished", "killed"])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("how", ["absent", "a bit", "a folder"])
def test_a_run_whose_model_was_damaged_does_not_call_itself_finished(one_epoch, tmp_path, epochs, name, how):
    """Its best epoch lies in these files alone, and no later one needs to be better."""
    folder, path = tmp_path / "run", tmp_path / "run" / name
    shutil.copytree(one_epoch[epochs], folder)
    sound = path.read_bytes()
    path.unlink()
    if how == "a bit":
        path.write_bytes(sound[:-30] + bytes([sound[-30] ^ 1]) + sound[-29:])
    elif how == "a folder":
        path.mkdir()
    before = {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=rf"{name}.*; put back .*, or delete checkpoint\.safetensors to train again"):
        run(folder, epochs=epochs)
    assert {p: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before
    if how == "a folder":
        path.rmdir()
    path.write_bytes(sound)
    assert run(folder, epochs=epochs).epochs == epochs


def test_a_log_that_was_damaged_is_whole_again_or_refused_before_the_first_step(one_epoch, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(one_epoch[1], folder)
    (folder / LOG).write_text("no log")
    run(folder, epochs=1)
    assert (folder / LOG).read_bytes() == (one_epoch[1] / LOG).read_bytes()
    monkeypatch.setattr(SpanTraining, "advance", die_at(0, SpanTraining.advance))
    (tmp_path / "new" / LOG).mkdir(parents=True)
    with pytest.raises(OSError, match="cannot write") as refused:
        run(tmp_path / "new", epochs=1)
    assert refused.value.filename == str(tmp_path / "new" / LOG)


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory):
    """By the epochs that were asked for: folders of runs that one epoch is done of."""
    finished, killed = (tmp_path_factory.mktemp(name) for name in ("finished", "killed"))
    run(finished, epochs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SpanTraining, "advance", die_at(15, SpanTraining.advance))
        with pytest.raises(Killed):
            run(killed, epochs=2)
    return {1: finished, 2: killed}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"seed": 1}, "seed 0, now 1"),
        ({"lr": 1e-3}, "lr 0.01, now 0.001"),
        ({"shape": {"rotary": False}}, "rotary True, now False"),
        ({"data": TRAIN[:-1]}, r"data\.train '.*', now '.*'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, changes, message):
    run(tmp_path, epochs=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=f"must be of the same run, got one with {message}; choose another folder"):
        run(tmp_path, **{"epochs": 1, **changes})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_step_that_no_training_reaches_takes_no_memory(tmp_path):
    run(tmp_path, epochs=1)
    tensors, about = read_tensors(tmp_path / CHECKPOINT, "a", "b")
    checkpoint.save(tmp_path / CHECKPOINT, tensors, about | {"step": 10**7})
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"step 10000000 of \d+ and a history of 1 epochs; delete it"):
            run(tmp_path, epochs=1)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_seeds_decide_the_weights(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, seed=seed, epochs=1)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def finished(scores, patience, epochs=100):
    training = SpanTraining(model(), train_config(epochs=epochs, patience=patience), per_epoch=1)
    for f1 in scores:  # f1 of so many right out of 10 found and 10 true
        training.record(Score(f1, 10, 10), 0.5, 0.0)
    return training.finished


def test_early_stopping_counts_epochs_since_the_best_and_not_while_nothing_is_found():
    assert not finished([0] * 50, patience=3)
    assert not finished([0, 5, 4, 3], patience=3)
    assert finished([0, 5, 4, 3, 2], patience=3)
    assert not finished([0, 5, 4, 3, 6, 5], patience=3)
    assert not finished([5, 4, 3, 2, 1], patience=0)
    assert finished([5] * 7, patience=0, epochs=7)


def test_the_mean_of_the_weights_is_the_recursion_it_says():
    training = SpanTraining(model(), train_config(average=0.5), per_epoch=15)
    mean = [weight.detach().double() for weight in training.weights]
    for step, batch in enumerate(shuffled(windows(), 8, 0, 0)[:12]):
        training.advance(batch)
        keep = min(0.5, (1 + step) / (10 + step))
        now = [weight.detach().double() for weight in training.weights]
        mean = [keep * old + (1 - keep) * new for old, new in zip(mean, now, strict=True)]
    with training.averaged():
        inside = [weight.detach().clone() for weight in training.weights]
    for ours, theirs, after, live in zip(inside, mean, training.weights, now, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
        assert torch.equal(after.double(), live)


def test_autocast_leaves_the_recurrent_layers_in_float32_on_a_cpu():
    """Not every CPU has an LSTM in bfloat16, and a model may not depend on the CPU's maker."""
    encoder, batch = model().encoder, collate(windows()[:8])
    inputs = batch.ids, batch.mask
    encoder.eval()
    expected = encoder(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        output = encoder(*inputs)
    assert output.dtype == torch.float32 and torch.equal(output, expected)


def test_bfloat16_trains(tmp_path):
    run(tmp_path, epochs=3, bfloat16=True)
    losses = [entry["loss"] for entry in log(tmp_path)]
    assert losses[0] > 2 * losses[2] > 0


def test_a_folder_that_cannot_be_made_is_said_before_the_first_step(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(SpanTraining, "advance", lambda *_: pytest.fail("it trained"))
    with pytest.raises(FileExistsError):
        run(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    for name in ("model.safetensors", "tokenizer.json", "config.json", "card.md"):
        for make, what in ((Path.mkdir, "a file that can be .* is a folder"), (os.mkfifo, "an ordinary file")):
            (folder := tmp_path / f"{make.__name__}_{name}").mkdir()
            make(folder / name)
            with pytest.raises(ValueError, match=f"^{name} must be {what}.*; name another"):
                run(folder)


@pytest.mark.parametrize("setting", ["lr", "head_lr", "weight_decay"])
def test_a_diverging_run_stops_and_names_what_may_have_done_it(tmp_path, setting):
    said = rf"lr, head_lr, weight_decay must let the training converge, got .*\b{setting}=1e\+30.* and a loss of"
    with pytest.raises(ValueError, match=said):
        run(tmp_path, **{setting: 1e30}, clip=1e30)


def test_every_window_is_in_one_batch_of_like_lengths():
    data = windows(examples(333))
    batches = shuffled(data, 8, seed=3, epoch=1)
    assert sorted(id(w) for batch in batches for w in batch) == sorted(map(id, data))
    assert len(batches) == -(-len(data) // 8)
    assert shuffled(data, 8, 3, 1) == batches != shuffled(data, 8, 3, 2)
    padded = sum(collate(batch).ids.numel() for batch in batches)
    assert padded < 1.1 * sum(len(w.ids) for w in data)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"lr": 0.0}, "lr must be a finite number above 0"),
        ({"average": 1.0}, "average must be below 1"),
        ({"threshold": 1.5}, "threshold must be at most 1"),
        ({"mode": "some"}, "mode must be .all., .nested. or .flat., got 'some'"),
        ({"seed": 2**31}, "seed must be below"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        train_config(**changes)


def test_a_new_head_on_pretrained_weights_has_a_rate_of_its_own():
    def peaks(encoder, **changes):
        spans = model()
        spans.config = model_config(encoder=encoder)
        training = SpanTraining(spans, train_config(lr=1e-4, warmup=0, **changes), 2)
        training.advance(windows()[:2])
        return [group["lr"] for group in training.optimizer.param_groups]

    assert peaks("bilstm") == [1e-4, 1e-4]
    assert peaks("pretrained") == [1e-4, 1e-3]
    assert peaks("pretrained", head_lr=2e-4) == [1e-4, 2e-4]


def test_data_without_an_entity_on_the_tokens_is_refused(tmp_path):
    config = model_config(max_length=1, overlap=0)
    with pytest.raises(ValueError, match=r"data must hold an entity that lies on the tokens .* 0 of .* entities kept"):
        train(SpanModel(config), TOKENIZER, TRAIN, DEV, train_config(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_minutes_decide_the_epochs_by_the_first_steps():
    training = SpanTraining(model(), train_config(epochs=100), per_epoch=30)
    assert training.measured == 20
    training.fit(1.0, seconds=4.0, dev_share=2.0)  # 0.2 s a step, 30 steps, and as long again for the evaluation
    assert training.epochs == 5 and training.steps == 150
    training.fit(1.0, seconds=0.02, dev_share=0.0)
    assert training.epochs == 5  # more than there were there never are
    with pytest.raises(ValueError, match=r"minutes must suffice for one epoch, which takes about 0.2 here, got 0.1"):
        training.fit(0.1, seconds=4.0, dev_share=2.0)


def test_a_run_with_a_budget_keeps_its_epochs_when_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(SpanTraining, "fit", lambda training, *_: setattr(training, "epochs", 2))
    with monkeypatch.context() as patch:
        patch.setattr(SpanTraining, "advance", die_at(20, SpanTraining.advance))
        with pytest.raises(Killed):
            run(tmp_path, epochs=9, minutes=1.0, checkpoint_every=4)
    assert run(tmp_path, epochs=9, minutes=1.0, checkpoint_every=4).epochs == 2
