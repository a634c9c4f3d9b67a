"""Training speed of the lab's decoder against transformers' LlamaForCausalLM of the same size, on a CPU.

    python benchmarks/lab.py [--dim 96] [--length 64] [--batch 32] [--threads 1] [--rounds 60] [--json]

Both take the same steps: the same bytes, forward, loss, backward, fused AdamW, in float32. Steps alternate in random
order, so a busy machine slows both alike; the ratio is the median of the ratios of neighbouring steps.
"""

import argparse
import json
import random
import statistics
import time

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from phasor_lab.lab import ENCODINGS, Decoder, ModelConfig
from phasor_lab.lab.export import llama_config


def stepper(model: torch.nn.Module, tokens: torch.Tensor):
    """One training step of a model on tokens, as a function."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        out = model(tokens[:, :-1])
        logits = out if isinstance(out, torch.Tensor) else out.logits
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("dim", 96), ("layers", 2), ("heads", 4), ("length", 64), ("batch", 32), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    size = {"dim": args.dim, "layers": args.layers, "heads": args.heads, "length": args.length}
    decoders = {name: Decoder(ModelConfig(encoding=name, **size)) for name in ENCODINGS}
    llama = LlamaForCausalLM(LlamaConfig(**llama_config(decoders["rotary"])))
    tokens = torch.randint(0, 256, (args.batch, args.length + 1))
    steps = {name: stepper(model, tokens) for name, model in {**decoders, "transformers": llama}.items()}

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for round_ in range(args.rounds + 3):
        random.shuffle(names)
        for name in names:
            start = time.perf_counter()
            steps[name]()
            if round_ >= 3:
                seconds[name].append(time.perf_counter() - start)

    per_step = args.batch * args.length
    results = {
        name: {
            "tokens_per_second": per_step / statistics.median(times),
            "ratio": statistics.median(b / a for a, b in zip(times, seconds["transformers"], strict=True)),
        }
        for name, times in seconds.items()
    }
    if args.json:
        print(json.dumps({"arguments": vars(args), "results": results}, indent=2))
        return
    for name, row in results.items():
        print(f"{name:<16}{row['tokens_per_second']:>10,.0f} tokens/s{row['ratio']:>8.2f} x transformers")


if __name__ == "__main__":
    main()
