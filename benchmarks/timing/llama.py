"""A whole Llama: unpatched, and patched. The weights are the same tensors in both."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from phasor import patch

from .measure import Calls, Case, Work, missing
from .result import Goal

ABOUT = "a Llama of 8 layers, hidden 512, 8 heads of 64, "
UNITS = ": the patched model in units of the unpatched one"


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


RUNS: dict[str, Callable[[Any, Any], Any]] = {"llama-prefill": _prefill, "llama-generate": _generate}


def both(work: Work) -> Calls:
    run, model = RUNS[work.case.name], llama(work.quick, work.dtype)
    patched = copy.deepcopy(model, {id(p): p for p in model.parameters()})  # all but the weights, which are shared
    patch(patched, kernel=work.kernel)
    ids = torch.randint(2, 1024, (1, work.shape[3]), generator=torch.Generator().manual_seed(0))
    return {"patched": partial(run, patched, ids), "unpatched": partial(run, model, ids)}


LLAMA = tuple(
    Case(
        name, ABOUT + about + UNITS, (1, 8, 8, tokens, 64), "llama", "unpatched",
        {"float32": Goal("at most", 1.0), "bfloat16": Goal("at most", 1.0)}, "patched",
        dtypes=("float32", "bfloat16"), layouts=("halves",), obstacle=partial(missing, "transformers"),
    )
    for name, about, tokens in (
        ("llama-prefill", "2048 tokens at once", 2048),
        ("llama-generate", "48 tokens generated one by one after 16", 16),
    )
)  # fmt: skip
