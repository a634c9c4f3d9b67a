"""Tiny checkpoints on the disk, and a second way to run them: transformers' code with the other rotation put in."""

import importlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

TOKENS = torch.tensor([[5, 9, 33, 200, 7, 7, 64, 1, 90, 12]])
SMALL = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "first_k_dense_replace": 2,
}  # fmt: skip


def save_model(model_type: str, folder: Path, *, shards: str = "60KB", **changes: Any) -> Any:
    """A model of transformers with wild weights, saved as transformers saves it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **{**SMALL, **changes})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():  # gains of norms and biases, too, must matter
        torch.nn.init.normal_(parameter.data, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.3)
    model.save_pretrained(folder, max_shard_size=shards)
    return model


def logits(folder: Path) -> Tensor:
    """What transformers makes of a folder."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        found: Tensor = model(TOKENS).logits
    return found


def use_other_pairs(monkeypatch: Any, model_type: str, *, interleaved: bool) -> None:
    """Let the code of one model type turn interleaved pairs, or halves, whatever it was written for."""

    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        pairs = cos.shape[-1] // 2
        repeated = torch.equal(cos[..., 0], cos[..., 1])  # else one half after the other
        c, s = (t[..., 0::2] if repeated else t[..., :pairs] for t in (cos, sin))
        turning, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        a, b = (turning[..., 0::2], turning[..., 1::2]) if interleaved else turning.chunk(2, -1)
        first, second = a * c - b * s, a * s + b * c
        turned = torch.stack((first, second), -1).flatten(-2) if interleaved else torch.cat((first, second), -1)
        return torch.cat((turned, rest), -1)

    def apply(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return turn(q, cos, sin), turn(k, cos, sin)

    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    monkeypatch.setattr(module, "apply_rotary_pos_emb", apply)


def tensors_of(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """A folder with one file, of a model that transformers need not know."""
    import json

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the proof."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "phasor-proof.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
