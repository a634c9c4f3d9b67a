"""Folders of transformers: ``config.json`` beside ``model.safetensors``, or shards with an index, or pickles.
Those of timm are alike, and those of diffusers have other names.

Other formats are written in this one with transformers' names; its own files keep their shards, order and headers.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....models.reading.load import PIPELINE, TRANSFORMER
from ....models.reading.load import load as load_config
from ....models.reading.pictures import of_pictures
from ....support.json_files import read_json
from ..opening import plain_name
from ..output import Output, Segment, as_json, merged, segment, whole_file
from ..permutation import PAIRS
from ..qk_tensors import Move
from ..source import MARK, Source, others
from ..stored import Stored, Tensor
from .safetensors_file import SafetensorsFile, read_header, write_header

CONFIG = "config.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OLD = ("pytorch_model.bin", "pytorch_model.bin.index.json")
DIFFUSION, OLD_DIFFUSION = "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"
SAFE = (SINGLE, INDEX, DIFFUSION, f"{DIFFUSION}.index.json")
NAMES = (*SAFE, *OLD, OLD_DIFFUSION, f"{OLD_DIFFUSION}.index.json")
SUFFIX = ".safetensors"
SHARD = 5 * 10**9


def recognised(path: Path) -> bool:
    return path.is_dir() and (_there(path) != [] or (path / PIPELINE).is_file())


def _there(path: Path) -> list[str]:
    return [name for name in NAMES if (path / name).exists()]


def read(path: Path, *, allow_pickle: bool = False) -> Source:
    """Raises ``ValueError`` naming file, key and rule for anything that is damaged or contradicts itself.

    Of the folder of a pipeline of diffusers that of its transformer is read: it is a checkpoint of its own.
    """
    if (path / PIPELINE).is_file():
        load_config(path)  # it says where there is no transformer
        path = path / TRANSFORMER
    there = _there(path)
    if not there:
        raise ValueError(f"{path}: has no weights: {DIFFUSION}, or its index, is missing")
    safe = [name for name in there if name in SAFE]
    if len(safe) > 1:
        raise ValueError(f"{path}: has {safe[0]} and {safe[1]}; remove the one that does not belong to the model")
    first = (safe or there)[0]
    files: dict[Path, SafetensorsFile] = {}

    def load(file: Path) -> Mapping[str, Stored]:
        files[file] = read_header(file)
        return files[file].tensors

    reader = load if safe else unpickling(path / first, allow_pickle)
    shards = _sharded(path, first, reader) if first.endswith(".json") else {first: reader(path / first)}
    tensors: dict[str, Tensor] = {name: t for shard in shards.values() for name, t in shard.items()}
    if not tensors:
        raise ValueError(f"{path / first}: holds no tensors")
    config = read_json(path / CONFIG)
    key = of_pictures(config) or "model_type"
    layout, why = "native", f"{CONFIG}: what the code of {key} {config.get(key)!r} reads"
    if (path / MARK).exists():
        layout, why = _marked(path / MARK)
    own = (*shards, first, CONFIG)
    copied, left = others(path, own)
    return Source(
        format="transformers", path=path, tensors=tensors, config=config, layout=layout, why=why,
        files=tuple(path / name for name in shards), other_files=copied, left_out=left,
        keep={"index": first if first.endswith(".json") else "", "safe": files},
    )  # fmt: skip


def unpickling(path: Path, allowed: bool) -> Callable[[Path], Mapping[str, Stored]]:
    """What reads pickles, if the caller allowed it."""
    if not allowed:
        raise ValueError(
            f"{path}: is a pickle, which can run code when it is opened; to read it through torch's weights_only, "
            "add --allow-pickle (allow_pickle=True)"
        )
    from .torch_file import read_pickled

    return read_pickled


def _marked(path: Path) -> tuple[str, str]:
    layout = read_json(path).get("layout")
    if layout not in PAIRS:
        raise ValueError(f"{path}: layout must be {' or '.join(map(repr, PAIRS))}, got {layout!r:.40}")
    return layout, f"{MARK}: what an earlier conversion wrote"


def _sharded(folder: Path, index: str, load: Callable[[Path], Mapping[str, Stored]]) -> dict[str, Mapping[str, Stored]]:
    """File -> its tensors; each must be in the one file that the index names, and nothing else be there."""
    where = folder / index
    listed = read_json(where).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ValueError(f"{where}: weight_map must map tensors to files, got {listed!r:.60}")
    names = sorted({plain_name(name, f"{where}: {tensor}") for tensor, name in listed.items()})
    for name in names:
        if not (folder / name).exists():
            tensor = next(t for t, file in listed.items() if file == name)
            raise ValueError(f"{where}: {tensor}: must be in a file that exists, got {name!r}")
    shards = {name: load(folder / name) for name in names}
    held: dict[str, str] = {}
    for name, shard in shards.items():
        for tensor in shard:
            if tensor in held:
                raise ValueError(f"{folder / name}: {tensor}: is in {held[tensor]} as well; remove one")
            if listed.get(tensor) != name:
                place = repr(listed[tensor]) if tensor in listed else "no file"
                raise ValueError(f"{where}: {tensor}: must name {name!r}, which holds it, and names {place}")
            held[tensor] = name
    if missing := [tensor for tensor in listed if tensor not in held]:
        raise ValueError(f"{where}: {missing[0]}: must be in {listed[missing[0]]}, and is not")
    return shards


def outputs(source: Source, moves: Mapping[str, Move], config: dict[str, Any], mark: str) -> list[Output]:
    """The files to write: the weights, their index, the config, and a mark where the layout is not the model's own."""
    files = _same(source, moves) if source.keep.get("safe") else _new(source, moves)
    same = source.format == "transformers" and config == source.config
    files.append(Output(CONFIG, (whole_file(source.path / CONFIG) if same else as_json(config),)))
    if mark:
        why = "the pairs of q and k are not as the model's own code reads them"
        files.append(Output(MARK, (as_json({"layout": mark, "why": why}),)))
    return files


def _same(source: Source, moves: Mapping[str, Move]) -> list[Output]:
    """Safetensors files as they were, but for the tensors that move."""
    files = []
    for file in source.keep["safe"].values():
        body: list[Segment] = [segment(tensor, moves.get(name)) for name, tensor in file.tensors.items()]
        files.append(Output(file.path.name, (file.head, *merged(body))))
    if source.keep["index"]:
        files.append(Output(source.keep["index"], (whole_file(source.path / source.keep["index"]),)))
    return files


def _new(source: Source, moves: Mapping[str, Move]) -> list[Output]:
    """New safetensors files, in shards of at most `SHARD` bytes."""
    single = DIFFUSION if of_pictures(source.config) == "_class_name" else SINGLE
    shards: list[list[str]] = [[]]
    size = 0
    for name, tensor in source.tensors.items():
        if shards[-1] and size + tensor.size > SHARD:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.size
    files: list[Output] = []
    listed: dict[str, str] = {}
    for i, names in enumerate(shards, 1):
        file = single if len(shards) == 1 else f"{single.removesuffix(SUFFIX)}-{i:05d}-of-{len(shards):05d}{SUFFIX}"
        files.append(safetensors_output(file, {name: source.tensors[name] for name in names}, moves))
        listed |= dict.fromkeys(names, file)
    if len(shards) > 1:
        total = sum(tensor.size for tensor in source.tensors.values())
        files.append(
            Output(f"{single}.index.json", (as_json({"metadata": {"total_size": total}, "weight_map": listed}),))
        )
    return files


def safetensors_output(file: str, tensors: Mapping[str, Tensor], moves: Mapping[str, Move]) -> Output:
    """One new safetensors file."""
    head = write_header([(n, t.dtype, t.shape, t.size) for n, t in tensors.items()], {"format": "pt"})
    return Output(file, (head, *merged(segment(t, moves.get(n)) for n, t in tensors.items())))
