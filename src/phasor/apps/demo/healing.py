"""A small model made sick by one common line, looked at, and healed: the doctor's pages of both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...support.whole_files import write_whole
from ...tools.doctor import diagnose, repair
from ...tools.doctor.differences import curves
from ...tools.doctor.html import html_page
from ...tools.doctor.page import page

SIZES: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 8192, "rope_theta": 500_000.0,
    "initializer_range": 0.1,  # five times the usual, so that positions move the logits of an untrained model
}  # fmt: skip
MADE_SICK = "model.to(torch.bfloat16)"


def healing(out: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Write ``sick.html`` and ``healed.html`` into ``out``, say the pages, and return the causes and what was mended.

    The model is a Llama of two layers with random weights. Whether the healed one is bit for bit what `from_pretrained`
    would have given is found with weights in bfloat16 and frequencies that never were.
    """
    out.mkdir(parents=True, exist_ok=True)
    model, never_sick = _model().to(torch.bfloat16), _model()
    for parameter in never_sick.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    sick, apart = diagnose(model), curves(model)
    say(page(sick, apart))
    write_whole(out / "sick.html", html_page(sick, apart).encode())
    report = repair(model)
    say(f"\n{report}\n")
    healed = diagnose(model)
    say(page(healed, curves(model)))
    more = [("repaired", str(report))]
    write_whole(out / "healed.html", html_page(healed, curves(model), more).encode())
    tokens = torch.arange(64)[None]
    with torch.no_grad():
        equal = torch.equal(model(tokens).logits, never_sick(tokens).logits)
    say(f"\nlogits {'bit-equal to' if equal else 'OTHER than'} those of a model that was loaded in bfloat16")
    return {"causes": list(sick.causes), "mended": len(report.mended), "sound": healed.sound, "bit_equal": equal}


def _model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
