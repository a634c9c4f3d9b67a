"""How often the verdicts that weights or a text decide are wrong: `detect` and `doctor --text`.

    python benchmarks/verdicts.py random OUT.json [FIRST LAST]     200 models with random weights
    python benchmarks/verdicts.py trained OUT.json [FIRST LAST]    104 models, each trained here from its own seed
    python benchmarks/verdicts.py rates OUT.json ...               the rates of what was measured

A model with random weights has no encoding, so each name is wrong. They vary in the spread of their weights, dtype,
heads, base, scaling and tied words. Each trained model (2 layers, 64 channels, bytes of Python's own modules) has a
number of steps of its own, from 20 (hardly trained) to 400. It is asked as it is, as its twin in the other layout and
with only q converted. `doctor --text`, which takes longer, is asked of every eighth one, and of it with a wrong base
declared too; of models with random weights it is asked of every second one. FIRST and LAST measure a part, in a file of
its own.
"""

import json
import math
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from phasor.rotary.spec import RotarySpec
from phasor.support.processes import Group
from phasor.tools.checkpoints import convert, detect
from phasor.tools.doctor.text import by_text
from phasor_lab.lab import ModelConfig, read_text
from phasor_lab.lab.export import export
from phasor_lab.lab.run import RunConfig
from phasor_lab.lab.train import DecoderTraining

RANDOM, TRAINED = 200, 104
SPREADS = (0.02, 0.05, 0.1, 0.3, 1.0)
WHOLE = 6000  # of a text, of the doctor
ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "default", "rope_theta": 10_000.0},
    {"rope_type": "default", "rope_theta": 500_000.0},
    {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128},
)


class Interleaved(ModelConfig):
    """A model that is trained on interleaved pairs."""

    @property
    def rotary_spec(self) -> RotarySpec:
        return RotarySpec(head_dim=self.head_dim, base=self.base, interleaved=True)


def half_converted(folder: Path, converted: Path) -> Path:
    """q of the converted model, k of the model."""
    from safetensors.torch import load_file, save_file

    tensors, other = load_file(folder / "model.safetensors"), load_file(converted / "model.safetensors")
    mixed = folder.with_name("mixed")
    mixed.mkdir()
    save_file({n: other[n] if "q_proj" in n else t for n, t in tensors.items()}, mixed / "model.safetensors")
    (mixed / "config.json").write_bytes((folder / "config.json").read_bytes())
    return mixed


def ask(folder: Path, text: bytes, *, number: int, doctor: bool) -> list[dict[str, Any]]:
    """What each verdict says of one folder, on a piece of text of its own."""
    start = (number * 997) % (len(text) - WHOLE)
    piece = text[start : start + WHOLE].decode("ascii", "replace").replace("\ufffd", "?")
    weights = detect(folder)
    rows: list[dict[str, Any]] = [{"by": "detect", "answer": "mixed" if weights.odd else weights.weights}]
    if doctor:
        at = folder.with_name("text.txt")
        at.write_text(piece)
        ranking = by_text(folder, at, length=128)
        rows.append({"by": "doctor --text", "answer": ranking.verdict, "best": ranking.best, "tied": ranking.tied})
    return rows


def of_random(number: int, text: bytes) -> list[dict[str, Any]]:
    chosen = random.Random(number)
    torch.manual_seed(number)
    heads = chosen.choice((1, 2, 4))
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=chosen.choice((1, 2, 3)),
        num_attention_heads=heads, num_key_value_heads=chosen.choice([n for n in (1, 2, 4) if heads % n == 0]),
        head_dim=chosen.choice((16, 32, 64)), max_position_embeddings=512, rope_parameters=chosen.choice(ROPES),
        initializer_range=SPREADS[number % len(SPREADS)], tie_word_embeddings=chosen.random() < 0.5,
    )  # fmt: skip
    dtype = (torch.float32, torch.bfloat16, torch.float16)[number % 3]
    with tempfile.TemporaryDirectory() as at:
        LlamaForCausalLM(config).to(dtype).save_pretrained(Path(at) / "model")
        rows = ask(Path(at) / "model", text, number=number, doctor=number % 2 == 0)
    return [{**row, "number": number, "truth": "none", "declared": "none", "steps": 0} for row in rows]


def of_trained(number: int, data: Any, text: bytes) -> list[dict[str, Any]]:
    native = ("halves", "interleaved")[number % 2]
    shape = ({"heads": 4, "kv_heads": 2}, {"heads": 2, "base": 500_000.0}, {"heads": 2})[number % 3]
    steps = 20 + (number * 37) % 381
    doctor = number // 2 % 8 == 0
    config_class = {"halves": ModelConfig, "interleaved": Interleaved}[native]
    config = RunConfig(
        model=config_class(layers=2, dim=64, length=64, **shape), seed=number, tokens=steps * 1024, batch=16,
        source=data.sha256,
    )  # fmt: skip
    training = DecoderTraining(config, data, Group())
    for step in range(steps):
        loss = float(training.step(step))
    about = {"number": number, "steps": steps, "loss": loss}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as at:
        folder, converted = Path(at) / "model", Path(at) / "converted"
        export(training.model, folder)
        # said to be in halves, as transformers reads it: true of those that were trained so
        (folder / "phasor.json").unlink(missing_ok=True)
        other = "interleaved" if native == "halves" else "halves"
        convert(folder, converted, to=other, source_layout=native, proof=False)
        (converted / "phasor.json").unlink(missing_ok=True)
        for truth, path in ((native, folder), (other, converted)):
            declared = "right" if truth == "halves" else "layout"
            answers = ask(path, text, number=number, doctor=doctor)
            rows += [{**row, **about, "truth": truth, "declared": declared} for row in answers]
        mixed = detect(half_converted(folder, converted))
        answer = "mixed" if mixed.odd else mixed.weights
        rows.append({**about, "by": "detect", "truth": "mixed", "declared": "mixed", "answer": answer})
        if not doctor:
            return rows
        halves = folder if native == "halves" else converted
        stated = json.loads((halves / "config.json").read_text())
        base = config.model.base * (50.0 if config.model.base < 1e5 else 0.02)
        rope = stated.get("rope_parameters")
        stated |= {"rope_parameters": {**rope, "rope_theta": base}} if rope else {"rope_theta": base}
        (halves / "config.json").write_text(json.dumps(stated))
        ranking = by_text(halves, Path(at) / "text.txt", length=128)
        more = {"answer": ranking.verdict, "best": ranking.best, "tied": ranking.tied}
        rows.append({**about, "by": "doctor --text", "truth": "halves", "declared": "base", **more})
    return rows


def measure(kind: str, out: str, first: int, last: int) -> None:
    torch.set_num_threads(1)
    data = read_text(())
    text = bytes(data.held_out.tolist())
    rows: list[dict[str, Any]] = []
    for number in range(first, last):
        rows += of_random(number, text) if kind == "random" else of_trained(number, data, text)
        Path(out).write_text(json.dumps(rows))


def outcome(row: dict[str, Any]) -> str:
    """Right, cannot tell, or wrong.

    Of the doctor's answers "another" is wrong where the declared reading is true; where it is not, "as stated" is
    wrong, and so is another whose ties leave the true reading out.
    """
    if row["by"] != "doctor --text":
        return "cannot tell" if not row["answer"] else "right" if row["answer"] == row["truth"] else "wrong"
    if row["answer"] == "cannot tell":
        return "cannot tell"
    if row["declared"] in ("none", "right"):
        return "right" if (row["answer"], row["declared"]) == ("as stated", "right") else "wrong"
    true = {"layout": "pairs interleaved in the weights", "base": "base "}[row["declared"]]
    named = any(name.startswith(true) and "," not in name for name in row["tied"])
    return "right" if row["answer"] == "another" and named else "wrong"


def rates(*files: str) -> None:
    rows = [row for name in files for row in json.loads(Path(name).read_text())]
    groups: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        trained = "random" if not row["steps"] else "hardly trained" if row["steps"] < 200 else "trained"
        what = row["by"]
        what += f", {row['declared']}" if row["by"] == "doctor --text" and row["steps"] else ""
        what += ", half converted" if row["truth"] == "mixed" else ""
        groups.setdefault((trained, what), Counter())[outcome(row)] += 1
    print("| models | verdict | asked | right | cannot tell | wrong | wrong at most (95 %) |")
    print("|---|---|---|---|---|---|---|")
    for (trained, what), count in sorted(groups.items()):
        total = count.total()
        counts = " | ".join(str(count[word]) for word in ("right", "cannot tell", "wrong"))
        print(f"| {trained} | {what} | {total} | {counts} | {100 * upper(count['wrong'], total):.1f} % |")


def upper(wrong: int, total: int) -> float:
    """Clopper and Pearson's bound: the rate at which so few or fewer wrong ones have a chance of 5 %."""
    low, high = wrong / total, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        chance = sum(math.comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(wrong + 1))
        low, high = (rate, high) if chance > 0.05 else (low, rate)
    return high


def main(kind: str, out: str, *more: str) -> None:
    if kind == "rates":
        rates(out, *more)
        return
    first, last = map(int, more) if more else (0, {"random": RANDOM, "trained": TRAINED}[kind])
    measure(kind, out, first, last)


if __name__ == "__main__":
    main(*sys.argv[1:])
