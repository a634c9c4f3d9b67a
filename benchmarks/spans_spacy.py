"""F1 of spaCy's blank pipeline with its default entity recognizer, trained for given seconds on one thread.

    python benchmarks/spans_spacy.py TRAIN DEV TEST --language en --seconds 60 [--sentences 1500] [--seeds 3]

The model of the epoch with the best F1 on DEV counts, as for ours. Batches grow from 4 to 128 texts and dropout is 0.1,
as `spacy init config` has it. spaCy finds flat spans: of nested ones the outermost are learnt, all are evaluated. Its
tokenizer cuts the texts; an entity that is no run of its tokens is left out, as spaCy's own converter does.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import spacy
from spacy.training import Example as Pair
from spacy.util import compounding, fix_random_seed, minibatch

from phasor_lab.ner import Entity, Example, evaluate, read


def main() -> None:
    args = arguments()
    data, dev, test = read(args.train)[: args.sentences], read(args.dev), read(args.test)
    runs = []
    for seed in range(args.seeds):
        runs.append(one_run(data, dev, test, args.language, args.seconds, seed))
        print(json.dumps(runs[-1]), flush=True)
    print("mean f1", round(statistics.mean(run["f1"] for run in runs), 4))


def one_run(
    data: list[Example], dev: list[Example], test: list[Example], language: str, seconds: float, seed: int
) -> dict[str, Any]:
    fix_random_seed(seed)
    nlp = spacy.blank(language)
    recognizer = nlp.add_pipe("ner")
    pairs = [Pair.from_dict(nlp.make_doc(e.text), {"entities": flat(nlp, e)}) for e in data]
    for pair in pairs:
        for entity in pair.reference.ents:
            recognizer.add_label(entity.label_)
    optimizer = nlp.initialize(lambda: pairs)
    best, start, epochs = {"dev": -1.0}, time.process_time(), 0
    shuffle = random.Random(seed)
    while time.process_time() - start < seconds:
        shuffle.shuffle(pairs)
        for batch in minibatch(pairs, size=compounding(4.0, 128.0, 1.001)):
            nlp.update(batch, sgd=optimizer, drop=0.1)
            if time.process_time() - start >= seconds:
                break
        epochs += 1
        trained = time.process_time()
        with nlp.use_params(optimizer.averages):
            score = found(nlp, dev)
            if score > best["dev"]:
                best = {"dev": round(score, 4), "f1": round(found(nlp, test), 4), "epoch": epochs}
        start += time.process_time() - trained  # evaluation is not charged
    return best | {"seed": seed, "epochs": epochs}


def flat(nlp: Any, example: Example) -> list[tuple[int, int, str]]:
    doc = nlp.make_doc(example.text)
    spans = [doc.char_span(e.start, e.end, label=e.label) for e in example.entities]
    kept = spacy.util.filter_spans([span for span in spans if span is not None])
    return [(span.start_char, span.end_char, span.label_) for span in kept]


def found(nlp: Any, examples: list[Example]) -> float:
    docs = nlp.pipe([example.text for example in examples])
    predictions = [[Entity(e.start_char, e.end_char, e.label_) for e in doc.ents] for doc in docs]
    return evaluate([example.entities for example in examples], predictions).overall.f1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--language", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sentences", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
