"""Does the study tell the length that a model was trained for, and the pairs that training never saw rotate?

    python benchmarks/study.py SHAKESPEARE WIKITEXT FOLDER [NAME ...]

Trains the models of `LENGTHS` and `FROZEN` (2 layers, 2 heads of 32 channels, 2.5 million bytes; one to two minutes
each on one thread) into ``FOLDER/NAME``, those that are not there yet, as Llama models of transformers; then studies
each on the last tenth of its text, which it was not trained on. By the config of a frozen model all pairs rotate.
"""

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from phasor import RotarySpec
from phasor.tools.doctor.loading import load
from phasor_lab.lab import Decoder, ModelConfig, RunConfig, read_text
from phasor_lab.lab.export import export
from phasor_lab.lab.training import learning_rate
from phasor_lab.running.model import RunningModel
from phasor_lab.running.windows import windows_of
from phasor_lab.studying.pairs import pair_uses
from phasor_lab.studying.trained import trained_length

SHAKESPEARE, WIKITEXT = 0, 1
AT_ONCE = 4096  # bytes of one step


class Known(NamedTuple):
    """What is known of a model: the bytes of a training window, base, text, seed, and pairs that never rotated."""

    length: int
    base: float
    text: int
    seed: int
    frozen: tuple[int, ...] = ()


LENGTHS = {
    "l64": Known(64, 1e4, SHAKESPEARE, 1), "l96": Known(96, 5e5, WIKITEXT, 2), "l128": Known(128, 1e4, WIKITEXT, 3),
    "l192": Known(192, 1e5, SHAKESPEARE, 4), "l256": Known(256, 5e5, SHAKESPEARE, 5),
    "l384": Known(384, 1e4, WIKITEXT, 6), "l512": Known(512, 1e5, SHAKESPEARE, 7),
    "l768": Known(768, 1e4, SHAKESPEARE, 8), "l1024": Known(1024, 5e5, WIKITEXT, 9),
}  # fmt: skip
FROZEN = {
    "frozen": Known(128, 1e4, SHAKESPEARE, 11, (1, 4, 6, 7, *range(9, 16))),
    "prope": Known(128, 1e4, SHAKESPEARE, 12, tuple(range(8, 16))),
    "prope25": Known(256, 1e4, WIKITEXT, 13, tuple(range(4, 16))),
}


def trained(known: Known, text: Path) -> Decoder:
    """A decoder that has only ever rotated by what is known of it."""
    model_config = ModelConfig(layers=2, dim=64, heads=2, length=known.length, base=known.base)
    run = RunConfig(model=model_config, tokens=2_500_000, batch=round(AT_ONCE / known.length), lr=4e-3)
    spec = RotarySpec(head_dim=32, base=known.base)
    rotating = [0.0 if i in known.frozen else f for i, f in enumerate(spec.inv_freq().tolist())]
    torch.manual_seed(known.seed)
    model, data = Decoder(model_config), read_text([text])
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=run.weight_decay)
    for step in range(run.steps):
        tokens, targets = data.batch(known.seed, step, run.batch, known.length)
        optimizer.param_groups[0]["lr"] = learning_rate(run, step)
        logits = model(tokens, rotary=spec.replace(frequencies=tuple(rotating)) if known.frozen else spec)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def of_length(model: RunningModel, known: Known, tokens: torch.Tensor) -> str:
    start = time.thread_time()
    with model.with_frequencies(model.own(known.length), model.factors(known.length)):
        found = trained_length(model, tokens)
    factor = (found.tokens or 0) / known.length
    return f"told {found.tokens}, times {factor:.2f}, {time.thread_time() - start:.1f} s"


def of_pairs(model: RunningModel, known: Known, tokens: torch.Tensor) -> str:
    """With the frequencies of training, and with those of the config, by which all pairs rotate."""
    own = model.own(known.length)[0]
    trained = own.clone()
    trained[list(known.frozen)] = 0.0
    rows = windows_of("tokens", tokens, known.length, 24)
    words = []
    for name, frequencies in (("as trained", trained), ("all rotating", own)):
        model.own = lambda length, frequencies=frequencies: [frequencies.clone()]
        with model.with_frequencies([frequencies], model.factors(known.length)):
            loss = model.loss(rows)
        (found,) = pair_uses(model, rows, loss, lambda: None)
        words.append(f"{name}: used {found.used}, stopped {[round(cost, 4) for cost in found.stopped]}")
    return "\n    ".join(words)


def main(shakespeare: str, wikitext: str, folder: str, *names: str) -> None:
    torch.set_num_threads(1)
    models = {**LENGTHS, **FROZEN}
    for name in names or models:
        known, place = models[name], Path(folder) / name
        text = Path((shakespeare, wikitext)[known.text])
        if not place.exists():
            export(trained(known, text), place)
        data = text.read_bytes()
        tokens = torch.tensor(list(data[-len(data) // 10 :]))
        model = RunningModel(load(place))
        measure = of_pairs if known.frozen else of_length
        print(name, json.dumps(known._asdict()), "\n   ", measure(model, known, tokens), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
