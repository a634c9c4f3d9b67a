"""Compiled rotations inside one run: phasor against transformers' functions, both under torch.compile.

    python benchmarks/compiled.py [--rounds 15] [--threads 2]

What is not compiled, `make bench` measures. Calls are interleaved; wall time, medians. Needs transformers and a C++
compiler, and compiles for some minutes before it measures.
"""

import argparse
import time
from functools import partial

import torch
from timing import medians, race
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as interleaved_of_transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as halves_of_transformers

import phasor

SHAPES = {"token": (1, 1), "batch of tokens": (16, 1), "prefill": (1, 2048), "batch": (4, 512)}


def calls(batch: int, tokens: int, dtype: torch.dtype, interleaved: bool, gradient: bool) -> dict[str, partial]:
    q, k = (torch.randn(batch, tokens, h, 128, dtype=dtype).transpose(1, 2) for h in (32, 8))
    q, k = q.requires_grad_(gradient), k.requires_grad_(gradient)
    spec = phasor.RotarySpec(head_dim=128, base=500_000.0, interleaved=interleaved)
    rotation = phasor.Rotation.at(spec, torch.arange(tokens).expand(batch, -1))
    function = interleaved_of_transformers if interleaved else halves_of_transformers
    double = (lambda t: t.repeat_interleave(2, -1)) if interleaved else (lambda t: torch.cat((t, t), -1))
    cos, sin = (double(t).to(dtype) for t in (rotation.cos, rotation.sin))
    calls = {
        "transformers": partial(torch.compile(function, fullgraph=True), q, k, cos, sin),
        "phasor": partial(torch.compile(phasor.apply_rotary_qk, fullgraph=True), q, k, rotation),
    }
    if not gradient:
        return calls
    grads = torch.randn_like(q), torch.randn_like(k)
    return {
        name: partial(lambda call: torch.autograd.grad(call(), (q, k), grads), call) for name, call in calls.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch._dynamo.config.recompile_limit = 64
    print(f"torch {torch.__version__}, {args.threads} threads, {args.rounds} rounds: median ms of compiled code")
    print(f"{'q 32 heads, k 8 heads, 128 wide':<57}{'phasor':>9}{'transformers':>14}{'ratio':>7}")
    for interleaved in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            for gradient in (False, True):
                for name, (batch, tokens) in SHAPES.items():
                    if gradient and tokens == 1:
                        continue
                    raced = calls(batch, tokens, dtype, interleaved, gradient)
                    repeat = 20 if tokens == 1 else 1
                    seconds = medians(race(raced, rounds=args.rounds, repeat=repeat, clock=time.perf_counter))
                    layout, kind = "interleaved" if interleaved else "halves", "fwd+bwd" if gradient else "fwd"
                    print(
                        f"{layout:<13}{str(dtype)[6:]:<10}{kind:<9}{f'{name} [{batch}, {tokens}]':<25}"
                        f"{seconds['phasor'] * 1e3:>9.3f}{seconds['transformers'] * 1e3:>14.3f}"
                        f"{seconds['phasor'] / seconds['transformers']:>7.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
