"""F1 of the span heads with and without rotation, and of a CRF, on the same texts and seeds.

    python benchmarks/spans.py TRAIN DEV [TEST] [--sentences 1500] [--seeds 5] [--heads rotary none] [--crf]
        [--head efficient] [--out results.json]

Everything but the head is what `phasor ner train` chooses by itself; the epoch and the threshold are those of the best
F1 on DEV. With TEST, F1 on it is what counts. Prints each run, then the paired differences from the rotary head with
their standard error, also for the third of the test texts that are longest, and for nested entities.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from spans_crf import crf_scores

from phasor_lab.ner import Example, evaluate, predict, read, train, usual
from phasor_lab.ner.config import HEADS
from phasor_lab.ner.model import load, new_model
from phasor_lab.ner.words import have_words


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    data = read(args.train)[: args.sentences]
    dev = read(args.dev)
    test = read(args.test) if args.test else dev
    runs: dict[str, list[dict[str, float]]] = {head: [] for head in args.heads}
    for seed in range(args.seeds):
        for head in args.heads:
            runs[head].append(one_run(data, dev, test, head, seed, args))
            print(head, seed, json.dumps(runs[head][-1]), flush=True)
    result: dict[str, Any] = {"arguments": vars(args), "runs": runs}
    if args.crf:
        words = have_words(example.text for example in data)
        result["crf"] = crf_scores(data, test, words).overall.f1
        print("crf", round(result["crf"], 4))
    for head in args.heads[1:]:
        for name in runs[head][0]:
            differences = [a[name] - b[name] for a, b in zip(runs[args.heads[0]], runs[head], strict=True)]
            error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
            print(f"{args.heads[0]} - {head}  {name}: {statistics.mean(differences):+.4f} +- {error:.4f}")
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


def one_run(
    data: list[Example], dev: list[Example], test: list[Example], head: str, seed: int, args: argparse.Namespace,
) -> dict[str, float]:  # fmt: skip
    config, training, tokenizer = usual(data)
    config = replace(config, head=args.head or config.head, rotary=head == "rotary")
    training = replace(training, seed=seed, epochs=args.epochs or training.epochs)
    model = new_model(config, seed)
    with tempfile.TemporaryDirectory() as folder:
        result = train(model, tokenizer, data, dev, training, folder)
        found = predict(load(folder), [example.text for example in test])
    scores = evaluate([example.entities for example in test], found)
    longest = sorted(range(len(test)), key=lambda i: -len(test[i].text))[: len(test) // 3]
    long = evaluate([test[i].entities for i in longest], [found[i] for i in longest])
    out = {"f1": scores.overall.f1, "f1 of long texts": long.overall.f1, "dev": result.dev.f1}
    return {name: round(value, 4) for name, value in out.items()} | (
        {"f1 of nested": round(scores.nested.f1, 4)} if scores.nested.gold else {}
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("dev")
    parser.add_argument("test", nargs="?")
    parser.add_argument("--sentences", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--heads", nargs="+", default=["rotary", "none"])
    parser.add_argument("--head", choices=list(HEADS), default=None)
    parser.add_argument("--crf", action="store_true")
    parser.add_argument("--out", default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
