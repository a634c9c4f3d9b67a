"""A rotary run as a folder that transformers loads as LlamaForCausalLM, with the same logits."""

from pathlib import Path
from typing import Any

from phasor.models.rows import LLAMA
from phasor.support.whole_files import check_folder_target, whole_folder, write_whole

from ..run_folder.files import write_json
from .model import VOCAB, Decoder


def export(model: Decoder, folder: str | Path) -> Path:
    """Write ``config.json`` and ``model.safetensors`` into ``folder`` (new, or empty). Nothing is permuted: pairs are
    halves in both. Tokens are bytes, so there is no tokenizer.

    Raises ``ValueError`` for a model that is not rotary, and for a folder that holds something.
    """
    from safetensors.torch import save

    folder = Path(folder)
    if model.config.rotary_spec is None:
        raise ValueError(f"run must be of a rotary model to be exported as Llama, got {model.config.encoding}")
    check_folder_target("folder", folder, whole=True)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"folder to export to must be new or empty, got {str(folder)!r}; choose another name")
    tensors = {
        name if name.startswith("lm_head") else f"model.{name}": tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (model.config.tied and name.startswith("lm_head"))
    }
    with whole_folder(folder) as scratch:
        write_whole(scratch / "model.safetensors", save(tensors, metadata={"format": "pt"}))
        write_json(scratch / "config.json", llama_config(model))
    return folder


def llama_config(model: Decoder) -> dict[str, Any]:
    """The model's ``config.json``."""
    config = model.config
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": LLAMA,
        "vocab_size": VOCAB,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps,
        "max_position_embeddings": config.length,
        "rope_theta": config.base,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "torch_dtype": "float32",
    }
