"""Meta's and Mistral's checkpoints: ``consolidated.00.pth`` and more, or ``consolidated.safetensors``, beside
``params.json``; the same names of tensors, pairs interleaved.

Source: github.com/meta-llama/llama (``model.py``), github.com/meta-llama/llama-models, and
github.com/mistralai/mistral-inference (``rope.py``, ``args.py``). Several files of Meta's are the shares of as many
processes: projections into heads and into the hidden width are cut by rows, those out of them by columns.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ....models.rows import LLAMA, MISTRAL
from ....support.json_files import read_json
from ..output import Output, Reordered, Segment, as_json, segment
from ..qk_tensors import Move
from ..source import Source, others
from ..stored import Stored, Tensor, join
from .plain import KEYS, META, check_dtypes, check_plain, check_sizes, config_of, of_layers, own_names, params_of
from .safetensors_file import read_header
from .transformers import safetensors_output, unpickling

PARAMS, SAFE = "params.json", "consolidated.safetensors"
FILE = re.compile(r"consolidated\.(\d\d)\.pth")
COLUMNS = ("attention.wo.weight", "feed_forward.w2.weight")
WHOLE = ("norm.weight",)  # in every file
DERIVED = ("rope.freqs",)  # a buffer that the code forms again
OF = {"meta": (LLAMA, "Meta", "Llama"), MISTRAL: (MISTRAL, "Mistral", "dense Mistral")}


def files_in(path: Path) -> list[Path]:
    return sorted(p for p in path.glob("consolidated.*.pth") if FILE.fullmatch(p.name)) if path.is_dir() else []


def recognised(path: Path) -> bool:
    return bool(files_in(path)) and (path / PARAMS).exists()


def recognised_mistral(path: Path) -> bool:
    return path.is_dir() and (path / SAFE).exists() and (path / PARAMS).exists()


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` for shares that do not fit together, and for tensors that no plain Llama has."""
    files = files_in(path)
    if [FILE.fullmatch(p.name)[1] for p in files] != [f"{i:02d}" for i in range(len(files))]:  # type: ignore[index]
        raise ValueError(f"{path}: must have consolidated.00.pth, .01 and so on, got {files[-1].name} and a gap before")
    read_share = unpickling(files[0], allow_pickle)
    shares = [{n: t for n, t in read_share(file).items() if n not in DERIVED} for file in files]
    for file, share in zip(files, shares, strict=True):
        if lost := sorted(share.keys() ^ shares[0].keys()):
            raise ValueError(f"{file}: {lost[0]}: must be in every share, and is not")
    return _source("meta", path, files, shares)


def read_mistral(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` for tensors that no plain Mistral has, such as experts."""
    return _source(MISTRAL, path, [path / SAFE], [read_header(path / SAFE).tensors])


def _source(form: str, path: Path, files: list[Path], shares: Sequence[Mapping[str, Stored]]) -> Source:
    params, (model_type, whose, kind) = read_json(path / PARAMS), OF[form]
    names = own_names(path / PARAMS, params.get("n_layers"), shares[0])
    if unknown := sorted(shares[0].keys() - names.keys()):
        raise ValueError(f"{files[0]}: {unknown[0]}: is no tensor of a {kind} of {params['n_layers']} layers")
    tensors = {
        ours: _joined(name, [share[name] for share in shares], params.get("dim"))
        for name, ours in names.items()
        if name in shares[0]
    }
    config = config_of(path / PARAMS, params, {n: t.shape for n, t in tensors.items()}, model_type)
    if form == MISTRAL:
        config.setdefault("sliding_window", None)
    copied, left = others(path, (*(file.name for file in files), PARAMS))
    source = Source(
        format=form, path=path, tensors=tensors, config=config, layout="interleaved",
        why=f"{whose}'s code rotates pairs (2i, 2i + 1), as complex numbers", files=tuple(files), other_files=copied,
        left_out=left, stated=path / PARAMS, keys=KEYS | {"rope_scaling.factor": "rope_scaling_factor"},
    )  # fmt: skip
    check_sizes(source, config)
    return source


def _joined(name: str, parts: list[Stored], dim: Any) -> Tensor:
    axis = cut_of(name, parts[0].shape, dim)
    if axis is not None:
        return join(parts, axis, name)
    from ..reordering import load  # brings numpy

    for part in parts[1:]:
        if part.shape != parts[0].shape or (load(part) != load(parts[0])).any():
            raise ValueError(f"{part.file}: {name}: must be the same in every share, and is not")
    return parts[0]


def cut_of(name: str, shape: tuple[int, ...], dim: Any) -> int | None:
    """The axis along which the shares of a tensor lie; None if each holds it whole."""
    if name.endswith(WHOLE):
        return None
    if name.startswith("tok_embeddings"):  # by columns in Llama 2, by rows in Llama 3
        return 0 if shape[-1] == dim else 1
    return 1 if name.endswith(COLUMNS) else 0


def outputs(
    source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str, *, files: int = 1
) -> list[Output]:
    """``files`` shares, and ``params.json``. Raises ``ValueError`` for what is no plain Llama, or cannot be cut so."""
    from ..torch_types import TORCH
    from .torch_file import save

    names = of_layers(META, config["num_hidden_layers"])
    check_plain(source, config, names, (LLAMA,))
    check_dtypes(source, TORCH)
    params = params_of(source, config, mistral=False)
    if files < 1 or params["n_kv_heads"] % files:
        raise ValueError(f"files must divide the {params['n_kv_heads']} heads of k, got {files}")
    outputs = []
    for i in range(files):
        segments: dict[str, Segment] = {}
        abouts: dict[str, tuple[str, tuple[int, ...]]] = {}
        for ours, theirs in names.items():
            if (tensor := source.tensors.get(ours)) is None:
                continue
            axis = None if files == 1 else cut_of(theirs, tensor.shape, params["dim"])
            segments[theirs] = _share(source, ours, tensor, moves.get(ours), axis, i, files)
            abouts[theirs] = (tensor.dtype, _cut(tensor.shape, axis, files))
        name, whole = f"consolidated.{i:02d}.pth", tuple(segments.values())
        outputs.append(Output(name, whole, partial(save, segments, abouts)))
    return [*outputs, Output(PARAMS, (as_json(params),))]


def _share(
    source: Source, name: str, tensor: Tensor, move: Move | None, axis: int | None, i: int, files: int
) -> Segment:
    if axis is None:
        return segment(tensor, move)
    if tensor.shape[axis] % files:
        raise ValueError(f"{source.place(name)}: {list(tensor.shape)} cannot be cut into {files} along axis {axis}")
    return Reordered(tensor, move, (axis, i, files))


def _cut(shape: tuple[int, ...], axis: int | None, files: int) -> tuple[int, ...]:
    return shape if axis is None else (*shape[:axis], shape[axis] // files, *shape[axis + 1 :])


def outputs_mistral(source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str) -> list[Output]:
    """One file, and ``params.json``. Raises ``ValueError`` for what is no plain Mistral or Llama."""
    names = of_layers(META, config["num_hidden_layers"])
    check_plain(source, config, names, (MISTRAL, LLAMA))
    params = params_of(source, config, mistral=True)
    tensors = {names[ours]: tensor for ours, tensor in source.tensors.items()}
    moved = {names[ours]: move for ours, move in moves.items()}
    return [safetensors_output(SAFE, tensors, moved), Output(PARAMS, (as_json(params),))]
