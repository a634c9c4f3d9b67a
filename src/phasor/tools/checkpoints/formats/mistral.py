"""Mistral's checkpoints: ``consolidated.safetensors`` beside ``params.json``, Meta's names, pairs interleaved.

Source: github.com/mistralai/mistral-inference (``rope.py``, ``args.py``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....models.rows import LLAMA, MISTRAL
from ....support.json_files import read_json
from ..output import Output, as_json
from ..qk_tensors import Move
from ..source import Source, others
from .plain import KEYS, META, check_plain, check_sizes, config_of, of_layers, own_names, params_of
from .safetensors_file import read_header
from .transformers import safetensors_output

FILE, PARAMS = "consolidated.safetensors", "params.json"


def recognised(path: Path) -> bool:
    return path.is_dir() and (path / FILE).exists() and (path / PARAMS).exists()


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` for tensors that no plain Mistral has, such as experts."""
    params, held = read_json(path / PARAMS), read_header(path / FILE).tensors
    names = own_names(path / PARAMS, params.get("n_layers"), held)
    if unknown := sorted(held.keys() - names.keys()):
        raise ValueError(f"{path / FILE}: {unknown[0]}: is no tensor of a dense Mistral of {params['n_layers']} layers")
    tensors = {names[name]: tensor for name, tensor in held.items()}
    config = config_of(path / PARAMS, params, {n: t.shape for n, t in tensors.items()}, MISTRAL)
    config.setdefault("sliding_window", None)
    copied, left = others(path, (FILE, PARAMS))
    source = Source(
        format=MISTRAL, path=path, tensors=tensors, config=config, layout="interleaved",
        why="Mistral's code rotates pairs (2i, 2i + 1), as complex numbers", files=(path / FILE,), other_files=copied,
        left_out=left, stated=path / PARAMS, keys=KEYS,
    )  # fmt: skip
    check_sizes(source, config)
    return source


def outputs(source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str) -> list[Output]:
    """One file, and ``params.json``. Raises ``ValueError`` for what is no plain Mistral or Llama."""
    names = of_layers(META, config["num_hidden_layers"])
    check_plain(source, config, names, (MISTRAL, LLAMA))
    params = params_of(source, config, mistral=True)
    tensors = {names[ours]: tensor for ours, tensor in source.tensors.items()}
    moved = {names[ours]: move for ours, move in moves.items()}
    return [safetensors_output(FILE, tensors, moved), Output(PARAMS, (as_json(params),))]
