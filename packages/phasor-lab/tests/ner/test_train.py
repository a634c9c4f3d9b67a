import json
import os
from pathlib import Path

import pytest
import torch

from phasor_lab.ner import SpanModel, evaluate, load, predict, train
from phasor_lab.ner.data.windows import align
from phasor_lab.ner.metrics import Score
from phasor_lab.ner.model import collate
from phasor_lab.ner.train import LOG, SpanTraining, shuffled

from .toy import DEV, LABELS, TOKENIZER, TRAIN, examples, model, model_config, train_config


def run(folder, *, seed=0, **changes):
    return train(model(seed), TOKENIZER, TRAIN, DEV, train_config(seed=seed, **changes), folder)


def log(folder):
    entries = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in entries]


def windows(data=TRAIN):
    return align(data, TOKENIZER, LABELS, max_length=32, stride=8)[0]


def test_the_saved_model_is_the_one_whose_score_was_logged(trained):
    """And an efficient head on a BiLSTM learns."""
    found = predict(load(trained.folder), [example.text for example in DEV])
    assert evaluate([example.entities for example in DEV], found).overall == trained.dev
    assert trained.dev.f1 == max(entry["f1"] for entry in log(trained.folder)) > 0.95


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
    mean = []
    for step, batch in enumerate(shuffled(windows(), 8, 0, 0)[:12]):
        training.advance(batch)
        keep = min(0.5, (1 + step) / (10 + step))
        now = [weight.detach().double() for weight in training.weights]
        mean = [keep * old + (1 - keep) * new for old, new in zip(mean or now, now, strict=True)]
    for ours, theirs in zip(training.mean.parameters(), mean, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)


def test_a_folder_that_cannot_be_made_is_said_before_the_first_step(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(SpanTraining, "advance", lambda *_: pytest.fail("it trained"))
    with pytest.raises(FileExistsError):
        run(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    for name in ("model.safetensors", "tokenizer.json", "config.json", "log.jsonl"):
        for make, what in ((Path.mkdir, "a file that can be .* is a folder"), (os.mkfifo, "an ordinary file")):
            (folder := tmp_path / f"{make.__name__}_{name}").mkdir()
            make(folder / name)
            with pytest.raises(ValueError, match=f"^{name} must be {what}.*; name another"):
                run(folder)


def test_a_diverging_run_stops_and_names_what_may_have_done_it(tmp_path):
    with pytest.raises(ValueError, match=r"lr must let the training converge, got lr=1e\+30 and a loss of"):
        run(tmp_path, lr=1e30)


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
    def peaks(encoder):
        spans = model()
        spans.config = model_config(encoder=encoder)
        training = SpanTraining(spans, train_config(lr=1e-4), 1)
        training.advance(windows()[:2])
        return [group["lr"] for group in training.optimizer.param_groups]

    assert peaks("bilstm") == [1e-4, 1e-4]
    assert peaks("pretrained") == [1e-4, 1e-3]


def test_data_without_an_entity_on_the_tokens_is_refused(tmp_path):
    config = model_config(max_length=1, overlap=0)
    with pytest.raises(ValueError, match=r"data must hold an entity that lies on the tokens .* 0 of .* entities kept"):
        train(SpanModel(config), TOKENIZER, TRAIN, DEV, train_config(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
