"""Traps that show only beside something else: a loaded model, a draft model, a GGUF file, another runtime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ...models.configs import read_config
from ..engines import Reading, look
from ..engines.gguf import FACTOR, ORIGINAL, TYPE, converted
from ..engines.gguf_file import keys_of
from .case import Trap
from .proof import unlike


def loaded_traps(model: Any) -> list[Trap]:
    """Trap 11: ``model.config`` was changed after loading; no rotary module of ``model`` turns as it says now.

    ``model``: a transformers model. Its modules are compared by their ``inv_freq``.
    """
    said = [spec.inv_freq() for spec in read_config(model.config).with_angles("float32").distinct]
    held = [
        m.inv_freq.double().cpu() for m in model.modules() if isinstance(getattr(m, "inv_freq", None), torch.Tensor)
    ]
    same = any(a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=0) for a in said for b in held)
    if not held or same:
        return []
    text = (
        "the config says other frequencies than the modules hold: it was changed after loading, and is not read again"
    )
    return [Trap(11, text, "MakazhanAlpamys/Soup#793")]


def draft_traps(target: Reading, draft: Any) -> list[Trap]:
    """Trap 15: a draft model, by its config, that the settings of its target do not reach."""
    model = read_config(draft)
    length = target.length or 0
    found = []
    if model.max_position is not None and model.max_position < length:
        text = f"the draft model declares {model.max_position:,} positions, the target now takes {length:,}"
        found.append(Trap(15, text, "vllm-project/vllm#58080"))
    mine, theirs = next(iter(target.model.distinct)), next(iter(model.distinct))
    if mine.scaling is not None and theirs.scaling is None:
        found.append(Trap(15, f"the target has {mine.scaling.name} scaling, its draft none", "vllm-project/vllm#58080"))
    return found


def file_traps(config: Any, gguf: Path) -> list[Trap]:
    """Trap 16: a GGUF file without the scaling that its config states."""
    meta = converted(look(config))
    arch, keys = keys_of(Path(gguf))
    if arch != meta.arch.name:
        raise ValueError(f"{str(gguf)!r} holds the architecture {arch!r}, and the config is of {meta.arch.name!r}")
    return list(_unwritten(meta.keys, keys))


def _unwritten(wanted: dict[str, Any], held: dict[str, Any]) -> Iterator[Trap]:
    for key in (TYPE, FACTOR, ORIGINAL, "rope.freq_base", "rope.scaling.attn_factor"):
        if key not in wanted or (key in held and _alike(held[key], wanted[key])):
            continue
        said = f"says {held[key]!r}" if key in held else "does not say it"
        yield Trap(16, f"the config says {key} {wanted[key]!r}, the file {said}", "ggml-org/llama.cpp#13322")


def _alike(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return bool(held == wanted)
    return abs(float(held) - float(wanted)) <= 1e-6 * abs(float(wanted))


def runtime_traps(training: Reading, serving: Reading) -> list[Trap]:
    """Trap 17: two runtimes that rotate one model differently, such as that of training and that of serving."""
    length = min(filter(None, (training.length, serving.length)), default=1)
    pairs = enumerate(zip(training.model.layers, serving.model.layers, strict=True))
    apart = {text: i for i, (a, b) in reversed(list(pairs)) if (text := unlike(a, b, length))}
    return [
        Trap(17, f"layer {i}: {training.engine} and {serving.engine} part: {text}", "NVIDIA/Model-Optimizer#917")
        for text, i in apart.items()
    ]
