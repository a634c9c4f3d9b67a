"""A whole Llama: unpatched, patched, and with no rotation at all. The weights are the same tensors in all three."""

import copy
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch as replaced

import torch

from phasor import patch

from .measure import Calls, Case, Times, Work, compared, medians, missing
from .result import Goal, Ratio

ABOUT = "a Llama of 8 layers, hidden 512, 8 heads of 64, "
UNITS = (
    ": the patched model in units of the unpatched one, and, of what the rotation costs (unpatched less one whose "
    "`apply_rotary_pos_emb` returns q and k as they are), the part that patching saves"
)
SHARE = Goal("at least", 0.8)
NO_LOSS = Goal("interval not above", 1.0)
NO_ROTATION = "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"


def llama(quick: bool, dtype: torch.dtype = torch.float32) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, wide, layers, heads = (64, 64, 2, 2) if quick else (512, 1408, 8, 8)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=wide, num_hidden_layers=layers, num_attention_heads=heads,
        vocab_size=1024, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


def _prefill(model: Any, ids: Any) -> Any:
    return model(ids, use_cache=False, logits_to_keep=1).logits


def _generate(model: Any, ids: Any) -> Any:
    return model.generate(ids, max_new_tokens=48, min_new_tokens=48, do_sample=False)


def _infer(model: Any, ids: Any) -> Any:
    with torch.inference_mode():
        return _generate(model, ids).clone()


def _train(model: Any, ids: Any) -> Any:
    """The loss and its gradients, without an optimizer's step, to which the rotation is nothing."""
    loss = model(ids, labels=ids, use_cache=False).loss
    return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))


RUNS: dict[str, Callable[[Any, Any], Any]] = {
    "llama-prefill": _prefill, "llama-generate": _generate, "llama-inference": _infer, "llama-training": _train,
}  # fmt: skip


def three(work: Work) -> Calls:
    run, model = RUNS[work.case.name], llama(work.quick, work.dtype)
    patched = copy.deepcopy(model, {id(p): p for p in model.parameters()})  # all but the weights, which are shared
    patch(patched, kernel=work.kernel)
    ids = torch.randint(2, 1024, (1, work.shape[3]), generator=torch.Generator().manual_seed(0))

    def none() -> Any:
        with replaced(NO_ROTATION, lambda q, k, cos, sin, unsqueeze_dim=1: (q, k)):
            return run(model, ids)

    return {"patched": partial(run, patched, ids), "unpatched": partial(run, model, ids), "none": none}


def interval(ratios: list[float], draws: int = 2000) -> tuple[float, float]:
    """The 95 % interval of the median over rounds that are drawn again with replacement (bootstrap)."""
    source = random.Random(0)
    values = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws) - 1]


def llama_ratios(case: Case, dtype: str, times: Times) -> list[Ratio]:
    """patched / unpatched with its interval; and how much of the rotation's cost is gone, where it is above noise."""
    rounds = list(zip(times["patched"], times["unpatched"], times["none"], strict=True))
    spread = interval([patched / unpatched for patched, unpatched, _ in rounds])
    whole = replace(compared(times, "patched", "unpatched", NO_LOSS), spread=spread, spread_of="95 % interval")
    of = medians({"saved": [u - p for p, u, _ in rounds], "cost": [u - n for _, u, n in rounds]})
    if of["cost"] <= 0:
        return [whole]
    names = "unpatched - patched", "unpatched - none"
    share = Ratio(*names, of["saved"] * 1e6, of["cost"] * 1e6, of["saved"] / of["cost"], None, "", SHARE)
    return [whole, share]


LLAMA = tuple(
    Case(
        name, ABOUT + about + UNITS, (1, 8, 8, tokens, 64), "llama", "unpatched", measured="patched",
        dtypes=("float32", "bfloat16"), layouts=("halves",), gradient=name == "llama-training",
        obstacle=partial(missing, "transformers"), ratios=llama_ratios,
    )
    for name, about, tokens in (
        ("llama-prefill", "2048 tokens at once", 2048),
        ("llama-generate", "48 tokens generated one by one after 16", 16),
        ("llama-inference", "the same under `torch.inference_mode()`", 16),
        ("llama-training", "loss and gradients of 1024 tokens", 1024),
    )
)  # fmt: skip
