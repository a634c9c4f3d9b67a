"""Runs the recipe for one library on docs/doors.md and compares what the library computes before and after.

    python doors.py trl          exit code 0: equal; 77: the library is not installed

In a process of its own: recipes change libraries.
"""

import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import phasor
from phasor import Rotation, apply_rotary, apply_rotary_qk

ROOT = Path(__file__).resolve().parents[2]
ABSENT = 77
FROM_PAGE = {"phasor": phasor, "Rotation": Rotation, "apply_rotary": apply_rotary, "apply_rotary_qk": apply_rotary_qk}
calls: list[str] = []  # of phasor, by what the recipe changed


def recipe(name: str) -> str:
    page = (ROOT / "docs" / "doors.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf'^```python title="{name}"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    assert len(list(filter(str.strip, found.splitlines()))) <= 5
    return found


def follow(name: str, **names: object) -> dict:
    """The names after the recipe has run."""
    scope = {**FROM_PAGE, **names}
    exec(compile(recipe(name), f"doors.md: {name}", "exec"), scope)
    return scope


def counted(function: Callable) -> Callable:
    def call(*args, **kwargs):
        calls.append(function.__name__)
        return function(*args, **kwargs)

    return call


def gradients(module: nn.Module, run: Callable) -> list[torch.Tensor]:
    module.zero_grad()
    out = run()
    out.float().square().mean().backward()
    return [out.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def close(before: list[torch.Tensor], after: list[torch.Tensor]) -> None:
    """Equal but for the order of roundings: 32 steps of float32 of the largest value."""
    assert len(before) == len(after) > 1 and calls
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype == torch.float32
        assert (a - b).abs().max() <= 2.0**-19 * a.abs().max()


def x_transformers() -> None:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=16, max_seq_len=64, attn_layers=layers)
    tokens = torch.arange(24).reshape(2, 12) % 16
    before = gradients(model, lambda: model(tokens))
    follow("x_transformers", apply_rotary=counted(apply_rotary))
    close(before, gradients(model, lambda: model(tokens)))


def diffusers() -> None:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 8, 32),
        "pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]),
        "img_ids": torch.cartesian_prod(torch.arange(1), torch.arange(4), torch.arange(4)).float(),
        "txt_ids": torch.zeros(8, 3),
    }  # fmt: skip

    def run() -> torch.Tensor:
        return model(**inputs, return_dict=False)[0]

    before = gradients(model, run)
    follow("diffusers", apply_rotary=counted(apply_rotary))
    close(before, gradients(model, run))


def torchtitan() -> None:
    from torchtitan.models.common.rope import ComplexRoPE, CosSinRoPE

    rope = ComplexRoPE(ComplexRoPE.Config(dim=16, max_seq_len=64, scaling="llama", theta=500_000.0))
    heads = nn.ParameterList([torch.randn(2, 12, 4, 16), torch.randn(2, 12, 2, 16)])
    for positions in (None, torch.arange(12).repeat(2, 1) * 3):

        def run(positions=positions) -> torch.Tensor:
            return torch.cat([x.flatten() for x in rope(*heads, positions)])

        before = gradients(heads, run)
        kept = ComplexRoPE.apply_rotary_emb
        follow("torchtitan", apply_rotary_qk=counted(apply_rotary_qk))
        close(before, gradients(heads, run))
        ComplexRoPE.apply_rotary_emb = staticmethod(kept)
    halves = CosSinRoPE(CosSinRoPE.Config(dim=16, max_seq_len=64))  # what the page says of it
    cos, sin = halves._reshape_cache(heads[0])[:, :, 0].chunk(2, dim=-1)
    ours = apply_rotary_qk(*heads, Rotation.from_tables(cos, sin, form="doubled"), tensor_format="bshd")
    close(list(halves(*heads)), list(ours))


def trl() -> None:
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = {f"w{i}": i for i in range(30)} | {"<eos>": 30, "<pad>": 31}
    raw = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<pad>")
    rows = [{"input_ids": [(3 * row + i) % 30 for i in range(16)]} for row in range(8)]
    dataset = Dataset(InMemoryTable.from_pylist(rows), fingerprint="rows")  # or it pickles pyarrow to name itself

    def model() -> LlamaForCausalLM:
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(
            vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, pad_token_id=31, eos_token_id=30, bos_token_id=30,
        ))  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        args = SFTConfig(
            folder, max_steps=3, per_device_train_batch_size=2, report_to="none", use_cpu=True, logging_steps=1,
            save_strategy="no", bf16=False, gradient_checkpointing=False, disable_tqdm=True,
            dataset_kwargs={"skip_prepare_dataset": True},
        )  # fmt: skip
        given = {"args": args, "train_dataset": dataset, "processing_class": tokenizer}
        plain = SFTTrainer(model(), **given)
        plain.train()
        patched = model()
        after = follow("trl", model=patched, args=args, dataset=dataset, tokenizer=tokenizer)["trainer"]
    assert all(hasattr(type(layer.self_attn), "_phasor_original") for layer in patched.model.layers)
    pairs = zip(plain.model.parameters(), after.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    losses = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (plain, after)]
    assert losses[0] == losses[1] and len(losses[0]) == 3


def kernels() -> None:
    from kernels_hook import compare_definitions, compare_training, open_gate

    gate = open_gate()
    compare_training(lambda model: follow("kernels", Path=lambda path: ROOT / path, model=model))
    compare_definitions(sys.argv[2:])
    print(gate)


DOORS = {run.__name__: run for run in (trl, torchtitan, x_transformers, diffusers, kernels)}

if __name__ == "__main__":
    chosen = sys.argv[1]
    if importlib.util.find_spec(chosen) is None:
        sys.exit(ABSENT)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"
    DOORS[chosen]()
    print("equal", chosen, importlib.metadata.version(chosen.replace("_", "-")))
