"""A whole Llama: unpatched, patched, and with no rotation at all. The weights are the same tensors in all three."""

import copy
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phasor import patch

from .libraries import no_transformers
from .measure import Calls, Case, Times, Variant, compared, medians
from .result import Goal, Ratio

ABOUT = "a Llama of 8 layers, hidden 512, 8 heads of 64, "
UNITS = (
    ": the patched model in units of the unpatched one, and, of what the rotation costs (unpatched less one whose "
    "`apply_rotary_pos_emb` returns q and k as they are), the part that patching saves"
)
SHARE = Goal("at least", 0.8)
NO_LOSS = Goal("interval not above", 1.0)


def _llama(quick: bool, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = (
        {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        if quick
        else {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
    )
    torch.manual_seed(0)
    config = LlamaConfig(**sizes, vocab_size=1024, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


def _three(run: Callable[[Any, Tensor], Any], tokens: tuple[int, int], variant: Variant) -> Calls:
    model = _llama(variant.quick, variant.dtype)
    patched = copy.deepcopy(model, {id(p): p for p in model.parameters()})  # all but the weights, which are shared
    patch(patched, kernel=variant.kernel)
    length = tokens[1] if variant.quick else tokens[0]
    ids = torch.randint(2, 1024, (1, length), generator=torch.Generator().manual_seed(0))
    return {
        "patched": partial(run, patched, ids),
        "unpatched": partial(run, model, ids),
        "none": partial(_unrotated, run, model, ids),
    }


@contextmanager
def _no_rotation() -> Iterator[None]:
    from transformers.models.llama import modeling_llama as module

    original = module.apply_rotary_pos_emb
    module.apply_rotary_pos_emb = lambda q, k, cos, sin, unsqueeze_dim=1: (q, k)
    try:
        yield
    finally:
        module.apply_rotary_pos_emb = original


def _unrotated(run: Callable[[Any, Tensor], Any], model: Any, ids: Tensor) -> Any:
    with _no_rotation():
        return run(model, ids)


def _prefill(model: Any, ids: Tensor) -> Any:
    return model(ids, use_cache=False, logits_to_keep=1).logits


def _generate(model: Any, ids: Tensor, more: int) -> Any:
    return model.generate(ids, max_new_tokens=more, min_new_tokens=more, do_sample=False)


def _train(model: Any, ids: Tensor) -> tuple[Tensor, ...]:
    """The loss and its gradients, without an optimizer's step, to which the rotation is nothing."""
    loss = model(ids, labels=ids, use_cache=False).loss
    return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))


def _infer(model: Any, ids: Tensor, more: int) -> Any:
    with torch.inference_mode():
        return _generate(model, ids, more).clone()


def _make_generation(run: Callable[..., Any], variant: Variant) -> Calls:
    return _three(partial(run, more=3 if variant.quick else 48), (16, 4), variant)


def interval(times: Times, value: Callable[[Sequence[int]], float], draws: int = 2000) -> tuple[float, float]:
    """The 95 % interval of ``value(rounds)`` over rounds that are drawn again with replacement (bootstrap)."""
    source, rounds = random.Random(0), range(len(next(iter(times.values()))))
    values = sorted(value(source.choices(rounds, k=len(rounds))) for _ in range(draws))
    return values[int(0.025 * draws)], values[int(0.975 * draws) - 1]


def llama_ratios(case: Case, dtype: str, times: Times) -> list[Ratio]:
    """patched / unpatched with its interval; and how much of the rotation's cost is gone, where it is above noise."""
    ratios = [a / b for a, b in zip(times["patched"], times["unpatched"], strict=True)]
    spread = interval(times, lambda rounds: statistics.median(ratios[i] for i in rounds))
    whole = replace(compared(times, "patched", "unpatched", NO_LOSS), spread=spread, spread_of="95 % interval")
    saved = [a - b for a, b in zip(times["unpatched"], times["patched"], strict=True)]
    cost = [a - b for a, b in zip(times["unpatched"], times["none"], strict=True)]
    of = medians({"saved": saved, "cost": cost})
    if of["cost"] <= 0:
        return [whole]
    names = "unpatched - patched", "unpatched - none"
    share = Ratio(*names, of["saved"] * 1e6, of["cost"] * 1e6, of["saved"] / of["cost"], None, "", SHARE)
    return [whole, share]


def _case(name: str, about: str, make: Callable[[Variant], Calls], gradient: bool = False) -> Case:
    return Case(
        name, ABOUT + about + UNITS, make, measured="patched", unit="unpatched",
        goal_text=f"95 % {NO_LOSS}; saves {SHARE}", dtypes=("float32", "bfloat16"), layouts=("halves",),
        gradient=gradient, obstacle=no_transformers, ratios=llama_ratios,
    )  # fmt: skip


LLAMA = (
    _case("llama-prefill", "2048 tokens at once", partial(_three, _prefill, (2048, 32))),
    _case("llama-generate", "48 tokens generated one by one after 16", partial(_make_generation, _generate)),
    _case("llama-inference", "the same under `torch.inference_mode()`", partial(_make_generation, _infer)),
    _case("llama-training", "loss and gradients of 1024 tokens", partial(_three, _train, (1024, 32)), gradient=True),
)
