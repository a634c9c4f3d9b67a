"""stories260K of llama2.c: trained, of 260,000 weights; here with a scaling of its own from its 128th token on."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from cache_argument import given, returned

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
LONGROPE = {
    "rope_type": "longrope", "factor": 4.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 128,
    "short_factor": [1.0] * 4, "long_factor": [1.0, 1.5, 3.0, 4.0],
}  # fmt: skip
SCALINGS = {"dynamic": (DYNAMIC, 128), "longrope": (LONGROPE, 512)}  # and max_position_embeddings


def converted(source: Path, target: Path) -> Path:
    from checkpoints.plain import as_meta
    from phasor.checkpoints import convert

    meta = as_meta(source / "checkpoints/stories260K/stories260K.bin", target.with_name("meta"))
    convert(meta, target, to="transformers", allow_pickle=True)
    return target


def stories(folder: Path, scaling: str | None = None):
    """The model, with one of ``SCALINGS`` from its 128th token on."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(folder)
    if scaling is not None:
        config.rope_parameters, config.max_position_embeddings = SCALINGS[scaling]
    return LlamaForCausalLM.from_pretrained(folder, config=config).eval()


def told(folder: Path, rows: int = 2, tokens: int = 400) -> Tensor:
    """Stories that the model tells by chance, with its seed."""
    torch.manual_seed(0)
    start = torch.ones(rows, 1, dtype=torch.long)
    with torch.no_grad():
        return stories(folder).generate(
            start, max_new_tokens=tokens - 1, min_new_tokens=tokens - 1, do_sample=True, top_k=0, pad_token_id=0
        )


def loss(logits: Tensor, ids: Tensor, start: int = 128) -> float:
    """Nats per token, from ``start`` on."""
    return float(F.cross_entropy(logits[:, start:-1].flatten(0, 1), ids[:, start + 1 :].flatten()))


@torch.no_grad()
def token_by_token(model, ids: Tensor, cache=None) -> Tensor:
    """``[rows, tokens, words]`` logits, each token with the keys of those before it from a cache."""
    found = []
    for t in range(ids.shape[1]):
        output = model(ids[:, t : t + 1], **given(cache), use_cache=True)
        cache = returned(output)
        found.append(output.logits)
    return torch.cat(found, dim=1)
