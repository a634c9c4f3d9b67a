"""A language of a few words whose names and places can be learnt in seconds, and models small enough for it."""

import random
from pathlib import Path

import torch

from phasor_lab.ner import Entity, Example, SpanConfig, SpanModel, TrainConfig, labels_of, make_tokenizer, new_model

torch.set_num_threads(1)  # the number of threads decides how sums are rounded

NAMES = ["ada", "bob", "eve", "ivan", "noor"]
PLACES = ["rome", "oslo", "lima", "cairo"]
LABELS = ("club", "name", "place")


def examples(count: int, seed: int = 0) -> list[Example]:
    """Sentences like "ada met bob in rome", some with a club ("lima fc") around a place."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        text, entities = "", []
        for word, label in (
            (chance.choice(NAMES), "name"),
            (chance.choice([" met ", " saw ", " and "]), None),
            (chance.choice(NAMES), "name"),
            (" in ", None),
            (chance.choice(PLACES), "place"),
        ):
            if label:
                entities.append(Entity(len(text), len(text) + len(word), label))
            text += word
        if chance.random() < 0.4:
            entities.append(Entity(entities[-1].start, len(text) + 3, "club"))
            text += " fc"
        made.append(Example(text, tuple(sorted(entities)), f"toy:{i + 1}"))
    return made


TRAIN, DEV = examples(120), examples(40, seed=1)
TOKENIZER = make_tokenizer("characters", [example.text for example in TRAIN])


def model_config(**changes: object) -> SpanConfig:
    plain = {"labels": labels_of(TRAIN), "vocab": TOKENIZER.get_vocab_size(), "dim": 32, "layers": 1}
    small = {"head_dim": 16, "dropout": 0.1, "max_length": 32, "overlap": 8}
    return SpanConfig(**{**plain, **small, **changes})  # type: ignore[arg-type]


def train_config(**changes: object) -> TrainConfig:
    return TrainConfig(**{"epochs": 3, "batch": 8, "lr": 1e-2, "average": 0.5, **changes})  # type: ignore[arg-type]


RUN = {"train": train_config().to_dict(), "threshold": 0.5}  # what `save` is told of a training


def model(seed: int = 0, **changes: object) -> SpanModel:
    return new_model(model_config(**changes), seed)


def write_spans(path: Path, made: list[Example]) -> Path:
    """The examples as JSON lines."""
    import json

    path.write_text(
        "".join(json.dumps({"text": e.text, "spans": [vars(entity) for entity in e.entities]}) + "\n" for e in made)
    )
    return path
