"""Ratios of rotation times inside one run: phasor against transformers, eager and compiled, forward and backward.

    python benchmarks/rotary.py [--rounds 15] [--threads 2]

Variants are interleaved and reported as medians. Needs transformers.
"""

import argparse
from collections.abc import Callable

import torch
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as interleaved_of_transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as halves_of_transformers

import phasor
from phasor.demo.speed import medians

SHAPES = {"decode": (1, 1), "batch decode": (16, 1), "prefill": (1, 2048), "batch": (4, 512)}


def variants(batch: int, tokens: int, dtype: torch.dtype, interleaved: bool, gradient: bool) -> dict[str, Callable]:
    q, k = (torch.randn(batch, tokens, h, 128, dtype=dtype).transpose(1, 2) for h in (32, 8))
    q, k = q.requires_grad_(gradient), k.requires_grad_(gradient)
    spec = phasor.RotarySpec(head_dim=128, base=500_000.0, interleaved=interleaved)
    rotation = phasor.Rotation.at(spec, torch.arange(tokens).expand(batch, -1))
    theirs = interleaved_of_transformers if interleaved else halves_of_transformers
    double = (lambda t: t.repeat_interleave(2, -1)) if interleaved else (lambda t: torch.cat((t, t), -1))
    cos, sin = (double(t).to(dtype) for t in (rotation.cos, rotation.sin))

    def whole(rotate: Callable) -> Callable[[], object]:
        if not gradient:
            return rotate
        grads = torch.randn_like(q), torch.randn_like(k)
        return lambda: torch.autograd.grad(rotate(), (q, k), grads)

    compiled_ours = torch.compile(phasor.apply_rotary_qk, fullgraph=True)
    compiled_theirs = torch.compile(theirs, fullgraph=True)
    return {
        "transformers eager": whole(lambda: theirs(q, k, cos, sin)),
        "phasor eager": whole(lambda: phasor.apply_rotary_qk(q, k, rotation)),
        "transformers compiled": whole(lambda: compiled_theirs(q, k, cos, sin)),
        "phasor compiled": whole(lambda: compiled_ours(q, k, rotation)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch._dynamo.config.recompile_limit = 64
    print(f"torch {torch.__version__}, {args.threads} threads, {args.rounds} rounds: median ms, phasor / transformers")
    print(f"{'q 32 heads, k 8 heads, 128 wide':<52}{'eager':>22}{'compiled':>24}")
    for interleaved in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            for gradient in (False, True):
                for name, (batch, tokens) in SHAPES.items():
                    if gradient and tokens == 1:
                        continue
                    rounds = args.rounds * (20 if tokens == 1 else 1)
                    ms = {
                        n: t * 1e3
                        for n, t in medians(variants(batch, tokens, dtype, interleaved, gradient), rounds).items()
                    }
                    layout = "interleaved" if interleaved else "halves"
                    kind = "fwd+bwd" if gradient else "fwd"
                    print(
                        f"{layout:<12}{str(dtype)[6:]:<9}{kind:<8}{f'{name} [{batch}, {tokens}]':<23}"
                        f"{ms['phasor eager']:>8.3f} /{ms['transformers eager']:>8.3f}"
                        f" {ms['phasor eager'] / ms['transformers eager']:>5.2f}"
                        f"{ms['phasor compiled']:>9.3f} /{ms['transformers compiled']:>8.3f}"
                        f" {ms['phasor compiled'] / ms['transformers compiled']:>5.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
